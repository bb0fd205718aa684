// Attention, forward: inputs as serving and training have them, and the definition.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/problem.hpp>

#include "bench/support/page_workload.hpp"
#include "bench/support/sampled_check.hpp"
#include "bench/support/workload.hpp"
#include "tests/reference/dense_pages.hpp"
#include "tests/support/random.hpp"
#include "tools/tuner/declared_problem.hpp"
#include "tools/tuner/families.hpp"
#include "tools/tuner/ragged.hpp"

namespace tessera::tuner {
namespace {

flash_problem typed(const problem_view& problem) {
  return {.op = static_cast<flash_op>(problem.op->place),
          .tensors = *reinterpret_cast<const flash_attention_args*>(problem.tensors),
          .unaligned = problem.unaligned,
          .options = *static_cast<const flash_attention_options*>(problem.options)};
}

/// What is wrong with a sample of the rows of a call, whose tensors lie in host memory.
std::string sampled_disagreement(const flash_attention_args& args,
                                 const flash_attention_options& options, bool thorough) {
  const bench::sample_plan plan{.rows_per_head = thorough ? 16 : 3, .heads = thorough ? 4 : 2};
  const support::comparison compared = bench::sampled_check(args, options, plan);
  if (compared.passed) return {};
  return "sampled rows of " +
         support::sentence_of(compared, "out", {dtype::f64, 1, {args.out.elements()}});
}

class attention_inputs final : public workload_inputs {
 public:
  attention_inputs(const problem_view& problem, std::uint64_t seed, std::size_t cold_bytes)
      : inputs_(typed(problem), cold_bytes, seed) {
    const flash_attention_args args = inputs_.args();
    // The same draw for queries and keys: sequence n is long in both or short in both.
    cut_raggedly(args.cu_seqlens_q, args.q.extent[0], seed);
    cut_raggedly(args.cu_seqlens_k, args.k.extent[0], seed);
    draw_lengths(args.seqlens_q, args.q.extent[1], seed);
    draw_lengths(args.seqlens_k, args.k.extent[1], seed);
  }

  std::vector<tensor_view> tensors(std::size_t round) const override {
    flash_attention_args args = inputs_.args(round);
    args.out = args.lse = args.row_max = args.weights = {};
    const std::span views(tensors_of(args), sizeof(args) / sizeof(tensor_view));
    return {views.begin(), views.end()};
  }

  std::vector<std::span<const std::byte>> blocks() const override { return inputs_.input_blocks(); }

  std::string disagreement(const std::vector<tensor_view>& tensors, bool thorough) const override {
    return sampled_disagreement(*reinterpret_cast<const flash_attention_args*>(tensors.data()),
                                inputs_.options(), thorough);
  }

 private:
  bench::workload inputs_;
};

/// Sequences from half as long as their pages allow up to all of it.
class page_inputs final : public workload_inputs {
 public:
  page_inputs(const problem_view& problem, std::uint64_t seed, std::size_t cold_bytes)
      : inputs_({.tensors = *reinterpret_cast<const page_attention_args*>(problem.tensors),
                 .unaligned = problem.unaligned,
                 .options = *static_cast<const page_attention_options*>(problem.options)},
                cold_bytes, seed) {
    const page_attention_args args = inputs_.args();
    const auto full = static_cast<const std::int32_t*>(args.seqlens_k.data);
    if (args.seqlens_k.elements() > 0) draw_lengths(args.seqlens_k, full[0], seed);
  }

  std::vector<tensor_view> tensors(std::size_t round) const override {
    page_attention_args args = inputs_.args(round);
    args.out = args.lse = {};
    const std::span views(tensors_of(args), sizeof(args) / sizeof(tensor_view));
    return {views.begin(), views.end()};
  }

  std::vector<std::span<const std::byte>> blocks() const override { return inputs_.input_blocks(); }

  std::string disagreement(const std::vector<tensor_view>& tensors, bool thorough) const override {
    const reference::dense_pages dense(
        *reinterpret_cast<const page_attention_args*>(tensors.data()), inputs_.options());
    return sampled_disagreement(dense.args(), dense.options(), thorough);
  }

 private:
  bench::page_workload inputs_;
};

}  // namespace

const tunable_family& tunable_attention() {
  static const auto family =
      declared_family("attention",
                      [](const problem_view& problem, std::uint64_t seed,
                         std::size_t cold_bytes) -> std::unique_ptr<workload_inputs> {
                        if (problem.op->form == &paged_table::form) {
                          return std::make_unique<page_inputs>(problem, seed, cold_bytes);
                        }
                        return std::make_unique<attention_inputs>(problem, seed, cold_bytes);
                      });
  return *family;
}

}  // namespace tessera::tuner
