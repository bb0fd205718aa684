// Times ggml's CPU flash attention on problem texts read from standard input, through its public
// API, and answers each with one line of JSON in the form of bench_flash_attention --problems.
//
// Tensors have the layout of ggml's own performance cases: heads outermost, each head contiguous. A
// causal problem gets the f16 mask that ggml wants, a single query none. Decode rotates over
// copies of keys and values so that they come from memory, as ours do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ggml-cpu.h>
#include <ggml.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/pinning.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/workload.hpp"

/// No rows of ours are in this program.
std::span<const tessera::family* const> tessera::families() noexcept {
  return {};
}

namespace {

using namespace tessera;

struct free_context {
  void operator()(ggml_context* context) const noexcept { ggml_free(context); }
};

ggml_type type_of(dtype type) {
  if (type == dtype::f32) return GGML_TYPE_F32;
  return type == dtype::f16 ? GGML_TYPE_F16 : GGML_TYPE_BF16;
}

/// Why ggml's operator cannot express the problem; empty if it can.
std::string obstacle(const flash_problem& problem) {
  const flash_attention_options& options = problem.options;
  flash_attention_options plain;
  plain.causal = options.causal;
  plain.logits_soft_cap = options.logits_soft_cap;
  const bool tensors = problem.tensors.bias_pre.present() || problem.tensors.bias_post.present() ||
                       problem.tensors.mask.present() || problem.tensors.q_segment_ids.present() ||
                       problem.tensors.sinks.present() || problem.tensors.weights.present() ||
                       problem.tensors.seqlens_q.present() || problem.tensors.seqlens_k.present();
  if (is_packed(problem) || tensors || !(options == plain)) return "not expressed here";
  return {};
}

/// One problem as ggml graphs, one per copy of keys and values.
class ggml_call {
 public:
  ggml_call(const flash_problem& problem, const flash_attention_args& args, std::size_t copies,
            int threads) {
    const attention_sizes size = sizes_of(problem);
    const std::size_t bytes =
        copies * 8 * ggml_tensor_overhead() + copies * ggml_graph_overhead_custom(16, false) +
        bytes_of(args.q, 4) + bytes_of(args.out, 4) * copies +
        copies * (bytes_of(args.k, size_of(args.k.type)) + bytes_of(args.v, size_of(args.v.type))) +
        static_cast<std::size_t>(size.q_len * size.kv_len) * 2 + (std::size_t{1} << 20) * copies;
    context_.reset(ggml_init({bytes, nullptr, false}));
    if (!context_) throw std::runtime_error("ggml_init failed");
    ggml_tensor* q = tensor_of(args.q, GGML_TYPE_F32);
    ggml_tensor* mask =
        problem.options.causal && size.q_len > 1 ? causal_mask(size.q_len, size.kv_len) : nullptr;
    const float scale = 1.0f / std::sqrt(static_cast<float>(size.head_dim));
    const auto cap = static_cast<float>(problem.options.logits_soft_cap.value_or(0));
    for (std::size_t copy = 0; copy < copies; ++copy) {
      ggml_tensor* k = tensor_of(args.k, type_of(args.k.type));
      ggml_tensor* v = tensor_of(args.v, type_of(args.v.type));
      ggml_tensor* out = ggml_flash_attn_ext(context_.get(), q, k, v, mask, scale, 0.0f, cap);
      ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
      ggml_cgraph* graph = ggml_new_graph_custom(context_.get(), 16, false);
      ggml_build_forward_expand(graph, out);
      graphs_.push_back(graph);
      if (copy == 0) out_ = out;
    }
    plan_ = ggml_graph_plan(graphs_[0], threads, nullptr);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }

  bool run(std::size_t index) {
    return ggml_graph_compute(graphs_[index % graphs_.size()], &plan_) == GGML_STATUS_SUCCESS;
  }

  /// Writes the result, which ggml keeps in f32 and in our layout, in the precision of `out`.
  void store(const tensor_view& out) const {
    const auto* from = static_cast<const float*>(out_->data);
    const auto write = [&]<class Element>(Element* to) {
      for (std::int64_t i = 0; i < out.elements(); ++i) to[i] = static_cast<Element>(from[i]);
    };
    if (out.type == dtype::f32) write(static_cast<float*>(out.data));
    if (out.type == dtype::f16) write(static_cast<f16*>(out.data));
    if (out.type == dtype::bf16) write(static_cast<bf16*>(out.data));
  }

 private:
  static std::size_t bytes_of(const tensor_view& view, std::size_t element) {
    return static_cast<std::size_t>(view.elements()) * element;
  }

  /// A contiguous [batch][head][token][dim] copy; q becomes f32.
  ggml_tensor* tensor_of(const tensor_view& view, ggml_type type) {
    const auto& extent = view.extent;
    ggml_tensor* copy =
        ggml_new_tensor_4d(context_.get(), type, extent[3], extent[1], extent[2], extent[0]);
    const std::size_t element = ggml_type_size(type);
    auto* to = static_cast<char*>(copy->data);
    for (std::int64_t b = 0; b < extent[0]; ++b) {
      for (std::int64_t h = 0; h < extent[2]; ++h) {
        for (std::int64_t t = 0; t < extent[1]; ++t) {
          const std::int64_t at = b * view.stride[0] + t * view.stride[1] + h * view.stride[2];
          const auto count = static_cast<std::size_t>(extent[3]);
          if (type == type_of(view.type)) {
            std::memcpy(
                to, static_cast<const char*>(view.data) + at * static_cast<std::int64_t>(element),
                count * element);
          } else {
            for (std::size_t d = 0; d < count; ++d) {
              const auto value =
                  static_cast<float>(reference::at(view, b, t, h, static_cast<std::int64_t>(d)));
              std::memcpy(to + d * sizeof value, &value, sizeof value);
            }
          }
          to += count * element;
        }
      }
    }
    return copy;
  }

  /// Row i sees keys up to i + kv_len - q_len.
  ggml_tensor* causal_mask(std::int64_t q_len, std::int64_t kv_len) {
    ggml_tensor* mask = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, kv_len, q_len);
    auto* value = static_cast<ggml_fp16_t*>(mask->data);
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity());
    for (std::int64_t i = 0; i < q_len; ++i) {
      for (std::int64_t j = 0; j < kv_len; ++j) {
        *value++ = j <= i + kv_len - q_len ? ggml_fp16_t{0} : hidden;
      }
    }
    return mask;
  }

  std::unique_ptr<ggml_context, free_context> context_;
  std::vector<ggml_cgraph*> graphs_;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> work_;
  ggml_tensor* out_ = nullptr;
};

bench::measured_case measure(const bench::bench_case& timing) {
  bench::measured_case found;
  const result<flash_problem> problem = parse_problem<flash_problem>(timing.problem);
  found.failure = problem ? obstacle(*problem) : problem.message();
  if (!found.failure.empty()) return found;
  const bool decode = sizes_of(*problem).q_len == 1;
  const std::size_t cold = decode ? 3 * bench::last_level_cache_bytes() : 0;
  const bench::workload_of tensors(*problem, {.cold_bytes = cold});
  flash_attention_args args = tensors.args();
  const auto once = static_cast<double>(args.k.elements() + args.v.elements()) *
                    static_cast<double>(size_of(args.k.type));
  constexpr std::size_t most_copies = 64;
  const std::size_t copies =
      std::min(1 + static_cast<std::size_t>(static_cast<double>(cold) / once), most_copies);
  found = bench::described(
      PEER_VERSION, timing.threads > 0 ? timing.threads : omp_get_max_threads(), tensors, {});
  ggml_call call(*problem, args, copies, found.threads);
  if (!call.run(0)) {
    found.failure = "ggml_graph_compute failed";
    return found;
  }
  call.store(args.out);
  bench::verify(tensors, found);
  found.failure.clear();  // another library is measured, not judged
  bench::take_rounds(
      found, backend::cpu_avx512, [&](std::size_t index) { return call.run(index); },
      bench::nothing_beside{});
  return found;
}

}  // namespace

int main() {
  try {
    ggml_cpu_init();
    const bench::pinned_threads pinned;
    for (std::string line; std::getline(std::cin, line);) {
      if (line.empty() || line.front() == '#') continue;
      const bench::bench_case timing = bench::parse_case(line, "problems");
      std::printf("%s\n", bench::json_line(bench::name_of(timing), measure(timing)).c_str());
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
