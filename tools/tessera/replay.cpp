// `tessera replay`: a server's day in small: the attention of a model under a stream of requests,
// through a real pool of pages.
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "command.hpp"
#include "execution.hpp"
#include "json.hpp"
#include "model_description.hpp"
#include "replay/output.hpp"
#include "replay/session.hpp"
#include "tools/replay/trace.hpp"

namespace tessera::tool {
namespace {

constexpr std::size_t largest_trace = std::size_t{64} << 20;

struct replay_flags : common_flags {
  std::string model, trace;
  std::string dtype;  ///< empty: the model's own
  std::string pool;   ///< likewise, of keys and values in pages
  bool token_scales = false;
  replay_wishes wishes;
  execution_flags execution;
};

/// Of keys and values in pages; none: that of the model.
dtype type_of_pool(const std::string& name) {
  for (const dtype type : {dtype::f8_e4m3, dtype::f8_e5m2, dtype::i8}) {
    if (name == name_of(type)) return type;
  }
  return dtype::none;
}

exit_status run_replay(const replay_flags& flags) {
  const model_description model = with_dtype(read_model(flags.model), flags.dtype);
  const replay::trace served =
      replay::parse_trace(file_text(flags.trace, largest_trace), flags.trace);
  for (const std::string& note : model.notes) print_message(flags.model + ": " + note);
  const pool_wishes pool{.type = type_of_pool(flags.pool), .token_scales = flags.token_scales};
  replay_session session(model, pool, served, flags.execution);
  for (const std::string& text : session.left_out()) print_message(flags.model + ": " + text);
  {
    progress shown(flags.quiet, 10);
    session.run(flags.wishes, shown);
  }
  if (flags.json) {
    print_json(document_of(session, model));
  } else {
    print_replay(session, model);
  }
  return session.passed() ? exit_status::success : exit_status::no;
}

}  // namespace

void add_replay(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("replay", "A model serves the requests of a trace");
  const auto flags = std::make_shared<replay_flags>();
  command->add_option("--model", flags->model, "Model description (Hugging Face config.json)")
      ->required()
      ->type_name("FILE");
  command->add_option("--trace", flags->trace, "Requests, pool and batch (bench/shapes/traces)")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--check-every", flags->wishes.check_every,
                   "Check every N-th step against the definition (default 16, 0: none)")
      ->type_name("N")
      ->check(between(0, 1 << 24));
  command
      ->add_option("--max-steps", flags->wishes.max_steps,
                   "Stop behind so many steps (default: when every request is finished)")
      ->type_name("N")
      ->check(between(1, 1 << 24));
  add_dtype_flag(*command, flags->dtype);
  CLI::Option* const pool =
      command
          ->add_option("--pool", flags->pool,
                       "Elements of keys and values in pages, not the model's")
          ->type_name("f8_e4m3|f8_e5m2|i8")
          ->check(CLI::IsMember({"f8_e4m3", "f8_e5m2", "i8"}));
  command
      ->add_flag("--token-scales", flags->token_scales,
                 "Scale each token and head to the largest number of the pool's type")
      ->needs(pool);
  add_execution_flags(*command, flags->execution);
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera replay --model tools/models/qwen3-0.6b.json --trace "
      "bench/shapes/traces/short.txt");
  command->callback([flags, &status] { status = run_replay(*flags); });
}

}  // namespace tessera::tool
