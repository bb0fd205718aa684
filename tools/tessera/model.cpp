// `tessera model`: what the layers of a model ask, how fast this machine answers, and how exactly.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/ceilings.hpp"
#include "bench/support/device_ceilings.hpp"
#include "bench/support/gpu_workload.hpp"
#include "bench/support/roofline.hpp"
#include "bench/support/timing.hpp"
#include "bench/support/workload.hpp"
#include "command.hpp"
#include "device_file.hpp"
#include "execution.hpp"
#include "json.hpp"
#include "model_description.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct model_flags : common_flags {
  std::vector<std::string> files;
  std::vector<std::string> phases{"prefill", "decode"};
  std::int64_t tokens = 0;  ///< 0: 2048 for prefill, 8192 for the others, the model's limit at most
  std::int64_t batch = 1;
  std::string dtype;  ///< empty: the model's own
  execution_flags execution;
};

/// One measurement: a kind of layer in a phase.
struct measured_layer {
  std::string model;
  std::string kind;
  std::int64_t layers = 0;
  model_phase phase = model_phase::prefill;
  std::string problem;
  std::string row;
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  bench::timing time{};
  reference::call_work counted{};
  bool memory_bound = false;  ///< the ceiling that would be reached first is bandwidth
  double of_ceiling = 0;      ///< time at that ceiling over measured time
  support::comparison error{};

  double rate() const {
    return (memory_bound ? counted.bytes : counted.flops) / time.median * 1e-9;
  }
};

std::vector<measured_layer> layers_of(const model_description& model, const model_flags& flags) {
  std::vector<measured_layer> layers;
  for (const model_problem& asked :
       problems_of(model, phases_named(flags.phases), flags.batch, flags.tokens)) {
    measured_layer one;
    one.model = model.name;
    one.kind = asked.kind.name;
    one.layers = asked.kind.layers;
    one.phase = asked.phase;
    one.problem = asked.text;
    layers.push_back(std::move(one));
  }
  return layers;
}

/// Measured ceilings of the device that the layers run on.
struct limits_of_device {
  device_id device{};
  bench::ceilings cpu{};
  bench::device_ceilings gpu{};

  /// `type` is that of the problem's first tensor.
  double peak_gflops(backend target, dtype type) const {
    if (device.kind == device_kind::cuda) return gpu.peak_gflops(type);
    return bench::roofs_of(target, cpu).peak_gflops;
  }
  double read_gbytes() const {
    return device.kind == device_kind::cuda ? gpu.read_gbytes : cpu.read_gbytes;
  }
};

/// Seconds the call would take at the ceilings.
void compare_with(const limits_of_device& limits, const operation_plan& plan, measured_layer& one) {
  const problem_view problem = plan.problem();
  const dtype type = problem.tensors[problem.op->order[0]].type;
  const double peak = limits.peak_gflops(plan.choice().instance->target, type);
  const double computing = one.counted.flops / peak * 1e-9;
  const double reading = one.counted.bytes / limits.read_gbytes() * 1e-9;
  one.memory_bound = reading > computing;
  one.of_ceiling = std::max(computing, reading) / one.time.median;
}

/// A server's keys, values and states come from memory, not from the last-level cache.
bool comes_from_memory(model_phase phase) {
  return phase == model_phase::decode || phase == model_phase::append;
}

void measure_here(measured_layer& one, const operation_plan& plan, const std::string& subject) {
  const std::size_t cold = comes_from_memory(one.phase) ? 3 * bench::last_level_cache_bytes() : 0;
  const bench::workload work(plan.problem(), {.cold_bytes = cold});
  require(plan.run(work.tensors().data()), subject);  // warms up what is timed below
  one.error = work.verdict().found;
  one.time = bench::measure(
      {.warm_ups = 0, .min_rounds = 2, .seconds = 0.25},
      [&](std::size_t round) { require(plan.run(work.tensors(round).data()), subject); });
  one.counted = work.work();
}

void measure_on_gpu(measured_layer& one, const operation_plan& plan, bench::gpu_stopwatch& watch,
                    const std::string& subject) {
  const result<const device_facts*> facts = find_device(plan.device());
  if (!facts) require(facts.failure(), subject);
  const std::size_t cache =
      comes_from_memory(one.phase) ? static_cast<std::size_t>((*facts)->l2_bytes) : 0;
  auto work = value_of(bench::gpu_workload<bench::workload>::make(
                           bench::workload(plan.problem(), {.cold_bytes = 3 * cache}), watch),
                       subject);
  require(plan.run(work.args(0).data()), subject);
  const bench::workload& here = *value_of(work.fetched(), subject);
  one.error = here.verdict().found;
  one.counted = here.work();
  one.time = value_of(work.measure([&](const std::vector<tensor_view>& tensors) {
    return plan.run(tensors.data());
  }),
                      subject);
}

void measure(measured_layer& one, const model_flags& flags, const limits_of_device& limits) {
  const std::string subject = fmt::format("{}, {} layers", one.model, one.kind);
  const tessera::family* kind = nullptr;
  const owned_problem problem = value_of(parse_problem(one.problem, kind), subject);
  std::optional<bench::gpu_stopwatch> watch;
  if (limits.device.kind == device_kind::cuda) {
    watch = value_of(bench::gpu_stopwatch::make(limits.device), subject);
  }
  const operation_plan plan = plan_for(*kind, problem.view(), flags.execution, limits.device,
                                       watch ? watch->stream() : nullptr, subject);
  if (watch) {
    measure_on_gpu(one, plan, *watch, subject);
  } else {
    measure_here(one, plan, subject);
  }
  one.row = plan.choice().row();
  one.tier = plan.choice().tier;
  one.reason = plan.choice().reason;
  compare_with(limits, plan, one);
}

json::object json_of(const measured_layer& one) {
  const auto text = [](std::string_view view) { return json::string(view); };
  return {{"model", one.model},
          {"layer_kind", one.kind},
          {"layers", one.layers},
          {"phase", text(name_of(one.phase))},
          {"problem", one.problem},
          {"row", one.row},
          {"tier", text(name_of(one.tier))},
          {"reason", text(name_of(one.reason))},
          {"milliseconds",
           {{"min", one.time.min * 1e3},
            {"median", one.time.median * 1e3},
            {"max", one.time.max * 1e3}}},
          {"flops", one.counted.flops},
          {"bytes", one.counted.bytes},
          {"gflops_per_second", one.counted.flops / one.time.median * 1e-9},
          {"gigabytes_per_second", one.counted.bytes / one.time.median * 1e-9},
          {"bound_by", one.memory_bound ? "read bandwidth" : "multiply-adds"},
          {"percent_of_ceiling", one.of_ceiling * 100},
          {"error", one.error.error},
          {"error_bound", one.error.bound},
          {"passed", one.error.passed}};
}

void print_models(const std::vector<model_description>& models) {
  table out({{"model"}, {"type"}, {"layers"}, {"of"}, {"dtype"}});
  for (const model_description& model : models) {
    bool first = true;
    for (const layer_kind& kind : model.kinds) {
      const auto once = [&](std::string text) { return first ? std::move(text) : std::string(); };
      out.add({once(model.name), once(model.model_type),
               fmt::format("{} {}", kind.layers, kind.name), text_of(kind.mixer),
               once(fmt::format("{} ({})", name_of(model.type), model.type_origin))});
      first = false;
    }
  }
  print(out.text(terminal_width()) + "\n");
}

std::string percent(double share) {
  return fmt::format("{:.0f}%", share * 100);
}

void print_layers(const std::vector<measured_layer>& layers) {
  table out({{"model"},
             {"layers"},
             {"phase"},
             {"ms", side::right},
             {"rate", side::right},
             {"of ceiling", side::right},
             {"error", side::right},
             {"tier"},
             {"problem", side::left, true},
             {"row", side::left, true}});
  std::string last;
  for (const measured_layer& one : layers) {
    out.add({{one.model == last ? "" : one.model, style::bold},
             fmt::format("{} x {}", one.layers, one.kind),
             std::string(name_of(one.phase)),
             fmt::format("{:.3f}", one.time.median * 1e3),
             fmt::format("{:.1f} {}", one.rate(), one.memory_bound ? "GB/s   " : "GFLOP/s"),
             percent(one.of_ceiling),
             {fmt::format("{:.1e}", one.error.error), one.error.passed ? style::plain : style::bad},
             std::string(name_of(one.tier)),
             one.problem,
             fmt::format("{} ({})", one.row, name_of(one.reason))});
    last = one.model;
  }
  print(out.text(terminal_width()));
}

std::string ceilings_text(const limits_of_device& limits) {
  const bench::ceilings& cpu = limits.cpu;
  if (limits.device.kind == device_kind::cuda) {
    const bench::device_ceilings& gpu = limits.gpu;
    return fmt::format(
        "Ceilings of {}, just measured: mma.sync bf16 {:.0f} TFLOP/s,\nf32 {:.1f} TFLOP/s, read "
        "{:.0f} GB/s",
        device_text(limits.device), gpu.mma_bf16_gflops * 1e-3, gpu.peak_gflops(dtype::f32) * 1e-3,
        gpu.read_gbytes);
  }
  return fmt::format(
      "Ceilings of this machine, just measured, {}: f32 FMA {:.0f} GFLOP/s,\n{}read {:.1f} GB/s",
      workers_text(limits.device, cpu.threads), cpu.fma_f32_gflops,
      (cpu.bf16_dot_gflops > 0 ? fmt::format("bf16 dot {:.0f} GFLOP/s, ", cpu.bf16_dot_gflops)
                               : "") +
          (cpu.amx_bf16_gflops > 0 ? fmt::format("bf16 AMX {:.0f} GFLOP/s, ", cpu.amx_bf16_gflops)
                                   : ""),
      cpu.read_gbytes);
}

void print_legend(const limits_of_device& limits, const std::vector<measured_layer>& layers) {
  std::size_t wrong = 0;
  for (const measured_layer& one : layers) wrong += one.error.passed ? 0 : 1;
  print(
      fmt::format("\nOne layer each. {}; the percentage is of the one that binds the problem.\n"
                  "Error: of sampled rows against the definition in double precision, {}.\n",
                  ceilings_text(limits),
                  wrong == 0 ? styled(style::good, "all within bound")
                             : styled(style::bad, fmt::format("{} out of bound", wrong))));
}

json::object json_of(const limits_of_device& limits) {
  if (limits.device.kind == device_kind::cuda) return tool::to_json(limits.gpu);
  return {{"fma_f32_gflops_per_second", limits.cpu.fma_f32_gflops},
          {"bf16_dot_gflops_per_second", limits.cpu.bf16_dot_gflops},
          {"amx_bf16_gflops_per_second", limits.cpu.amx_bf16_gflops},
          {"read_gigabytes_per_second", limits.cpu.read_gbytes}};
}

limits_of_device measure_limits(const execution_flags& flags) {
  limits_of_device limits;
  limits.device = device_of_backend(flags.backend);
  if (limits.device.kind == device_kind::cpu) {
    limits.cpu = bench::measure_ceilings(flags.threads);
    return limits;
  }
  const result<bench::device_ceilings> found = bench::measure_ceilings_of(limits.device);
  if (!found) throw failure("--backend: " + found.message(), exit_status::no);
  limits.gpu = *found;
  return limits;
}

exit_status run_models(const model_flags& flags) {
  std::vector<model_description> models;
  std::vector<measured_layer> layers;
  for (const std::string& file : flags.files) {
    model_description model = with_dtype(read_model(file), flags.dtype);
    for (const std::string& note : model.notes) print_message(file + ": " + note);
    for (measured_layer& one : layers_of(model, flags)) layers.push_back(std::move(one));
    models.push_back(std::move(model));
  }
  limits_of_device limits;
  {
    progress steps(flags.quiet, layers.size() + 1);
    steps.step("measuring ceilings");
    limits = measure_limits(flags.execution);
    for (measured_layer& one : layers) {
      steps.step(fmt::format("{}, {} layers, {}", one.model, one.kind, name_of(one.phase)));
      measure(one, flags, limits);
    }
  }
  const bool passed =
      std::all_of(layers.begin(), layers.end(), [](const auto& one) { return one.error.passed; });
  if (flags.json) {
    json::array rows;
    for (const measured_layer& one : layers) rows.push_back(json_of(one));
    json::object document{{"device", device_text(limits.device)},
                          {"ceilings", json_of(limits)},
                          {"layers", std::move(rows)},
                          {"passed", passed}};
    if (limits.device.kind == device_kind::cpu) document["threads"] = limits.cpu.threads;
    print_json(document);
  } else {
    print_models(models);
    print_layers(layers);
    print_legend(limits, layers);
  }
  return passed ? exit_status::success : exit_status::no;
}

}  // namespace

void add_model(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("model", "What models ask, and how fast it is here");
  const auto flags = std::make_shared<model_flags>();
  command->add_option("FILE", flags->files, "Model descriptions (Hugging Face config.json)")
      ->required();
  command
      ->add_option("--phase", flags->phases, std::string(phase_names) + " (default prefill,decode)")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--tokens", flags->tokens,
                   "Prompt or context length (default: prefill 2048, else 8192, or what the model "
                   "is made for)")
      ->type_name("N")
      ->check(between(1, 1 << 24));
  command->add_option("--batch", flags->batch, "Sequences at once (default 1)")
      ->type_name("N")
      ->check(between(1, 65536));
  add_dtype_flag(*command, flags->dtype);
  add_execution_flags(*command, flags->execution);
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera model tools/models/llama-3.1-8b.json --phase decode --tokens 4096");
  command->callback([flags, &status] { status = run_models(*flags); });
}

}  // namespace tessera::tool
