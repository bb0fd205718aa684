// Operations that stand beside no other call: each problem of bench/shapes is verified against the
// definition on a sample of its outputs, then timed through a plan, in turn with the limit that
// binds it.
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include <tessera/spec/problem_text.hpp>

#include "bench/support/case_list.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

constexpr auto operations = std::to_array<std::string_view>({"mean_pooling",
                                                             "mean_pooling_chunks",
                                                             "mean_pooling_backward",
                                                             "mean_pooling_chunks_backward",
                                                             "ragged_decode_attention",
                                                             "unified_attention",
                                                             "chunked_prefill_paged_decode",
                                                             "ragged_page_attention_v2",
                                                             "ragged_page_attention_v3",
                                                             "kv_cache_append",
                                                             "kv_cache_copy",
                                                             "recurrent",
                                                             "gla",
                                                             "lightning_attn",
                                                             "lightning_attn_backward",
                                                             "rwkv6",
                                                             "gated_delta_rule",
                                                             "gated_delta_rule_backward",
                                                             "kernel_delta_attention",
                                                             "rwkv7",
                                                             "rwkv4",
                                                             "state_space_v1",
                                                             "state_space_v1_backward",
                                                             "state_space_v2"});

bench::measured_case measure_case(const bench::bench_case& timing, const owned_problem& problem) {
  return bench::measure_alone(timing, problem.view());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (!bench::register_cases<owned_problem>(TESSERA_SHAPES_DIR, operations, measure_case))
      return 2;
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
