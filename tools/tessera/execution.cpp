#include "execution.hpp"

#include <utility>

#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/registry.hpp>

#include "command.hpp"

namespace tessera::tool {

void add_execution_flags(CLI::App& command, execution_flags& flags) {
  command.add_option("--row", flags.row, "Run this row of the build and no other")
      ->type_name("NAME");
  command.add_option("--backend", flags.backend, "Back end to run on; this build has cpu")
      ->type_name("cpu|cuda");
  command.add_option("--threads", flags.threads, "Threads (default: OMP_NUM_THREADS, else all)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

std::string as_flags(std::string message) {
  for (const auto& [ours, theirs] :
       {std::pair<std::string_view, std::string_view>{"context.row", "--row"},
        {"context.threads", "--threads"}}) {
    if (message.starts_with(ours)) message.replace(0, ours.size(), theirs);
  }
  return message;
}

flash_plan plan_for(const flash_problem& problem, const execution_flags& flags,
                    const std::string& subject) {
  if (!flags.backend.empty() && flags.backend != "cpu") {
    const bool known = flags.backend == "cuda";
    throw failure(fmt::format("--backend: {} has 0 rows in this build, cpu has {}",
                              known ? flags.backend : "\"" + flags.backend + "\"",
                              flash_fwd_registry().size()),
                  known ? exit_status::no : exit_status::bad_input);
  }
  result<flash_plan> made = plan(problem, {.row = flags.row, .threads = flags.threads});
  if (!made) {
    const bool no_row =
        made.code() == status_code::unknown_row || made.code() == status_code::no_row;
    throw failure(fmt::format("{}: {}", subject, as_flags(made.message())),
                  no_row ? exit_status::no : exit_status::bad_input);
  }
  return *std::move(made);
}

std::string_view sentence_of(selection_reason reason) noexcept {
  switch (reason) {
    case selection_reason::none:
      return "nobody chose";
    case selection_reason::named_by_call:
      return "named by --row";
    case selection_reason::named_by_environment:
      return "named by TESSERA_ROW";
    case selection_reason::cheapest:
      return "lowest predicted time of the rows that fit";
    case selection_reason::only_row:
      return "the only row that fits";
    case selection_reason::generic_fallback:
      return "only rows that take any problem fit";
  }
  return "invalid";
}

std::string device_text() {
  const device_facts& facts = this_device();
  return fmt::format("{} ({})",
                     facts.product_name().empty() ? "unnamed processor" : facts.product_name(),
                     name_of(facts.highest));
}

boost::json::object to_json(const bench::timing& time, const bench::work& counted,
                            const flash_plan& plan) {
  const auto text = [](std::string_view view) { return boost::json::string(view); };
  const flash_selection& choice = plan.choice();
  return {{"row", text(choice.row())},
          {"tier", text(name_of(choice.tier))},
          {"reason", text(name_of(choice.reason))},
          {"device", text(device_text())},
          {"threads", plan.threads()},
          {"repeat", time.rounds},
          {"milliseconds",
           {{"min", time.min * 1e3}, {"median", time.median * 1e3}, {"max", time.max * 1e3}}},
          {"flops", counted.flops},
          {"bytes", counted.bytes},
          {"gflops_per_second", counted.flops / time.median * 1e-9},
          {"gigabytes_per_second", counted.bytes / time.median * 1e-9}};
}

}  // namespace tessera::tool
