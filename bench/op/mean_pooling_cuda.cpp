// Mean pooling on the first GPU, over the problems of bench/shapes/cuda/*.txt: each is verified
// against the definition on some columns of every sequence, then timed through a plan by the clock
// of the GPU, in turn with the memory's limit: reading, for gradients copying.
//   --shapes=FOLDER  other problems     --every-row  all rows that take a problem, not the chosen
//   one
// Without a GPU it says so and ends with status 77.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/device_machine.hpp"
#include "bench/support/gpu_workload.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

using machine = bench::device_machine;

using gpu_tensors = bench::gpu_workload_of<mean_pooling_problem>;

status take_rounds(const mean_pooling_plan& plan, gpu_tensors& tensors, std::size_t calls,
                   bool backward, machine& on, bench::alternation& taken) {
  const bench::alternation_budget budget{.min_rounds = 5, .max_rounds = 100, .seconds = 0.3};
  const double begin = bench::now_seconds();
  const auto seconds = [&] {
    return tensors.seconds_of(calls, [&](const mean_pooling_args& args) { return plan.run(args); });
  };
  result<double> took = seconds();  // warms up
  while (took &&
         !budget.is_spent(taken.rounds.size(), taken.rounds.size(), bench::now_seconds() - begin)) {
    took = seconds();
    const result<double> limit = backward ? on.probe.copy_gbytes() : on.probe.read_gbytes();
    if (!limit) return limit.failure();
    if (took) taken.rounds.push_back({.seconds = *took, .limit = *limit});
  }
  return took ? status() : took.failure();
}

status measure(const mean_pooling_problem& problem, const mean_pooling_plan& plan,
               const bench::case_goal& goal, machine& on, bench::measured_case& found) {
  const bench::workload_wishes cold{.cold_bytes = 3 * static_cast<std::size_t>(on.facts.l2_bytes)};
  auto tensors = gpu_tensors::make(bench::workload_of(problem, cold), *on.watch);
  if (!tensors) return tensors.failure();
  if (status done = plan.run(tensors->args(0)); !done) return done;
  const auto computed = tensors->fetched();
  if (!computed) return computed.failure();
  found = bench::described(plan.choice().row(), plan.threads(), **computed, goal);
  if (!bench::verify(**computed, found)) return {};
  bench::alternation taken;
  status done =
      take_rounds(plan, *tensors, found.bytes < 1e8 ? 50 : 4, is_backward(problem.op), on, taken);
  if (done) bench::summarise(found, taken, true, {}, 0);
  return done;
}

/// `row`: the one to take; empty: the chosen one.
bench::measured_case measure_case(const bench::bench_case& timing,
                                  const mean_pooling_problem& problem, std::string_view row,
                                  machine& on) {
  const auto made =
      plan(problem, {.row = row, .device = machine::gpu, .stream = on.watch->stream()});
  if (!made) return {.failure = made.message()};
  bench::measured_case found;
  if (const status done = measure(problem, *made, timing.goal, on, found); !done) {
    found.failure = done.message();
  }
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
    std::vector<std::string_view> names;
    for (const operation& op : mean_pooling_table::operations) names.push_back(op.name);
    for (const bench::bench_case& timing : bench::read_cases(shapes, names)) {
      const result<mean_pooling_problem> problem =
          parse_problem<mean_pooling_problem>(timing.problem);
      if (!problem) {
        std::fprintf(stderr, "%s: %s\n", timing.problem.c_str(), problem.message().c_str());
        return 2;
      }
      for (const std::string_view row : rows_for(*problem, every_row)) {
        const std::string name =
            bench::name_of(timing) + (row.empty() ? "" : " " + std::string(row));
        benchmark::RegisterBenchmark(
            name.c_str(),
            [timing, problem = *problem, row, &on](benchmark::State& state) {
              bench::put(state, measure_case(timing, problem, row, on));
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
