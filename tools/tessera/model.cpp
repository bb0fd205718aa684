// `tessera model`: what the layers of a model ask, how fast this machine answers, and how exactly.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "command.hpp"
#include "execution.hpp"
#include "json.hpp"
#include "model_measure.hpp"
#include "model_tables.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct model_flags : common_flags {
  std::vector<std::string> files;
  std::vector<std::string> phases{"prefill", "decode"};
  std::vector<std::string> parts;  ///< empty: all
  std::int64_t tokens = 0;  ///< 0: 2048 for prefill, 8192 for the others, the model's limit at most
  std::int64_t batch = 1;
  std::string dtype;  ///< empty: the model's own
  bool dry_run = false;
  execution_flags execution;
};

/// A model and the problems that were measured of it.
struct measured_model {
  model_description model;
  std::vector<measured_layer> layers;
};

std::vector<measured_model> read_models(const model_flags& flags) {
  model_question question{
      .phases = phases_named(flags.phases), .batch = flags.batch, .tokens = flags.tokens};
  take_parts(flags.parts, question);
  std::vector<measured_model> models;
  for (const std::string& file : flags.files) {
    measured_model read{with_dtype(read_model(file), flags.dtype), {}};
    print_notes(file, read.model);
    for (model_problem& asked : problems_of(read.model, question)) {
      read.layers.push_back({.model = read.model.name, .asked = std::move(asked)});
    }
    models.push_back(std::move(read));
  }
  return models;
}

/// Ceilings first, which a dry run has none of.
limits_of_device measure_all(std::vector<measured_model>& models, const model_flags& flags) {
  limits_of_device limits{.device = device_of_backend(flags.execution.backend)};
  std::size_t problems = 0;
  for (const measured_model& read : models) problems += read.layers.size();
  progress steps(flags.quiet, flags.dry_run ? problems : problems + 1);
  if (!flags.dry_run) {
    steps.step("measuring ceilings");
    limits = measure_limits(flags.execution, limits.device);
  }
  for (measured_model& read : models) {
    for (measured_layer& layer : read.layers) {
      steps.step(fmt::format("{}, {} x {}, {}, {}", layer.model, layer.asked.layers,
                             layer.asked.kind, layer.asked.name, name_of(layer.asked.phase)));
      if (flags.dry_run) {
        choose_row(layer, flags.execution, limits.device);
      } else {
        measure(layer, flags.execution, limits);
      }
    }
  }
  return limits;
}

exit_status run_models(const model_flags& flags) {
  std::vector<measured_model> models = read_models(flags);
  const limits_of_device limits = measure_all(models, flags);
  std::vector<model_description> descriptions;
  std::vector<measured_layer> layers;
  std::vector<layer_sum> sums;
  for (const measured_model& read : models) {
    descriptions.push_back(read.model);
    std::ranges::copy(read.layers, std::back_inserter(layers));
    // A part of a layer is no whole one.
    if (flags.parts.empty())
      std::ranges::move(layer_sums(read.model, read.layers), std::back_inserter(sums));
  }
  const bool passed = std::ranges::all_of(layers, &measured_layer::passed);
  if (flags.json) {
    json::array rows, wholes;
    for (const measured_layer& layer : layers) rows.push_back(json_of(layer));
    for (const layer_sum& sum : sums) wholes.push_back(json_of(sum));
    json::object document{
        {"device", device_text(limits.device)}, {"layers", std::move(rows)}, {"passed", passed}};
    if (!flags.dry_run) {
      document["ceilings"] = json_of(limits);
      document["whole_layers"] = std::move(wholes);
      if (limits.device.kind == device_kind::cpu) document["threads"] = limits.cpu.threads;
    }
    print_json(document);
  } else {
    print_models(descriptions);
    print_layers(layers);
    if (!flags.dry_run) {
      if (!sums.empty()) print_sums(sums);
      print_legend(limits, layers);
    }
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
  add_parts_flag(*command, flags->parts);
  command
      ->add_option("--tokens", flags->tokens,
                   "Prompt or context length (default: prefill 2048, else 8192, or what the model "
                   "is made for)")
      ->type_name("N")
      ->check(between(1, 1 << 24));
  command->add_option("--batch", flags->batch, "Sequences at once (default 1)")
      ->type_name("N")
      ->check(between(1, 65536));
  command->add_flag("--dry-run", flags->dry_run, "Problems and rows only, nothing is measured");
  add_dtype_flag(*command, flags->dtype);
  add_execution_flags(*command, flags->execution);
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera model tools/models/llama-3.1-8b.json --phase decode --tokens 4096");
  command->callback([flags, &status] { status = run_models(*flags); });
}

}  // namespace tessera::tool
