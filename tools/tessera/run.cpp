// `tessera run`: real tensors in, real tensors out.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include <tessera/version.hpp>

#include "bench/support/timing.hpp"
#include "command.hpp"
#include "execution.hpp"
#include "families.hpp"
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

/// `repeat` 0: one run, else a warm-up and so many.
bench::timing timed(const planned_call& plan, const std::string& path, std::size_t repeat) {
  if (repeat > 0) require(plan.run(), path);
  std::vector<double> seconds;
  while (seconds.size() < std::max<std::size_t>(repeat, 1)) {
    const result<double> took = plan.timed_run();
    if (!took) require(took.failure(), path);
    seconds.push_back(*took);
  }
  require(plan.fetch(), path);
  return bench::statistics_of(std::move(seconds));
}

void write(const file_call& call, const planned_call& plan, const std::string& path) {
  const safetensors_metadata metadata{{"op", std::string(call.op())},
                                      {"options", json_line(call.options())},
                                      {"row", std::string(plan.row())},
                                      {"version", std::string(version)}};
  const std::vector<safetensors_entry> outputs = call.outputs();
  const status written = write_safetensors(path, outputs, metadata);
  if (!written) throw failure(written.message());
}

void print_json_report(const file_call& call, const planned_call& plan, const bench::timing& time,
                       const run_flags& flags) {
  const reference::call_work counted = call.work();
  json::object outputs;
  for (const safetensors_entry& output : call.outputs()) {
    outputs[output.name] = shape_text(output.tensor);
  }
  print_json(json::object{
      {"op", json::string(call.op())},
      {"input", call.path()},
      {"problem", call.problem()},
      {"options", call.options()},
      {"row", json::string(plan.row())},
      {"tier", json::string(name_of(plan.tier()))},
      {"reason", json::string(name_of(plan.reason()))},
      {"device", device_text(plan.device())},
      {"threads", plan.threads()},
      {"repeat", time.rounds},
      {"milliseconds",
       {{"min", time.min * 1e3}, {"median", time.median * 1e3}, {"max", time.max * 1e3}}},
      {"flops", counted.flops},
      {"bytes", counted.bytes},
      {"gflops_per_second", counted.flops / time.median * 1e-9},
      {"gigabytes_per_second", counted.bytes / time.median * 1e-9},
      {"outputs", std::move(outputs)},
      {"output", flags.output.empty() ? json::value(nullptr) : json::value(flags.output)}});
}

void print_report(const file_call& call, const planned_call& plan, const bench::timing& time,
                  const run_flags& flags) {
  const reference::call_work counted = call.work();
  const auto line = [](std::string_view name, const std::string& text) {
    print(fmt::format("{} {}\n", styled(style::bold, fmt::format("{:<8}", name)), text));
  };
  line("problem", call.problem());
  line("row", std::string(plan.row()));
  line("chosen", fmt::format("{}: {}", name_of(plan.tier()), sentence_of(plan.reason())));
  line("device", fmt::format("{}, {}", device_text(plan.device()),
                             workers_text(plan.device(), plan.threads())));
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
  const std::unique_ptr<file_call> call = open_call(flags.input, flags.op);
  for (const std::string& option : flags.options) set_option(*call, option);
  call->allocate_outputs(flags.execution);
  const std::unique_ptr<planned_call> plan = call->plan(flags.execution);
  const bench::timing time = timed(*plan, flags.input, flags.repeat);
  if (!flags.output.empty()) write(*call, *plan, flags.output);
  if (flags.json) {
    print_json_report(*call, *plan, time, flags);
  } else {
    print_report(*call, *plan, time, flags);
  }
  return exit_status::success;
}

}  // namespace

void add_run(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("run", "Real tensors in, real tensors out");
  const auto flags = std::make_shared<run_flags>();
  command->add_option("OP", flags->op, "One of the operations below")->required();
  command
      ->add_option("--input", flags->input,
                   "safetensors file with the operation's tensors (q or in.q, ...)")
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
      ->check(between(1, 1'000'000));
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera run flash_attention --input "
      "tests/golden/flash_attention.full.safetensors \\\n"
      "      --output result.safetensors --option causal=true --repeat 10\n\n" +
      op_paragraphs());
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace tessera::tool
