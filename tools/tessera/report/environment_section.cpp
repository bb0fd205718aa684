// Where the numbers come from: files, machine, and the commands that make them again.
#include <fmt/format.h>

#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

void write_facts(markup& page, const std::vector<std::pair<std::string, std::string>>& facts) {
  const auto list = page.element("dl", {{"class", "facts"}});
  for (const auto& [name, value] : facts) {
    const auto pair = page.element("div");
    page.leaf("dt", name);
    page.leaf("dd", value);
  }
}

void write_sources(markup& page, const input& from) {
  const table_scope table(page, "Files this page was made from",
                          {{"file"}, {"what it is"}, {"what it holds"}, {"size", true}});
  for (const source& source : from.sources) {
    const auto row = page.element("tr");
    code_cell(page, "file", source.path);
    text_cell(page, "what it is", source.kind);
    {
      const auto holds = page.element("td", {{"data-name", "what it holds"}});
      page.text(source.contents);
      for (const std::string& line : source.bad_lines)
        page.leaf("small", {{"class", "failed"}}, line);
    }
    number_cell(page, "size", static_cast<double>(source.bytes),
                bytes_text(static_cast<double>(source.bytes)));
  }
}

void write_commands(markup& page, const page_facts& facts, const input& from) {
  page.leaf("h3", "Commands");
  const auto list = page.element("ol", {{"class", "commands"}});
  const auto command = [&](std::string_view text, std::string_view what) {
    const auto item = page.element("li");
    page.leaf("code", text);
    page.leaf("small", what);
  };
  if (!from.runs.empty()) command("tools/bench", "verifies and times, writes build/bench/*.json");
  if (!from.replays.empty()) {
    command("tessera replay --model FILE --trace FILE --json > replay.json",
            "serves the requests of a trace");
  }
  if (!from.problems.empty()) {
    command("tessera tune --json > tune.jsonl", "measures the candidates of each problem");
  }
  command("tools/measure-cost --write", "what each row costs to compile");
  command(facts.command, "this page");
}

}  // namespace

void environment_section(markup& page, const input& from, const page_facts& facts) {
  const auto whole = section(page, "environment", "Environment and commands");
  for (const std::string& note : from.notes) page.leaf("p", {{"class", "note"}}, note);
  write_sources(page, from);
  if (!from.machine.empty()) {
    page.leaf("h3", "Device");
    write_facts(page, from.machine);
  }
  for (const bench_run& run : from.runs) {
    page.leaf("h3", fmt::format("Run {}", run.path));
    write_facts(page, run.context);
  }
  if (!from.tuning.empty()) {
    page.leaf("h3", "Tuning");
    write_facts(page, from.tuning);
  }
  write_commands(page, facts, from);
}

}  // namespace tessera::tool::report
