#include "execution.hpp"

#include <utility>

#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>

#include "command.hpp"
#include "families.hpp"

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

void require_backend(const execution_flags& flags) {
  if (flags.backend.empty() || flags.backend == "cpu") return;
  std::size_t rows = 0;
  for (const family* one : all_families()) rows += one->rows().size();
  const bool known = flags.backend == "cuda";
  throw failure(fmt::format("--backend: {} has 0 rows in this build, cpu has {}",
                            known ? flags.backend : "\"" + flags.backend + "\"", rows),
                known ? exit_status::no : exit_status::bad_input);
}

void refuse_plan(const status& refusal, const std::string& subject) {
  const bool no_row =
      refusal.code() == status_code::unknown_row || refusal.code() == status_code::no_row;
  throw failure(fmt::format("{}: {}", subject, as_flags(refusal.message())),
                no_row ? exit_status::no : exit_status::bad_input);
}

std::string_view sentence_of(selection_reason reason) noexcept {
  switch (reason) {
    case selection_reason::none:
      return "nobody chose";
    case selection_reason::named_by_call:
      return "named by --row";
    case selection_reason::named_by_environment:
      return "named by TESSERA_ROW";
    case selection_reason::overlay_rule:
      return "named by a rule of an overlay";
    case selection_reason::measured:
      return "fastest in a lookup table";
    case selection_reason::measured_nearby:
      return "fastest in a lookup table at a similar size";
    case selection_reason::tuned:
      return "fastest when measured now";
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

}  // namespace tessera::tool
