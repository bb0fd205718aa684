#include "problem_list.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include <tessera/runtime/record.hpp>

#include "command.hpp"
#include "json.hpp"
#include "model_problems.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

constexpr std::size_t most_bytes = std::size_t{64} << 20;

/// Refuses what cannot be opened, naming where it stands.
void check_problem(const std::string& text, const std::string& line,
                   const tuner::conditions& where) {
  const auto opened = tuner::open_problem(text, where);
  if (opened) return;
  throw failure(fmt::format("{}: {}", line, opened.message()),
                opened.code() == status_code::no_row ? exit_status::no : exit_status::bad_input);
}

void read_file(const std::string& path, const tuner::conditions& where,
               std::vector<tuner::weighted_problem>& list) {
  const std::string text = file_text(path == "-" ? "/dev/stdin" : path, most_bytes);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string place = fmt::format("{}:{}", path, ++number);
    const auto line = parse_trace_line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (!line) throw failure(fmt::format("{}: {}", place, line.message()));
    if (line->problem.empty()) continue;
    check_problem(line->problem, place, where);
    list.push_back({line->problem, line->count});
  }
}

void read_models(const problem_flags& flags, const tuner::conditions& where,
                 std::vector<tuner::weighted_problem>& list) {
  model_question question{
      .phases = phases_named(flags.phases), .batch = flags.batch, .tokens = flags.tokens};
  take_parts(flags.parts, question);
  for (const std::string& path : flags.models) {
    const model_description model = read_model(path);
    print_notes(path, model);
    for (const model_problem& problem : problems_of(model, question)) {
      check_problem(problem.text, path, where);
      list.push_back({problem.text, problem.layers * problem.times});
    }
  }
}

}  // namespace

void add_model_and_list_flags(CLI::App& command, problem_flags& flags) {
  command.add_option("--model", flags.models, "Model descriptions (Hugging Face config.json)")
      ->type_name("FILE");
  command.add_option("--phase", flags.phases, "Of models: " + std::string(phase_names))
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_parts_flag(command, flags.parts);
  command
      .add_option("--tokens", flags.tokens,
                  "Of models: prompt or context length (default: prefill 2048, else 8192, or what "
                  "the model is made for)")
      ->type_name("N")
      ->check(between(1, 1 << 24));
  command.add_option("--batch", flags.batch, "Of models: sequences at once (default 1)")
      ->type_name("N")
      ->check(between(1, 65536));
  command
      .add_option("--problems", flags.problems,
                  "Problems, one a line, as problem text; - reads stdin")
      ->type_name("FILE");
}

CLI::Option* add_trace_flag(CLI::App& command, problem_flags& flags) {
  return command
      .add_option("--trace", flags.trace, "Problems as TESSERA_RECORD=FILE recorded them")
      ->type_name("FILE");
}

std::vector<tuner::weighted_problem> read_problems(const problem_flags& flags,
                                                   const tuner::conditions& where) {
  std::vector<tuner::weighted_problem> list;
  read_models(flags, where, list);
  if (!flags.problems.empty()) read_file(flags.problems, where, list);
  if (!flags.trace.empty()) read_file(flags.trace, where, list);
  if (!list.empty()) return list;
  const bool named = !flags.models.empty() || !flags.problems.empty() || !flags.trace.empty();
  throw failure(
      named ? fmt::format("{}: has 0 problems", flags.trace.empty() ? flags.problems : flags.trace)
            : "no problem is given: name --model, --problems or --trace");
}

}  // namespace tessera::tool
