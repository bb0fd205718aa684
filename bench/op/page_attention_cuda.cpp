// Attention over pages on the first GPU, over the problems of bench/shapes/cuda/*.txt: each is
// verified against the definition on a sample of rows, then timed through a plan by the clock of
// the GPU, in turn with reading memory and with attention on the same keys and values in one piece.
//   --shapes=FOLDER  other problems
// Without a GPU it says so and ends with status 77.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/page_attention.hpp>
#include <tessera/api/unified_attention.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/device_machine.hpp"
#include "bench/support/gpu_workload.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "tests/reference/dense_pages.hpp"

namespace {

using namespace tessera;

using machine = bench::device_machine;

/// A plan and its tensors on the GPU, with as many calls of a round as are worth timing.
template <class Problem>
struct ready_call {
  basic_plan<Problem> plan;
  bench::gpu_workload_of<Problem> tensors;
  std::size_t calls = 1;

  result<double> seconds() {
    return tensors.seconds_of(calls, [this](const auto& args) { return plan.run(args); });
  }
};

template <class Problem>
result<ready_call<Problem>> prepare(const Problem& problem, machine& on) {
  result<basic_plan<Problem>> settled =
      plan(problem, {.device = machine::gpu, .stream = on.watch->stream()});
  if (!settled) return settled.failure();
  const bench::workload_wishes cold{.cold_bytes = 3 * static_cast<std::size_t>(on.facts.l2_bytes)};
  auto tensors =
      bench::gpu_workload_of<Problem>::make(bench::workload_of(problem, cold), *on.watch);
  if (!tensors) return tensors.failure();
  ready_call<Problem> ready{*std::move(settled), *std::move(tensors)};
  const auto calls =
      ready.tensors.group_size([&](const auto& args) { return ready.plan.run(args); });
  if (!calls) return calls.failure();
  ready.calls = *calls;
  return ready;
}

/// The same batch with keys and values in one piece, all sequences full.
flash_problem contiguous(const page_problem& problem) {
  return reference::dense_problem(problem);
}
flash_problem contiguous(const unified_problem& problem) {
  const unified_attention_args& paged = problem.tensors;
  const auto axis = [&](char letter) { return pool_axis(problem.options.pool_layout, letter); };
  const std::int64_t keys = paged.block_table.extent[0] * paged.block_table.extent[1] *
                            page_tokens(paged.k_pages, problem.options);
  const auto in_one_piece = [&](const tensor_view& pool) {
    // Pools of 8 bits stand beside keys and values of q's type.
    return shaped(paged.q.type, {keys, pool.extent[axis('H')], pool.extent[axis('D')]});
  };
  flash_problem packed;
  packed.tensors.q = paged.q;
  packed.tensors.k = in_one_piece(paged.k_pages);
  packed.tensors.v = in_one_piece(paged.v_pages);
  packed.tensors.cu_seqlens_q = packed.tensors.cu_seqlens_k = paged.cu_seqlens_q;
  packed.options.causal = true;
  packed.options.softmax_scale = problem.options.softmax_scale;
  packed.options.window_left = problem.options.window_left;
  packed.options.logits_soft_cap = problem.options.logits_soft_cap;
  return packed;
}

/// The first round's results against the definition.
template <class Problem>
status verify(ready_call<Problem>& call, const bench::bench_case& timing,
              bench::measured_case& found) {
  if (status done = call.plan.run(call.tensors.args(0)); !done) return done;
  const auto computed = call.tensors.fetched();
  if (!computed) return computed.failure();
  found = bench::described(call.plan.choice().row(), call.plan.threads(), **computed, timing.goal);
  bench::verify(**computed, found);
  return {};
}

template <class Problem>
bench::measured_case measure_case(const bench::bench_case& timing, const Problem& problem,
                                  machine& on) {
  auto paged = prepare(problem, on);
  if (!paged) return {.failure = paged.message()};
  auto dense = prepare(contiguous(problem), on);
  if (!dense) return {.failure = "beside: " + dense.message()};
  bench::measured_case found;
  if (status done = verify(*paged, timing, found); !done) return {.failure = done.message()};
  if (!found.failure.empty()) return found;
  const bench::alternation_budget budget{.min_rounds = 5, .max_rounds = 100, .seconds = 0.3};
  bench::alternation taken;
  const double begin = bench::now_seconds();
  while (!budget.is_spent(taken.rounds.size(), taken.rounds.size(), bench::now_seconds() - begin)) {
    const result<double> ours = paged->seconds();
    const result<double> beside = dense->seconds();
    const result<double> limit = on.probe.read_gbytes();
    if (!ours || !beside || !limit) {
      found.failure = ours.message() + beside.message() + limit.message();
      return found;
    }
    taken.rounds.push_back({.seconds = *ours, .beside_seconds = *beside, .limit = *limit});
  }
  bench::summarise(found, taken, true, {}, found.flops);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    constexpr std::string_view shapes_flag = "--shapes=";
    std::string shapes = TESSERA_SHAPES_DIR "/cuda";
    std::erase_if(arguments, [&](std::string_view text) {
      if (text.starts_with(shapes_flag)) shapes = text.substr(shapes_flag.size());
      return text.starts_with(shapes_flag);
    });
    result<machine> opened = machine::open();
    if (!opened) {
      std::fprintf(stderr, "%s: no case was run: %s\n", argv[0], opened.message().c_str());
      return 77;
    }
    machine on = *std::move(opened);
    const auto measure = [&on](const bench::bench_case& timing, const auto& problem) {
      return measure_case(timing, problem, on);
    };
    constexpr std::array<std::string_view, 3> ops{"page_attention", "decode_attention",
                                                  "prefill_page_attention"};
    constexpr std::array<std::string_view, 2> batches{"unified_attention",
                                                      "chunked_prefill_paged_decode"};
    if (!bench::register_cases<page_problem>(shapes, ops, measure)) return 2;
    if (!bench::register_cases<unified_problem>(shapes, batches, measure)) return 2;
    return bench::run_benches(static_cast<int>(arguments.size()), arguments.data(), [&] {
      return on.report("shares are of reading in the same rounds, beside: keys in one piece");
    });
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
