// Attention forward over the problems of bench/shapes/*.txt: each is verified against the
// definition on a sample of rows, then timed through a plan, in turn with the limit that binds it
// and with the call it is compared with. `--problems=FILE` (`-`: standard input) measures the lines
// of a file instead and answers each with one line of JSON.
#include <array>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/beside.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/workload.hpp"

namespace {

using namespace tessera;

/// One problem ready to run: its plan and its tensors.
struct prepared_call {
  flash_plan plan;
  bench::workload_of<flash_problem> tensors;

  /// The tensors of call `index`; false if the library refuses.
  bool run(std::size_t index) const { return static_cast<bool>(plan.run(tensors.args(index))); }
  const instance& row() const { return *plan.choice().instance; }
};

/// How a case's problem is planned. A case for another instruction set runs the row that a machine
/// without the wider ones would choose.
result<flash_plan> plan_of(const bench::bench_case& timing, const flash_problem& problem) {
  context circumstances{.threads = timing.threads};
  if (timing.isa.empty()) return plan(problem, circumstances);
  device_facts device = detect_device();
  device.highest = *backend_named(timing.isa);
  const result<explanation> told = explain(problem, circumstances, &device);
  if (!told) return told.failure();
  circumstances.row = told->row;
  return plan(problem, circumstances);
}

result<std::unique_ptr<prepared_call>> prepare(const bench::bench_case& timing,
                                               const flash_problem& problem) {
  result<flash_plan> made = plan_of(timing, problem);
  if (!made) return made.failure();
  // Decode reads keys and values once, in a server from memory.
  const bool decode = sizes_of(problem).q_len == 1;
  const auto lengths =
      timing.lengths == "zipf" ? bench::length_profile::zipf : bench::length_profile::equal;
  bench::workload_of tensors(
      problem,
      {.cold_bytes = decode ? 3 * bench::last_level_cache_bytes() : 0, .lengths = lengths});
  if (const status done = made->run(tensors.args()); !done) return done;
  return std::make_unique<prepared_call>(prepared_call{*std::move(made), std::move(tensors)});
}

bench::measured_case measure_case(const bench::bench_case& timing, const flash_problem& problem) {
  const auto call = prepare(timing, problem);
  if (!call) return {.failure = call.message()};
  const prepared_call& ready = **call;
  bench::measured_case found =
      bench::described(ready.plan.choice().row(), ready.plan.threads(), ready.tensors, timing.goal);
  if (!bench::verify(ready.tensors, found)) return found;
  const auto run = [&](std::size_t index) { return ready.run(index); };
  const backend target = ready.row().target;
  if (timing.beside.empty()) {
    bench::take_rounds(found, target, run, bench::nothing_beside{});
    return found;
  }
  const auto [how, other] = bench::beside_of(timing, problem);
  const auto beside = prepare(how, other);
  if (!beside) {
    found.failure = "beside: " + beside.message();
    return found;
  }
  bench::take_rounds(found, target, run,
                     bench::call_beside{[&](std::size_t index) { return (*beside)->run(index); },
                                        (*beside)->tensors.work().flops});
  return found;
}

/// Answers the lines of `input` one by one.
int answer_problems(std::istream& input) {
  static_cast<void>(this_device());  // counts the processors that this process may use
  const bench::pinned_threads pinned;
  bool failed = false;
  for (std::string line; std::getline(input, line);) {
    if (line.empty() || line.front() == '#') continue;
    const bench::bench_case timing = bench::parse_case(line, "problems");
    const result<flash_problem> problem = parse_problem<flash_problem>(timing.problem);
    bench::measured_case found;
    found.failure = problem ? "" : problem.message();
    if (problem) found = measure_case(timing, *problem);
    failed = failed || !found.failure.empty();
    std::printf("%s\n", bench::json_line(bench::name_of(timing), found).c_str());
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    constexpr std::string_view flag = "--problems=";
    if (argc == 2 && std::string_view(argv[1]).starts_with(flag)) {
      const std::string path(std::string_view(argv[1]).substr(flag.size()));
      if (path == "-") return answer_problems(std::cin);
      std::ifstream file(path);
      if (!file) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 2;
      }
      return answer_problems(file);
    }
    constexpr std::array<std::string_view, 3> ops{"flash_attention", "attention",
                                                  "scaled_dot_product_attention"};
    if (!bench::register_cases<flash_problem>(TESSERA_SHAPES_DIR, ops, measure_case)) return 2;
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
