// Attention on keys in pages over the problems of bench/shapes/pages.txt: each is verified against
// the definition on a sample of rows, then timed through a plan, in turn with the limit that binds
// it and with attention on the same keys and values in one piece.
#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/page_attention.hpp>
#include <tessera/families/attention/operations.hpp>

#include "bench/support/memory.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/workload.hpp"
#include "tests/reference/dense_pages.hpp"

namespace {

using namespace tessera;

bench::measured_case measure_case(const bench::bench_case& timing, const page_problem& problem) {
  const context where{.threads = timing.threads};
  const result<page_attention_plan> paged = plan(problem, where);
  if (!paged) return {.failure = paged.message()};
  const result<flash_plan> dense = plan(reference::dense_problem(problem), where);
  if (!dense) return {.failure = "beside: " + dense.message()};
  const bench::workload_wishes cold{.cold_bytes = 3 * bench::last_level_cache_bytes()};
  const bench::workload_of tensors(problem, cold);
  const bench::workload_of beside(reference::dense_problem(problem), cold);
  if (status done = paged->run(tensors.args()); !done) return {.failure = done.message()};

  bench::measured_case found =
      bench::described(paged->choice().row(), paged->threads(), tensors, timing.goal);
  if (!bench::verify(tensors, found)) return found;
  bench::take_rounds(
      found, paged->choice().instance->target,
      [&](std::size_t index) { return static_cast<bool>(paged->run(tensors.args(index))); },
      bench::call_beside{
          [&](std::size_t index) { return static_cast<bool>(dense->run(beside.args(index))); },
          found.flops});
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    constexpr std::array<std::string_view, 3> ops{"page_attention", "decode_attention",
                                                  "prefill_page_attention"};
    if (!bench::register_cases<page_problem>(TESSERA_SHAPES_DIR, ops, measure_case)) return 2;
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
