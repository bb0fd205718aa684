#include "execution.hpp"

#include <utility>

#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/operation.hpp>

#include "command.hpp"
#include "families.hpp"

namespace tessera::tool {

void add_execution_flags(CLI::App& command, execution_flags& flags) {
  command.add_option("--row", flags.row, "Run this row of the build and no other")
      ->type_name("NAME");
  command
      .add_option("--backend", flags.backend, "Where to run: cpu, or a GPU, cuda:1 the second one")
      ->type_name("cpu|cuda[:N]");
  command.add_option("--threads", flags.threads, "Threads (default: OMP_NUM_THREADS, else all)")
      ->type_name("N")
      ->check(between(1, 4096));
}

std::string as_flags(std::string message) {
  for (const auto& [ours, theirs] :
       {std::pair<std::string_view, std::string_view>{"context.row", "--row"},
        {"context.threads", "--threads"}}) {
    if (message.starts_with(ours)) message.replace(0, ours.size(), theirs);
  }
  return message;
}

device_id named_device(const std::string& backend) {
  if (backend.empty()) return {};
  std::size_t on_cpu = 0;
  std::size_t on_gpu = 0;
  for (const family* family : all_families()) {
    for (const listed_row& row : family->rows()) ++(is_cpu(row.target) ? on_cpu : on_gpu);
  }
  const auto device = device_named(backend);
  if (!device) {
    throw failure(fmt::format("--backend: \"{}\" has 0 rows in this build, cpu has {}{}", backend,
                              on_cpu, on_gpu > 0 ? fmt::format(", cuda has {}", on_gpu) : ""));
  }
  if (device->kind == device_kind::cuda && on_gpu == 0) {
    throw failure(
        fmt::format("--backend: {} has 0 rows in this build, cpu has {}", backend, on_cpu),
        exit_status::no);
  }
  return *device;
}

device_id device_of_backend(const std::string& backend) {
  const device_id device = named_device(backend);
  if (device.kind == device_kind::cpu) return device;
  const result<const device_facts*> found = find_device(device);
  if (!found) throw failure("--backend: " + found.message(), exit_status::no);
  return device;
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

std::string text_of(const device_facts& facts) {
  if (facts.kind == device_kind::cpu) {
    return fmt::format("{} ({})",
                       facts.product_name().empty() ? "unnamed processor" : facts.product_name(),
                       name_of(facts.highest));
  }
  return fmt::format("{} ({}, compute capability {}.{})",
                     facts.product_name().empty() ? "unnamed GPU" : facts.product_name(),
                     tessera::text_of(facts.id()), facts.compute_capability / 10,
                     facts.compute_capability % 10);
}

std::string device_text(device_id device) {
  const result<const device_facts*> found = find_device(device);
  return found ? text_of(**found) : tessera::text_of(device);
}

std::string workers_text(device_id device, int workers) {
  const bool cpu = device.kind == device_kind::cpu;
  return fmt::format("{} {}{}", workers, cpu ? "thread" : "multiprocessor",
                     workers == 1 ? "" : "s");
}

operation_plan plan_for(const tessera::family& kind, const problem_view& problem,
                        const execution_flags& flags, device_id device, void* stream,
                        const std::string& subject) {
  auto planned = plan_operation(
      kind, problem,
      {.row = flags.row, .threads = flags.threads, .device = device, .stream = stream});
  if (!planned) refuse_plan(planned.failure(), subject);
  return *std::move(planned);
}

}  // namespace tessera::tool
