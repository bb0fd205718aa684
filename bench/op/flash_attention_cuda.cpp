// Attention forward on the first GPU, over the problems of bench/shapes/cuda/*.txt: each is
// verified against the definition on a sample of rows, then timed through a plan by the clock of
// the GPU, in turn with the limit that binds it and with the call it is compared with.
//   --shapes=FOLDER  other problems     --quick  few rounds a case
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
#include <tessera/families/attention/operations.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/beside.hpp"
#include "bench/support/case_list.hpp"
#include "bench/support/device_ceilings.hpp"
#include "bench/support/device_matmul.hpp"
#include "bench/support/gpu_workload.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/operation_case.hpp"
#include "bench/support/registered_cases.hpp"
#include "bench/support/report.hpp"

namespace {

using namespace tessera;

constexpr int no_gpu = 77;

struct bench_flags {
  std::string shapes = TESSERA_SHAPES_DIR "/cuda";
  bool quick = false;
};

/// The GPU and what it does at most. Made once, before the cases.
struct machine {
  device_facts facts{};
  bench::gpu_stopwatch watch;
  std::unique_ptr<bench::device_probe> probe{};
  bench::device_ceilings limits{};
  double matmul_gflops = 0;
  std::string no_matmul{};  ///< why there is no such figure

  bench::roofs roofs_of(dtype type) const { return {limits.peak_gflops(type), limits.read_gbytes}; }

  /// The binding limit, measured now; of the same kind as `roofs_of`.
  result<double> limit(dtype type, bool reading) {
    constexpr int steps = 2000;
    if (reading) return probe->read_gbytes();
    if (type != dtype::f32) return probe->product_gflops(bench::device_product::mma_bf16, steps);
    if (limits.fma_f32_gflops >= limits.mma_tf32_gflops / 3) {
      return probe->product_gflops(bench::device_product::fma_f32, steps);
    }
    const auto rate = probe->product_gflops(bench::device_product::mma_tf32, steps);
    if (!rate) return rate;
    return *rate / 3;
  }
};

result<std::unique_ptr<machine>> open_machine(device_id gpu) {
  const result<const device_facts*> facts = find_device(gpu);
  if (!facts) return facts.failure();
  result<bench::gpu_stopwatch> watch = bench::gpu_stopwatch::make(gpu);
  if (!watch) return watch.failure();
  auto made = std::make_unique<machine>(machine{.facts = **facts, .watch = *std::move(watch)});
  result<double> matmul = bench::measure_matmul(made->watch);
  if (matmul) made->matmul_gflops = *matmul;
  made->no_matmul = matmul.message();
  result<bench::device_probe> probe = bench::device_probe::make(made->watch);
  if (!probe) return probe.failure();
  made->probe = std::make_unique<bench::device_probe>(*std::move(probe));
  const result<bench::device_ceilings> limits = bench::measure_ceilings(*made->probe);
  if (!limits) return limits.failure();
  made->limits = *limits;
  return made;
}

/// One problem ready to run: its plan and its tensors.
struct prepared_call {
  flash_plan plan;
  bench::gpu_workload_of<flash_problem> tensors;
  const bench::workload* computed = nullptr;  ///< with the results of the first run, on the host
  std::size_t group = 1;

  status run(const flash_attention_args& args) const { return plan.run(args); }
  result<double> seconds() {
    return tensors.seconds_of(group, [this](const auto& args) { return run(args); });
  }
};

result<std::unique_ptr<prepared_call>> prepare(const bench::bench_case& timing,
                                               const flash_problem& problem, machine& on) {
  result<flash_plan> made =
      plan(problem, context{.device = on.facts.id(), .stream = on.watch.stream()});
  if (!made) return made.failure();
  // Decode reads keys and values once, in a server from memory.
  const bool decode = sizes_of(problem).q_len == 1;
  const auto cache = static_cast<std::size_t>(on.facts.l2_bytes);
  const auto lengths =
      timing.lengths == "zipf" ? bench::length_profile::zipf : bench::length_profile::equal;
  auto tensors = bench::gpu_workload_of<flash_problem>::make(
      bench::workload_of(problem, {.cold_bytes = decode ? 3 * cache : 0, .lengths = lengths}),
      on.watch);
  if (!tensors) return tensors.failure();
  auto call = std::make_unique<prepared_call>(
      prepared_call{.plan = *std::move(made), .tensors = *std::move(tensors)});
  if (status done = call->run(call->tensors.args(0)); !done) return done;
  const auto computed = call->tensors.fetched();
  if (!computed) return computed.failure();
  call->computed = *computed;
  const auto group =
      call->tensors.group_size([&](const flash_attention_args& args) { return call->run(args); });
  if (!group) return group.failure();
  call->group = *group;
  return call;
}

/// Rounds of the call, the call beside it and the limit, in turn.
status take_rounds(prepared_call& call, prepared_call* beside, dtype type, bool reading, bool quick,
                   machine& on, bench::alternation& taken) {
  const bench::alternation_budget budget{
      .min_rounds = 5, .max_rounds = quick ? 15u : 200u, .seconds = quick ? 0.06 : 0.5};
  const double begin = bench::now_seconds();
  while (!budget.is_spent(taken.rounds.size(), taken.rounds.size(), bench::now_seconds() - begin)) {
    bench::alternated_round round;
    const bool beside_first = beside != nullptr && taken.rounds.size() % 2 == 1;
    for (int turn = 0; turn < 2; ++turn) {
      const bool ours = (turn == 1) == beside_first;
      if (!ours && beside == nullptr) continue;
      const result<double> took = (ours ? &call : beside)->seconds();
      if (!took) return took.failure();
      (ours ? round.seconds : round.beside_seconds) = *took;
    }
    const result<double> rate = on.limit(type, reading);
    if (!rate) return rate.failure();
    round.limit = *rate;
    taken.rounds.push_back(round);
  }
  return {};
}

bench::measured_case measure_case(const bench::bench_case& timing, const flash_problem& problem,
                                  bool quick, machine& on) {
  const auto call = prepare(timing, problem, on);
  if (!call) return {.failure = call.message()};
  prepared_call& ready = **call;
  bench::measured_case found = bench::described(ready.plan.choice().row(), ready.plan.threads(),
                                                *ready.computed, timing.goal);
  found.matmul_gflops = problem.tensors.q.type == dtype::f32 ? 0 : on.matmul_gflops;
  if (!bench::verify(*ready.computed, found)) return found;
  std::unique_ptr<prepared_call> beside;
  if (!timing.beside.empty()) {
    const auto [how, other] = bench::beside_of(timing, problem);
    auto made = prepare(how, other, on);
    if (!made) {
      found.failure = "beside: " + made.message();
      return found;
    }
    beside = *std::move(made);
  }
  const bench::roofs above = on.roofs_of(problem.tensors.q.type);
  const bool reading = bench::bound_by_reading(found.flops, found.bytes, above);
  bench::alternation taken;
  const status done =
      take_rounds(ready, beside.get(), problem.tensors.q.type, reading, quick, on, taken);
  if (!done) {
    found.failure = "a timed run: " + done.message();
    return found;
  }
  bench::summarise(found, taken, reading, above, beside ? beside->computed->work().flops : 0);
  return found;
}

bench::machine_report report_of(const machine& on, bool quick) {
  const auto [driver, runtime] = find_cuda_versions();
  const bench::device_ceilings& limits = on.limits;
  bench::machine_report report;
  report.facts = {{"processor", std::string(on.facts.product_name())},
                  {"multiprocessors", std::to_string(on.facts.multiprocessors)},
                  {"driver", std::to_string(driver)},
                  {"runtime", std::to_string(runtime)},
                  {"quick", quick ? "true" : "false"},
                  {"buffer_bytes", std::to_string(limits.buffer_bytes)}};
  report.add("fma_f32_gflops", limits.fma_f32_gflops);
  report.add("mma_bf16_gflops", limits.mma_bf16_gflops);
  report.add("mma_tf32_gflops", limits.mma_tf32_gflops);
  if (on.matmul_gflops > 0) report.add("matmul_bf16_gflops", on.matmul_gflops);
  report.add("read_gbytes", limits.read_gbytes);
  report.add("copy_gbytes", limits.copy_gbytes);
  char text[256];
  std::snprintf(text, sizeof text,
                "ceilings, %d multiprocessors: mma.sync bf16 %.0f GFLOP/s, tf32 %.0f; f32 FMA "
                "%.0f; read %.0f GB/s, copy %.0f; ",
                on.facts.multiprocessors, limits.mma_bf16_gflops, limits.mma_tf32_gflops,
                limits.fma_f32_gflops, limits.read_gbytes, limits.copy_gbytes);
  report.ceilings = text;
  report.ceilings +=
      on.matmul_gflops > 0
          ? "cuBLAS bf16 " + std::to_string(static_cast<long>(on.matmul_gflops)) + " GFLOP/s"
          : "no matmul: " + on.no_matmul;
  return report;
}

/// Takes this program's own flags out of the arguments.
bench_flags flags_of(std::vector<char*>& arguments) {
  constexpr std::string_view shapes = "--shapes=";
  bench_flags flags;
  std::erase_if(arguments, [&](const char* argument) {
    const std::string_view text(argument);
    if (text.starts_with(shapes)) flags.shapes = text.substr(shapes.size());
    flags.quick = flags.quick || text == "--quick";
    return text.starts_with(shapes) || text == "--quick";
  });
  return flags;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    const bench_flags flags = flags_of(arguments);
    const auto opened = open_machine({device_kind::cuda, 0});
    if (!opened) {
      std::fprintf(stderr, "%s: no case was run: %s\n", argv[0], opened.message().c_str());
      return no_gpu;
    }
    machine& on = **opened;
    constexpr std::array<std::string_view, 1> ops{"flash_attention"};
    const auto measure = [&](const bench::bench_case& timing, const flash_problem& problem) {
      return measure_case(timing, problem, flags.quick, on);
    };
    if (!bench::register_cases<flash_problem>(flags.shapes, ops, measure)) return 2;
    return bench::run_benches(static_cast<int>(arguments.size()), arguments.data(),
                              [&] { return report_of(on, flags.quick); });
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 2;
  }
}
