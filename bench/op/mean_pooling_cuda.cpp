// Mean pooling on the first GPU, over the problems of bench/shapes/cuda/*.txt: each is verified
// against the definition on some columns of every sequence, then timed through a plan by the clock
// of the GPU, in turn with the memory's limit: reading, for gradients copying.
//   --shapes=FOLDER  other problems     --every-row  all rows that take a problem, not the chosen
//   one
// Without a GPU it says so and ends with status 77.
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/device_machine.hpp"
#include "bench/support/device_mirror.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/pooling_workload.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

using machine = bench::device_machine;

/// Seconds of a call, the mean of so many that each use another piece of memory.
result<double> seconds_of(const mean_pooling_plan& plan,
                          const std::vector<mean_pooling_args>& calls,
                          bench::gpu_stopwatch& watch) {
  const result<double> took = watch.seconds_of([&] {
    for (const mean_pooling_args& one : calls) {
      if (status done = plan.run(one); !done) return done;
    }
    return status();
  });
  if (!took) return took.failure();
  return *took / static_cast<double>(calls.size());
}

status take_rounds(const mean_pooling_plan& plan, std::vector<mean_pooling_args> calls,
                   bool backward, machine& on, bench::alternation& taken) {
  const bench::alternation_budget budget{.min_rounds = 5, .max_rounds = 100, .seconds = 0.3};
  const double begin = bench::now_seconds();
  result<double> took = seconds_of(plan, calls, *on.watch);  // warms up
  while (took &&
         !budget.is_spent(taken.rounds.size(), taken.rounds.size(), bench::now_seconds() - begin)) {
    took = seconds_of(plan, calls, *on.watch);
    const result<double> limit = backward ? on.probe.copy_gbytes() : on.probe.read_gbytes();
    if (!limit) return limit.failure();
    if (took) taken.rounds.push_back({.seconds = *took, .limit = *limit});
  }
  return took ? status() : took.failure();
}

status measure(const mean_pooling_problem& problem, const mean_pooling_plan& plan, machine& on,
               bench::measured_case& found) {
  const bool backward = is_backward(problem.op);
  const bench::pooling_workload work(problem, 3 * static_cast<std::size_t>(on.facts.l2_bytes));
  bench::device_mirror there(machine::gpu, on.watch->stream());
  for (const auto& block : work.blocks()) {
    if (status done = there.add(block); !done) return done;
  }
  const auto args = [&](std::size_t round) {
    mean_pooling_args one = work.args(round);
    for (tensor_view& view : std::span(tensors_of(one), sizeof one / sizeof(tensor_view))) {
      view = there.at(view);
    }
    return one;
  };
  if (status done = plan.run(args(0)); !done) return done;
  for (const auto& block : work.blocks()) {
    if (status done = there.fetch(block); !done) return done;
  }
  const support::comparison verdict = bench::verify(problem, work.args());
  found.error = verdict.error;
  found.error_bound = verdict.bound;
  found.bytes = work.bytes();
  const mean_pooling_sizes sizes = demand_of(problem).sizes;
  found.flops = static_cast<double>(sizes.tokens) * static_cast<double>(sizes.columns);
  if (!verdict.passed) {
    return {status_code::invalid_argument,
            support::sentence_of(verdict, "result", {dtype::f64, 1, {sizes.columns}})};
  }
  std::vector<mean_pooling_args> calls;
  for (std::size_t round = 0; round < (found.bytes < 1e8 ? 50u : 4u); ++round) {
    calls.push_back(args(round));
  }
  bench::alternation taken;
  if (status done = take_rounds(plan, std::move(calls), backward, on, taken); !done) return done;
  bench::summarise(found, taken, true, {}, 0);
  return {};
}

/// `row`: the one to take; empty: the chosen one.
bench::measured_case measure_case(const bench::bench_case& one, const mean_pooling_problem& problem,
                                  std::string_view row, machine& on) {
  const auto made =
      plan(problem, {.row = row, .device = machine::gpu, .stream = on.watch->stream()});
  if (!made) return {.failure = made.message()};
  bench::measured_case found;
  found.row = std::string(made->choice().row());
  found.threads = made->threads();
  found.goal = one.goal;
  found.failure = measure(problem, *made, on, found).message();
  return found;
}

/// The rows to measure a problem with: an empty name stands for the chosen one.
std::vector<std::string_view> rows_for(const mean_pooling_problem& problem, bool every) {
  if (!every) return {""};
  std::vector<std::string_view> rows;
  for (const instance& row : mean_pooling_registry()) {
    const bool fits = mean_pooling_record.runs(row.config, demand(demand_of(problem)));
    if (fits && is_cuda(row.target)) rows.push_back(row.name);
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    constexpr std::string_view shapes_flag = "--shapes=";
    std::string shapes = TESSERA_SHAPES_DIR "/cuda";
    bool every_row = false;
    std::erase_if(arguments, [&](std::string_view text) {
      const bool names_shapes = text.starts_with(shapes_flag);
      if (names_shapes) shapes = text.substr(shapes_flag.size());
      every_row = every_row || text == "--every-row";
      return names_shapes || text == "--every-row";
    });
    result<machine> opened = machine::open();
    if (!opened) {
      std::fprintf(stderr, "%s: no case was run: %s\n", argv[0], opened.message().c_str());
      return 77;
    }
    machine on = *std::move(opened);
    for (const bench::bench_case& one : bench::read_cases(shapes, mean_pooling_ops)) {
      const result<mean_pooling_problem> problem = parse_problem<mean_pooling_problem>(one.problem);
      if (!problem) {
        std::fprintf(stderr, "%s: %s\n", one.problem.c_str(), problem.message().c_str());
        return 2;
      }
      for (const std::string_view row : rows_for(*problem, every_row)) {
        const std::string name = bench::name_of(one) + (row.empty() ? "" : " " + std::string(row));
        benchmark::RegisterBenchmark(name.c_str(),
                                     [one, problem = *problem, row, &on](benchmark::State& state) {
                                       bench::put(state, measure_case(one, problem, row, on));
                                     })
            ->Iterations(1)
            ->UseManualTime();
      }
    }
    return bench::run_benches(static_cast<int>(arguments.size()), arguments.data(), [&] {
      return on.report("shares are of reading, of copying for gradients, in the same rounds");
    });
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
