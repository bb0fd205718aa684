#include "model_tables.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "command.hpp"
#include "device_file.hpp"
#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

json::string text(std::string_view view) {
  return json::string(view);
}

std::string percent(double share) {
  return fmt::format("{:.0f}%", share * 100);
}

void add(std::optional<double>& sum, std::optional<double> more) {
  if (!sum || !more) {
    sum.reset();
  } else {
    *sum += *more;
  }
}

std::optional<double> milliseconds(const measured_layer& layer) {
  if (!layer.measured) return std::nullopt;
  return layer.time.median * 1e3 * static_cast<double>(layer.asked.times);
}

/// Adds what a part of a model asks in the sum's phase.
void add_part(layer_sum& sum, const std::vector<measured_layer>& measured, model_part part,
              std::size_t index) {
  for (const measured_layer& layer : measured) {
    if (layer.asked.part != part || layer.asked.index != index || layer.asked.phase != sum.phase)
      continue;
    add(part == model_part::mixer ? sum.mixer : sum.products, milliseconds(layer));
  }
}

void add_layers(layer_sum& sum, const layer_sum& layer) {
  const auto all = [&](std::optional<double> of_each) {
    return of_each ? std::optional(*of_each * static_cast<double>(layer.layers)) : std::nullopt;
  };
  add(sum.mixer, all(layer.mixer));
  add(sum.products, all(layer.products));
}

std::vector<model_phase> phases_of(const std::vector<measured_layer>& measured) {
  std::vector<model_phase> phases;
  for (const measured_layer& layer : measured) {
    if (std::ranges::find(phases, layer.asked.phase) == phases.end())
      phases.push_back(layer.asked.phase);
  }
  return phases;
}

std::string milliseconds_text(std::optional<double> number) {
  return number ? fmt::format("{:.3f}", *number) : "-";
}

json::value number_or_null(std::optional<double> number) {
  return number ? json::value(*number) : json::value(nullptr);
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

}  // namespace

std::optional<double> layer_sum::sum() const {
  std::optional<double> both = mixer;
  add(both, products);
  return both;
}

std::vector<layer_sum> layer_sums(const model_description& model,
                                  const std::vector<measured_layer>& measured) {
  std::vector<layer_sum> sums;
  for (const model_phase phase : phases_of(measured)) {
    layer_sum all{.model = model.name, .layer = "model", .phase = phase};
    for (const whole_layer& layer : model.whole_layers) {
      layer_sum sum{.model = model.name,
                    .layer = model.kinds[layer.kind].name,
                    .layers = layer.layers,
                    .phase = phase};
      add_part(sum, measured, model_part::mixer, layer.kind);
      add_part(sum, measured, model_part::product_of_mixer, layer.kind);
      if (layer.feed_forward) {
        sum.layer += ", " + model.feed_forwards[*layer.feed_forward].name;
        add_part(sum, measured, model_part::feed_forward, *layer.feed_forward);
      }
      add_layers(all, sum);
      sums.push_back(std::move(sum));
    }
    if (model.head.classes > 0) {
      layer_sum head{.model = model.name, .layer = "head", .phase = phase};
      add_part(head, measured, model_part::head, 0);
      add_layers(all, head);
      sums.push_back(std::move(head));
    }
    sums.push_back(std::move(all));
  }
  return sums;
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

void print_layers(const std::vector<measured_layer>& layers) {
  table out({{"model"},
             {"layers"},
             {"part"},
             {"phase"},
             {"ms", side::right},
             {"rate", side::right},
             {"of ceiling", side::right},
             {"error", side::right},
             {"tier"},
             {"problem", side::left, true},
             {"row", side::left, true}});
  std::string last;
  for (const measured_layer& layer : layers) {
    const auto if_measured = [&](std::string text) {
      return layer.measured ? std::move(text) : std::string("-");
    };
    const std::string times =
        layer.asked.times > 1 ? fmt::format(" ({} x)", layer.asked.times) : "";
    out.add({{layer.model == last ? "" : layer.model, style::bold},
             fmt::format("{} x {}", layer.asked.layers, layer.asked.kind),
             layer.asked.name + times,
             std::string(name_of(layer.asked.phase)),
             if_measured(fmt::format("{:.3f}", layer.time.median * 1e3)),
             if_measured(fmt::format("{:.1f} {}", layer.rate(),
                                     layer.memory_bound ? "GB/s   " : "GFLOP/s")),
             if_measured(percent(layer.of_ceiling)),
             {if_measured(fmt::format("{:.1e}", layer.error.error)),
              layer.passed() ? style::plain : style::bad},
             std::string(name_of(layer.tier)),
             layer.asked.text,
             fmt::format("{} ({})", layer.row, name_of(layer.reason))});
    last = layer.model;
  }
  print(out.text(terminal_width()));
}

void print_sums(const std::vector<layer_sum>& sums) {
  table out({{"model"},
             {"phase"},
             {"layers"},
             {"mixer ms", side::right},
             {"products ms", side::right},
             {"sum ms", side::right}});
  std::string last;
  for (const layer_sum& sum : sums) {
    out.add({{sum.model == last ? "" : sum.model, style::bold},
             std::string(name_of(sum.phase)),
             sum.layers > 1 ? fmt::format("{} x {}", sum.layers, sum.layer) : sum.layer,
             milliseconds_text(sum.mixer),
             milliseconds_text(sum.products),
             milliseconds_text(sum.sum())});
    last = sum.model;
  }
  print("\n" + out.text(terminal_width()));
}

void print_legend(const limits_of_device& limits, const std::vector<measured_layer>& layers) {
  const auto wrong =
      std::ranges::count_if(layers, [](const auto& layer) { return !layer.passed(); });
  print(fmt::format(
      "\nOne layer each; a model is all of its layers and the head, without norms and embeddings.\n"
      "{}; the percentage is of the one that binds the problem.\n"
      "Error: of sampled rows against the definition in double precision, {}.\n",
      ceilings_text(limits),
      wrong == 0 ? styled(style::good, "all within bound")
                 : styled(style::bad, fmt::format("{} out of bound", wrong))));
}

json::object json_of(const measured_layer& layer) {
  json::object document{{"model", layer.model},
                        {"layer_kind", layer.asked.kind},
                        {"layers", layer.asked.layers},
                        {"part", layer.asked.name},
                        {"times", layer.asked.times},
                        {"phase", text(name_of(layer.asked.phase))},
                        {"problem", layer.asked.text},
                        {"row", layer.row},
                        {"tier", text(name_of(layer.tier))},
                        {"reason", text(name_of(layer.reason))}};
  if (!layer.measured) return document;
  const json::object measured{
      {"milliseconds",
       {{"min", layer.time.min * 1e3},
        {"median", layer.time.median * 1e3},
        {"max", layer.time.max * 1e3}}},
      {"flops", layer.counted.flops},
      {"bytes", layer.counted.bytes},
      {"gflops_per_second", layer.counted.flops / layer.time.median * 1e-9},
      {"gigabytes_per_second", layer.counted.bytes / layer.time.median * 1e-9},
      {"bound_by", layer.memory_bound ? "read bandwidth" : "multiply-adds"},
      {"percent_of_ceiling", layer.of_ceiling * 100},
      {"error", layer.error.error},
      {"error_bound", layer.error.bound},
      {"passed", layer.error.passed}};
  document.insert(measured.begin(), measured.end());
  return document;
}

json::object json_of(const layer_sum& sum) {
  return {{"model", sum.model},
          {"phase", text(name_of(sum.phase))},
          {"layer", sum.layer},
          {"layers", sum.layers},
          {"mixer_milliseconds", number_or_null(sum.mixer)},
          {"products_milliseconds", number_or_null(sum.products)},
          {"sum_milliseconds", number_or_null(sum.sum())}};
}

json::object json_of(const limits_of_device& limits) {
  if (limits.device.kind == device_kind::cuda) return tool::to_json(limits.gpu);
  return {{"fma_f32_gflops_per_second", limits.cpu.fma_f32_gflops},
          {"bf16_dot_gflops_per_second", limits.cpu.bf16_dot_gflops},
          {"amx_bf16_gflops_per_second", limits.cpu.amx_bf16_gflops},
          {"read_gigabytes_per_second", limits.cpu.read_gbytes}};
}

}  // namespace tessera::tool
