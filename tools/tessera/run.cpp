// `tessera run`: real tensors in, real tensors out.
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/problem_text.hpp>
#include <tessera/version.hpp>

#include "attention_call.hpp"
#include "command.hpp"
#include "execution.hpp"
#include "json.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct run_flags : common_flags {
  std::string op;
  std::string input;
  std::string output;
  std::vector<std::string> options;
  execution_flags execution;
  std::size_t repeat = 0;  ///< 0: not asked for, one run
};

std::string shape_text(const tensor_view& view) {
  std::string text = "[";
  for (int axis = 0; axis < view.rank; ++axis) {
    text += fmt::format("{}{}", axis > 0 ? "," : "", view.extent[static_cast<std::size_t>(axis)]);
  }
  return text + "]" + std::string(name_of(view.type));
}

bench::timing timed(const flash_plan& plan, const attention_call& call, std::size_t repeat) {
  const bench::timing_budget budget{.warm_ups = repeat > 0 ? std::size_t{1} : std::size_t{0},
                                    .min_rounds = std::max<std::size_t>(repeat, 1),
                                    .max_rounds = std::max<std::size_t>(repeat, 1)};
  return bench::measure(budget, [&](std::size_t) { require(plan.run(call.args()), call.path()); });
}

void write(const attention_call& call, const flash_plan& plan, const std::string& path) {
  const safetensors_metadata metadata{{"op", std::string(name_of(call.op()))},
                                      {"options", json_line(to_json(call.options()))},
                                      {"row", std::string(plan.choice().row())},
                                      {"version", std::string(version)}};
  const std::vector<safetensors_entry> outputs = call.outputs();
  const status written = write_safetensors(path, outputs, metadata);
  if (!written) throw failure(written.message());
}

void print_json_report(const attention_call& call, const flash_plan& plan,
                       const bench::timing& time, const run_flags& flags) {
  json::object document{{"op", json::string(name_of(call.op()))},
                        {"input", call.path()},
                        {"problem", to_text(plan.problem())},
                        {"options", to_json(call.options())}};
  for (auto& member : to_json(time, bench::work_of(call.args(), call.options()), plan)) {
    document[member.key()] = std::move(member.value());
  }
  json::object outputs;
  for (const safetensors_entry& output : call.outputs())
    outputs[output.name] = shape_text(output.tensor);
  document["outputs"] = std::move(outputs);
  document["output"] = flags.output.empty() ? json::value(nullptr) : json::value(flags.output);
  print_json(document);
}

void print_report(const attention_call& call, const flash_plan& plan, const bench::timing& time,
                  const run_flags& flags) {
  const bench::work counted = bench::work_of(call.args(), call.options());
  const auto line = [](std::string_view name, const std::string& text) {
    print(fmt::format("{} {}\n", styled(style::bold, fmt::format("{:<8}", name)), text));
  };
  const flash_selection& choice = plan.choice();
  line("problem", to_text(plan.problem()));
  line("row", std::string(choice.row()));
  line("chosen", fmt::format("{}: {}", name_of(choice.tier), sentence_of(choice.reason)));
  line("device", fmt::format("{}, {} threads", device_text(), plan.threads()));
  std::string milliseconds = fmt::format("{:.3f} ms", time.median * 1e3);
  if (time.rounds > 1) {
    milliseconds += fmt::format(" median of {} ({:.3f} to {:.3f})", time.rounds, time.min * 1e3,
                                time.max * 1e3);
  }
  line("time", milliseconds);
  line("rate", fmt::format("{:.4g} GFLOP/s, {:.4g} GB/s", counted.flops / time.median * 1e-9,
                           counted.bytes / time.median * 1e-9));
  std::string outputs;
  for (const safetensors_entry& output : call.outputs()) {
    outputs +=
        fmt::format("{}{} {}", outputs.empty() ? "" : ", ", output.name, shape_text(output.tensor));
  }
  line("output",
       outputs + (flags.output.empty() ? ", not kept: no --output" : " -> " + flags.output));
}

exit_status run(const run_flags& flags) {
  attention_call call = attention_call::open(flags.input, flags.op);
  for (const std::string& option : flags.options) set_option(call.options(), option);
  call.allocate_outputs();
  const flash_plan plan =
      plan_for(problem_of(call.args(), call.options(), call.op()), flags.execution, call.path());
  const bench::timing time = timed(plan, call, flags.repeat);
  if (!flags.output.empty()) write(call, plan, flags.output);
  if (flags.json) {
    print_json_report(call, plan, time, flags);
  } else {
    print_report(call, plan, time, flags);
  }
  return exit_status::success;
}

}  // namespace

void add_run(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("run", "Real tensors in, real tensors out");
  const auto flags = std::make_shared<run_flags>();
  command->add_option("OP", flags->op, "flash_attention, attention or scaled_dot_product_attention")
      ->required();
  command->add_option("--input", flags->input, "safetensors file with q, k, v, ... (or in.q, ...)")
      ->required()
      ->type_name("FILE");
  command->add_option("--output", flags->output, "safetensors file to write: out.out, out.lse, ...")
      ->type_name("FILE");
  command
      ->add_option("--option", flags->options,
                   "An option of the operation; wins over the file's metadata key `options`")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  add_execution_flags(*command, flags->execution);
  command->add_option("--repeat", flags->repeat, "Timed runs after a warm-up")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera run flash_attention --input "
      "tests/golden/flash_attention.full.safetensors \\\n"
      "      --output result.safetensors --option causal=true --repeat 10");
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace tessera::tool
