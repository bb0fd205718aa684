#include "model_measure.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/gpu_workload.hpp"
#include "bench/support/roofline.hpp"
#include "command.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

std::string subject_of(const measured_layer& layer) {
  return fmt::format("{}, {} layers, {}", layer.model, layer.asked.kind, layer.asked.name);
}

owned_problem problem_of(const measured_layer& layer, const tessera::family*& kind) {
  return value_of(parse_problem(layer.asked.text, kind), subject_of(layer));
}

void take_choice(measured_layer& layer, const operation_plan& plan) {
  layer.row = plan.choice().row();
  layer.tier = plan.choice().tier;
  layer.reason = plan.choice().reason;
}

/// Bytes that programs can still have, where the system says it.
std::size_t available_bytes() {
  std::ifstream lines("/proc/meminfo");
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view key = "MemAvailable:";
    if (!line.starts_with(key)) continue;
    const char* at = line.data() + line.find_first_not_of(' ', key.size());
    std::size_t kibibytes = 0;
    std::from_chars(at, line.data() + line.size(), kibibytes);
    return kibibytes * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

/// Of the tensors that the problem's text has.
std::size_t bytes_of(const problem_view& problem) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < problem.op->form->tensors.size(); ++i) {
    const tensor_view& view = problem.tensors[i];
    if (view.rank > 0) bytes += static_cast<std::size_t>(view.elements()) * size_of(view.type);
  }
  return bytes;
}

/// Results, gradients and scratch memory come to the operands.
bool has_room(const measured_layer& layer, const problem_view& problem) {
  const std::size_t needed = 2 * bytes_of(problem), available = available_bytes();
  if (needed <= available) return true;
  print_message(fmt::format("{}, {}: needs {:.1f} GB, {:.1f} GB of memory are free: not measured",
                            subject_of(layer), name_of(layer.asked.phase),
                            static_cast<double>(needed) * 1e-9,
                            static_cast<double>(available) * 1e-9));
  return false;
}

/// Seconds the call would take at the ceilings.
void compare_with(const limits_of_device& limits, const operation_plan& plan,
                  measured_layer& layer) {
  const problem_view problem = plan.problem();
  const dtype type = problem.tensors[problem.op->order[0]].type;
  const double peak = limits.peak_gflops(plan.choice().instance->target, type);
  const double computing = layer.counted.flops / peak * 1e-9;
  const double reading = layer.counted.bytes / limits.read_gbytes() * 1e-9;
  layer.memory_bound = reading > computing;
  layer.of_ceiling = std::max(computing, reading) / layer.time.median;
}

void measure_here(measured_layer& layer, const operation_plan& plan, const std::string& subject) {
  const bool cold = is_cached(layer.asked.phase);
  const bench::workload work(plan.problem(),
                             {.cold_bytes = cold ? 3 * bench::last_level_cache_bytes() : 0});
  require(plan.run(work.tensors().data()), subject);  // warms up what is timed below
  layer.error = work.verdict().found;
  layer.time = bench::measure(
      {.warm_ups = 0, .min_rounds = 2, .seconds = 0.25},
      [&](std::size_t round) { require(plan.run(work.tensors(round).data()), subject); });
  layer.counted = work.work();
}

void measure_on_gpu(measured_layer& layer, const operation_plan& plan, bench::gpu_stopwatch& watch,
                    const std::string& subject) {
  const result<const device_facts*> facts = find_device(plan.device());
  if (!facts) require(facts.failure(), subject);
  const std::size_t cache =
      is_cached(layer.asked.phase) ? static_cast<std::size_t>((*facts)->l2_bytes) : 0;
  auto work = value_of(bench::gpu_workload<bench::workload>::make(
                           bench::workload(plan.problem(), {.cold_bytes = 3 * cache}), watch),
                       subject);
  require(plan.run(work.args(0).data()), subject);
  const bench::workload& here = *value_of(work.fetched(), subject);
  layer.error = here.verdict().found;
  layer.counted = here.work();
  layer.time = value_of(work.measure([&](const std::vector<tensor_view>& tensors) {
    return plan.run(tensors.data());
  }),
                        subject);
}

}  // namespace

double limits_of_device::peak_gflops(backend target, dtype type) const {
  if (device.kind == device_kind::cuda) return gpu.peak_gflops(type);
  return bench::roofs_of(target, cpu).peak_gflops;
}

double limits_of_device::read_gbytes() const {
  return device.kind == device_kind::cuda ? gpu.read_gbytes : cpu.read_gbytes;
}

limits_of_device measure_limits(const execution_flags& flags, device_id device) {
  limits_of_device limits;
  limits.device = device;
  if (device.kind == device_kind::cpu) {
    limits.cpu = bench::measure_ceilings(flags.threads);
    return limits;
  }
  const result<bench::device_ceilings> found = bench::measure_ceilings_of(device);
  if (!found) throw failure("--backend: " + found.message(), exit_status::no);
  limits.gpu = *found;
  return limits;
}

void choose_row(measured_layer& layer, const execution_flags& flags, device_id device) {
  const tessera::family* kind = nullptr;
  const owned_problem problem = problem_of(layer, kind);
  take_choice(layer, plan_for(*kind, problem.view(), flags, device, nullptr, subject_of(layer)));
}

void measure(measured_layer& layer, const execution_flags& flags, const limits_of_device& limits) {
  const std::string subject = subject_of(layer);
  const tessera::family* kind = nullptr;
  const owned_problem problem = problem_of(layer, kind);
  std::optional<bench::gpu_stopwatch> watch;
  if (limits.device.kind == device_kind::cuda) {
    watch = value_of(bench::gpu_stopwatch::make(limits.device), subject);
  }
  const operation_plan plan = plan_for(*kind, problem.view(), flags, limits.device,
                                       watch ? watch->stream() : nullptr, subject);
  take_choice(layer, plan);
  if (!has_room(layer, problem.view())) return;
  if (watch) {
    measure_on_gpu(layer, plan, *watch, subject);
  } else {
    measure_here(layer, plan, subject);
  }
  layer.measured = true;
  compare_with(limits, plan, layer);
}

}  // namespace tessera::tool
