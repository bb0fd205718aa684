// Flash attention forward: inputs as serving and training have them, and the definition.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/runtime/attention.hpp>
#include <tessera/runtime/impl/planned_memory.hpp>

#include "bench/support/sampled_check.hpp"
#include "bench/support/workload.hpp"
#include "tests/support/random.hpp"
#include "tools/tuner/families.hpp"
#include "tools/tuner/family_problem.hpp"
#include "tools/tuner/ragged.hpp"

namespace tessera::tuner {
namespace {

class attention_workload {
 public:
  attention_workload(const flash_problem& problem, std::uint64_t seed, std::size_t cold_bytes)
      : inputs_(problem, cold_bytes, seed) {
    const flash_attention_args args = inputs_.args();
    // The same draw for queries and keys: sequence n is long in both or short in both.
    cut_raggedly(args.cu_seqlens_q, args.q.extent[0], seed);
    cut_raggedly(args.cu_seqlens_k, args.k.extent[0], seed);
    draw_lengths(args.seqlens_q, args.q.extent[1], seed);
    draw_lengths(args.seqlens_k, args.k.extent[1], seed);
  }

  flash_attention_args args(std::size_t round) const {
    flash_attention_args one = inputs_.args(round);
    one.out = one.lse = one.row_max = one.weights = {};
    return one;
  }

  std::vector<std::span<const std::byte>> blocks() const { return inputs_.input_blocks(); }

  static std::vector<result_tensor<flash_attention_args>> outputs(const flash_problem& problem) {
    using args = flash_attention_args;
    const auto& q = problem.q.extent;
    tensor_shape out = problem.q;
    out.extent[static_cast<std::size_t>(out.rank - 1)] =
        problem.v.extent[static_cast<std::size_t>(problem.v.rank - 1)];
    const tensor_shape rows = is_packed(problem) ? tensor_shape{dtype::f32, 2, {q[1], q[0]}}
                                                 : tensor_shape{dtype::f32, 3, {q[0], q[2], q[1]}};
    std::vector<result_tensor<args>> list{{"out", &args::out, out}};
    if (problem.op != flash_op::scaled_dot_product_attention) {
      list.push_back({"lse", &args::lse, rows});
    }
    if (!problem.options.normalize) list.push_back({"row_max", &args::row_max, rows});
    if (problem.weights.present()) list.push_back({"weights", &args::weights, problem.weights});
    return list;
  }

  static dtype type_of(const flash_problem& problem) { return problem.q.type; }

  std::string disagreement(const flash_attention_args& args, bool thorough) const {
    const bench::sample_plan plan{.rows_per_head = thorough ? 16 : 3, .heads = thorough ? 4 : 2};
    const support::comparison found = bench::sampled_check(args, inputs_.options(), plan);
    if (found.passed) return {};
    return "sampled rows of " +
           support::sentence_of(found, "out", {dtype::f64, 1, {args.out.elements()}});
  }

 private:
  bench::workload inputs_;
};

}  // namespace

const tunable_family& tunable_attention() {
  static const family_adapter<attention_family, attention_workload> family{};
  return family;
}

}  // namespace tessera::tuner
