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
#include <tessera/spec/flash_attention/problem_text.hpp>

#include "bench/support/beside.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/report.hpp"
#include "bench/support/rounds.hpp"
#include "bench/support/sampled_check.hpp"
#include "bench/support/work.hpp"
#include "bench/support/workload.hpp"

namespace {

using namespace tessera;

/// One problem ready to run: its plan, its tensors, what it costs on paper.
struct prepared_call {
  flash_plan plan;
  bench::workload tensors;
  bench::work counted;

  /// The tensors of call `index`; false if the library refuses.
  bool run(std::size_t index) const { return static_cast<bool>(plan.run(tensors.args(index))); }
  const flash_instance& row() const { return *plan.choice().instance; }
};

/// How a case's problem is planned. A case for another instruction set runs the row that a machine
/// without the wider ones would choose.
result<flash_plan> plan_of(const bench::bench_case& one, const flash_problem& problem) {
  context circumstances{.threads = one.threads};
  if (one.isa.empty()) return plan(problem, circumstances);
  device_facts device = detect_device();
  device.highest = *backend_named(one.isa);
  const result<explanation> told = explain(problem, circumstances, &device);
  if (!told) return told.failure();
  circumstances.row = told->row;
  return plan(problem, circumstances);
}

result<std::unique_ptr<prepared_call>> prepare(const bench::bench_case& one,
                                               const flash_problem& problem) {
  result<flash_plan> made = plan_of(one, problem);
  if (!made) return made.failure();
  // Decode reads keys and values once, in a server from memory.
  const bool decode = sizes_of(problem).q_len == 1;
  const auto lengths =
      one.lengths == "zipf" ? bench::length_profile::zipf : bench::length_profile::equal;
  bench::workload tensors(problem, decode ? 3 * bench::last_level_cache_bytes() : 0, 1, lengths);
  if (const status done = made->run(tensors.args()); !done) return done;
  const bench::work counted = bench::work_of(tensors.args(), tensors.options());
  return std::make_unique<prepared_call>(
      prepared_call{*std::move(made), std::move(tensors), counted});
}

/// Judges the sampled rows; false if they are out of bound, and says so.
bool verify(const prepared_call& call, bench::measured_case& found) {
  const flash_attention_args args = call.tensors.args();
  const support::comparison verdict = bench::sampled_check(args, call.tensors.options());
  found.error = verdict.error;
  found.error_bound = verdict.bound;
  if (!verdict.passed) {
    found.failure = support::sentence_of(verdict, "out", {dtype::f64, 1, {args.out.elements()}});
  }
  return verdict.passed;
}

bench::measured_case measure_case(const bench::bench_case& one, const flash_problem& problem) {
  bench::measured_case found;
  const auto call = prepare(one, problem);
  if (!call) {
    found.failure = call.message();
    return found;
  }
  const prepared_call& ready = **call;
  found.row = std::string(ready.plan.choice().row());
  found.threads = ready.plan.threads();
  found.flops = ready.counted.flops;
  found.bytes = ready.counted.touched_bytes;
  found.visible_pairs = ready.counted.visible_pairs;
  found.goal = one.goal;
  if (!verify(ready, found)) return found;
  const auto run = [&](std::size_t index) { return ready.run(index); };
  const backend target = ready.row().config.target;
  if (one.beside.empty()) {
    bench::take_rounds(found, target, run, bench::nothing_beside{});
    return found;
  }
  const auto [how, other] = bench::beside_of(one, problem);
  const auto beside = prepare(how, other);
  if (!beside) {
    found.failure = "beside: " + beside.message();
    return found;
  }
  bench::take_rounds(found, target, run,
                     bench::call_beside{[&](std::size_t index) { return (*beside)->run(index); },
                                        (*beside)->counted.flops});
  return found;
}

/// Answers the lines of `input` one by one.
int answer_problems(std::istream& input) {
  static_cast<void>(this_device());  // counts the processors that this process may use
  const bench::pinned_threads pinned;
  bool failed = false;
  for (std::string line; std::getline(input, line);) {
    if (line.empty() || line.front() == '#') continue;
    const bench::bench_case one = bench::parse_case(line, "problems");
    const result<flash_problem> problem = parse_problem(one.problem);
    bench::measured_case found;
    found.failure = problem ? "" : problem.message();
    if (problem) found = measure_case(one, *problem);
    failed = failed || !found.failure.empty();
    std::printf("%s\n", bench::json_line(bench::name_of(one), found).c_str());
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}

/// Registers the cases of bench/shapes; false if one is not a problem.
bool register_cases() {
  constexpr std::array<std::string_view, 3> ops{"flash_attention", "attention",
                                                "scaled_dot_product_attention"};
  for (const bench::bench_case& one : bench::read_cases(TESSERA_SHAPES_DIR, ops)) {
    const result<flash_problem> problem = parse_problem(one.problem);
    if (!problem) {
      std::fprintf(stderr, "%s: %s\n", one.problem.c_str(), problem.message().c_str());
      return false;
    }
    benchmark::RegisterBenchmark(bench::name_of(one).c_str(),
                                 [one, problem = *problem](benchmark::State& state) {
                                   bench::put(state, measure_case(one, problem));
                                 })
        ->Iterations(1)
        ->UseManualTime();
  }
  return true;
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
    if (!register_cases()) return 2;
    return bench::run_benches(argc, argv);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
