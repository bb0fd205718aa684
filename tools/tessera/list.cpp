// `tessera list`: the rows of this build.
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/registry.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>

#include "attention_call.hpp"
#include "command.hpp"
#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct list_flags : common_flags {
  std::string op;
  std::string backend;
};

/// "varlen, lengths": what every row of the list has, named once instead of in every line.
std::string common_features(const std::vector<const flash_instance*>& rows) {
  std::string list;
  for (const flash_feature one : all_flash_features) {
    bool everywhere = true;
    for (const flash_instance* row : rows) everywhere = everywhere && row->config.features.has(one);
    if (!everywhere) continue;
    if (!list.empty()) list += ", ";
    list += enumerator_name(one);
  }
  return list.empty() ? "no feature in common" : list;
}

/// Empty where the row runs on this machine.
std::string obstacle(const flash_config& config) {
  const device_facts& device = this_device();
  if (device.runs(config.target)) return {};
  return fmt::format("needs {}, this device has {}", name_of(config.target),
                     name_of(device.highest));
}

json::object to_json(const flash_instance& row) {
  json::array features;
  for (const flash_feature one : all_flash_features) {
    if (row.config.features.has(one)) {
      features.push_back(json::string(enumerator_name(one)));
    }
  }
  const flash_config& config = row.config;
  const std::string why_not = obstacle(config);
  return {{"name", json::string(row.name)},
          {"family", "flash_fwd"},
          {"config",
           {{"target", json::string(name_of(config.target))},
            {"type", json::string(name_of(config.type))},
            {"head_dim", config.head_dim},
            {"v_head_dim", config.v_head_dim},
            {"mask", json::string(enumerator_name(config.mask))},
            {"phase", json::string(enumerator_name(config.phase))},
            {"features", features},
            {"block_q", config.block_q},
            {"block_kv", config.block_kv}}},
          {"isa", json::string(name_of(config.target))},
          {"eligible", why_not.empty()},
          {"reason", json::string(why_not)},
          {"compile_seconds", static_cast<double>(row.compile_seconds)},
          {"bytes", row.object_bytes}};
}

bool selected(const flash_instance& row, const std::string& backend) {
  if (backend.empty()) return true;
  if (backend == "cpu") return is_cpu(row.config.target);
  return name_of(row.config.target) == backend;
}

void check_backend(const std::string& name) {
  if (name.empty() || name == "cpu" || name.starts_with("cuda") || backend_named(name)) return;
  throw failure(fmt::format("--backend: \"{}\" is not a back end, the {} there are: cpu, {}, cuda",
                            name, all_backends.size() + 2, enumerator_list<backend>()));
}

std::string known(double value, std::string text) {
  return value > 0 ? text : "-";
}

void print_table(const std::vector<const flash_instance*>& rows) {
  table out({{"row"}, {"phase"}, {"here"}, {"compile s", side::right}, {"KiB", side::right}});
  std::size_t here = 0;
  double seconds = 0;
  double bytes = 0;
  for (const flash_instance* row : rows) {
    const bool runs = this_device().runs(row->config.target);
    here += runs ? 1 : 0;
    seconds += static_cast<double>(row->compile_seconds);
    bytes += row->object_bytes;
    const style look = runs ? style::plain : style::dim;
    out.add({{std::string(row->name), look},
             {std::string(enumerator_name(row->config.phase)), look},
             {runs ? "yes" : "no", runs ? style::good : style::dim},
             {known(row->compile_seconds, fmt::format("{:.1f}", row->compile_seconds)), look},
             {known(row->object_bytes, fmt::format("{:.0f}", row->object_bytes / 1024.0)), look}});
  }
  print(out.text(terminal_width()));
  print(fmt::format("\n{} rows, {} of them run here (this device has {})", rows.size(), here,
                    name_of(this_device().highest)));
  if (seconds > 0)
    print(fmt::format("; {:.0f} s to compile, {:.1f} MiB", seconds, bytes / 1048576));
  print(fmt::format("\nEvery row has {}.\n", common_features(rows)));
}

exit_status list(const list_flags& flags) {
  if (!flags.op.empty()) static_cast<void>(op_named(flags.op, "--op"));
  check_backend(flags.backend);
  std::vector<const flash_instance*> rows;
  for (const flash_instance& row : flash_fwd_registry()) {
    if (selected(row, flags.backend)) rows.push_back(&row);
  }
  if (flags.json) {
    json::array all;
    for (const flash_instance* row : rows) all.push_back(to_json(*row));
    print_json(json::object{{"device", json::string(name_of(this_device().highest))},
                            {"rows", std::move(all)}});
  } else if (!rows.empty()) {
    print_table(rows);
  }
  if (!rows.empty()) return exit_status::success;
  throw failure(fmt::format("--backend: {} has 0 of the {} rows of this build", flags.backend,
                            flash_fwd_registry().size()),
                exit_status::no);
}

}  // namespace

void add_list(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("list", "The rows of this build");
  const auto flags = std::make_shared<list_flags>();
  command
      ->add_option("--op", flags->op,
                   "Only rows that serve this operation (flash_attention, attention, "
                   "scaled_dot_product_attention: one family serves all three)")
      ->type_name("OP");
  command
      ->add_option("--backend", flags->backend, "Only rows of this back end (cpu, cpu_avx512, ...)")
      ->type_name("B");
  add_common_flags(*command, *flags);
  command->footer("Example:\n  tessera list --op flash_attention --backend cpu_avx2");
  command->callback([flags, &status] { status = list(*flags); });
}

}  // namespace tessera::tool
