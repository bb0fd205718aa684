// `tessera list`: the rows of this build.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/reflect.hpp>

#include "command.hpp"
#include "families.hpp"
#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct list_flags : common_flags {
  std::string op;
  std::string backend;
};

/// Empty where the row runs on this machine: on its processor, or on its first GPU.
std::string obstacle(const listed_row& row) {
  const auto found = find_device({is_cpu(row.target) ? device_kind::cpu : device_kind::cuda, 0});
  if (!found) return std::string(found.message());
  const device_facts& device = **found;
  if (!device.runs(row.target)) {
    return fmt::format("needs {}, {} has {}", name_of(row.target),
                       is_cpu(row.target) ? "this processor" : "this GPU", name_of(device.highest));
  }
  if (row.shared_bytes > device.shared_bytes_per_block && is_cuda(row.target)) {
    return fmt::format("needs {} bytes of shared memory, this GPU has {}", row.shared_bytes,
                       device.shared_bytes_per_block);
  }
  return {};
}

json::object json_of(const listed_row& row, std::string_view family) {
  const std::string why_not = obstacle(row);
  json::object object{{"name", json::string(row.name)},
                      {"family", json::string(family)},
                      {"config", row.config},
                      {"isa", json::string(name_of(row.target))},
                      {"eligible", why_not.empty()},
                      {"reason", json::string(why_not)},
                      {"compile_seconds", row.compile_seconds},
                      {"bytes", row.bytes}};
  if (is_cuda(row.target)) {
    object["registers"] = row.resources.registers;
    object["local_bytes"] = row.resources.local_bytes;
    object["shared_bytes"] = row.shared_bytes;
  }
  return object;
}

bool selected(const listed_row& row, const std::string& backend) {
  if (backend.empty()) return true;
  if (backend == "cpu") return is_cpu(row.target);
  if (backend == "cuda") return is_cuda(row.target);
  return name_of(row.target) == backend;
}

/// The rows of one family that the flags select.
struct listing {
  const family* of = nullptr;
  std::vector<listed_row> rows;
};

std::vector<listing> listings_of(const list_flags& flags) {
  const family* const asked = flags.op.empty() ? nullptr : &family_of(flags.op, "--op");
  std::vector<listing> all;
  for (const family* family : all_families()) {
    if (asked != nullptr && family != asked) continue;
    listing part{family, family->rows()};
    std::erase_if(part.rows, [&](const listed_row& row) { return !selected(row, flags.backend); });
    if (!part.rows.empty()) all.push_back(std::move(part));
  }
  return all;
}

void check_backend(const std::string& name) {
  if (name.empty() || name == "cpu" || name == "cuda" || backend_named(name)) return;
  throw failure(fmt::format("--backend: \"{}\" is not a back end, the {} there are: cpu, {}, cuda",
                            name, all_backends.size() + 2, enumerator_list<backend>()));
}

std::string known(double value, std::string text) {
  return value > 0 ? text : "-";
}

/// What a CUDA row takes of a multiprocessor, beside the others' blanks.
void add_resources(std::vector<cell>& cells, const listed_row& row, style look) {
  const bool cuda = is_cuda(row.target);
  const bool measured = row.resources.registers > 0;
  const auto number = [&](bool there, int value) {
    return cell(there ? fmt::format("{}", value) : cuda ? "-" : "", look);
  };
  cells.push_back(number(measured, row.resources.registers));
  cells.push_back(number(row.shared_bytes > 0, (row.shared_bytes + 1023) / 1024));
  cells.push_back(number(measured, row.resources.local_bytes));
}

void print_table(const std::vector<listing>& all) {
  std::vector<column> columns{{"row"}, {"here"}, {"compile s", side::right}, {"KiB", side::right}};
  const bool with_resources = std::ranges::any_of(all, [](const listing& part) {
    return std::ranges::any_of(part.rows,
                               [](const listed_row& row) { return is_cuda(row.target); });
  });
  if (with_resources) {
    for (const char* heading : {"registers", "shared KiB", "local B"}) {
      columns.push_back({heading, side::right});
    }
  }
  table out(std::move(columns));
  std::size_t count = 0;
  std::size_t here = 0;
  std::size_t costed = 0;
  std::string no_gpu;
  double seconds = 0;
  double bytes = 0;
  for (const listing& part : all) {
    for (const listed_row& row : part.rows) {
      const std::string why_not = obstacle(row);
      const bool runs = why_not.empty();
      if (is_cuda(row.target) && no_gpu.empty()) no_gpu = why_not;
      ++count;
      here += runs ? 1 : 0;
      costed += row.compile_seconds > 0 ? 1 : 0;
      seconds += row.compile_seconds;
      bytes += row.bytes;
      const style look = runs ? style::plain : style::dim;
      std::vector<cell> cells{
          {std::string(row.name), look},
          {runs ? "yes" : "no", runs ? style::good : style::dim},
          {known(row.compile_seconds, fmt::format("{:.1f}", row.compile_seconds)), look},
          {known(row.bytes, fmt::format("{:.0f}", row.bytes / 1024.0)), look}};
      if (with_resources) add_resources(cells, row, look);
      out.add(std::move(cells));
    }
  }
  print(out.text(terminal_width()));
  print(fmt::format("\n{} rows, {} of them run here (this device has {})", count, here,
                    name_of(this_device().highest)));
  if (seconds > 0) {
    print(fmt::format("; {:.0f} s to compile, {:.1f} MiB", seconds, bytes / 1048576));
    if (costed < count) print(fmt::format(" ({} of the rows were measured)", costed));
  }
  print("\n");
  if (!no_gpu.empty()) print(fmt::format("CUDA rows: {}\n", no_gpu));
  for (const listing& part : all) {
    const std::string remark = part.of->remark(part.rows);
    if (!remark.empty()) print(fmt::format("{}: {}\n", part.of->name(), remark));
  }
}

exit_status list(const list_flags& flags) {
  check_backend(flags.backend);
  const std::vector<listing> all = listings_of(flags);
  if (flags.json) {
    json::array rows;
    for (const listing& part : all) {
      for (const listed_row& row : part.rows) rows.push_back(json_of(row, part.of->name()));
    }
    print_json(json::object{{"device", json::string(name_of(this_device().highest))},
                            {"rows", std::move(rows)}});
  } else if (!all.empty()) {
    print_table(all);
  }
  if (!all.empty()) return exit_status::success;
  throw failure(fmt::format("--backend: {} has 0 rows in this build", flags.backend),
                exit_status::no);
}

}  // namespace

void add_list(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("list", "The rows of this build");
  const auto flags = std::make_shared<list_flags>();
  command->add_option("--op", flags->op, "Only rows that serve one of the operations below")
      ->type_name("OP");
  command
      ->add_option("--backend", flags->backend,
                   "Only rows of this back end (cpu, cuda, cpu_avx512, ...)")
      ->type_name("B");
  add_common_flags(*command, *flags);
  command->footer("Example:\n  tessera list --op flash_attention --backend cpu_avx2\n\n" +
                  op_paragraphs());
  command->callback([flags, &status] { status = list(*flags); });
}

}  // namespace tessera::tool
