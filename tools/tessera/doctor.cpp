// `tessera doctor`: the machine as the library sees it, what it can do at most, what is wrong and
// how to mend it.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/version.hpp>

#include "bench/support/ceilings.hpp"
#include "bench/support/pinning.hpp"
#include "bench/support/tenants.hpp"
#include "command.hpp"
#include "device_file.hpp"
#include "doctor_checks.hpp"
#include "doctor_gpus.hpp"
#include "families.hpp"
#include "json.hpp"
#include "table_files.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

constexpr std::array variables{"TESSERA_EXPLAIN", "TESSERA_CPU",       "TESSERA_ROW",
                               "TESSERA_OVERLAY", "TESSERA_TABLE_DIR", "TESSERA_RECORD",
                               "OMP_NUM_THREADS"};

/// What is measured, and what others took of the cores meanwhile.
struct measured_machine {
  bench::ceilings limits;
  double lost_share = 0;
};

measured_machine measure_machine() {
  static_cast<void>(this_device());  // counts the processors that this process may use
  const bench::pinned_threads pinned;
  const bench::tenant_watch tenants;
  const double lost = tenants.lost_seconds();
  const double begin = bench::now_seconds();
  measured_machine found;
  found.limits = bench::measure_ceilings();
  const double spent = (bench::now_seconds() - begin) * found.limits.threads;
  found.lost_share = (tenants.lost_seconds() - lost) / spent;
  return found;
}

std::size_t row_count() {
  std::size_t count = 0;
  for (const family* family : all_families()) count += family->rows().size();
  return count;
}

/// "12 lines, 10 answer for rows of this build, 2 are hints of other code", or why there are none.
std::string state_of(const opened_table& table) {
  const lookup_file_state& file = table.file();
  if (file.condition != lookup_file_condition::read) return std::string(name_of(file.condition));
  const standing_counts lines = count_standings(table.table);
  std::string text = fmt::format("{} line{}", file.rows, file.rows == 1 ? "" : "s");
  const auto verb = [](std::int64_t count, std::string_view singular, std::string_view plural) {
    return fmt::format(", {} {}", count, count == 1 ? singular : plural);
  };
  if (file.rows > 0) text += verb(lines.answers, "answers", "answer") + " for rows of this build";
  if (lines.hints > 0) text += verb(lines.hints, "is a hint", "are hints") + " of other code";
  if (file.damaged > 0) text += fmt::format(", {} damaged", file.damaged);
  if (file.newer > 0) text += fmt::format(", {} of a newer schema", file.newer);
  return text;
}

json::array tables_json(const std::vector<opened_table>& tables) {
  json::array all;
  for (const opened_table& table : tables) {
    const lookup_file_state& file = table.file();
    const standing_counts lines = count_standings(table.table);
    all.push_back(json::object{{"layer", table.layer},
                               {"path", file.path},
                               {"condition", json::string(name_of(file.condition))},
                               {"rows", file.rows},
                               {"answers", lines.answers},
                               {"hints", lines.hints},
                               {"damaged", file.damaged},
                               {"newer", file.newer}});
  }
  return all;
}

json::object ceilings_json(const bench::ceilings& limits) {
  return {{"threads", limits.threads},
          {"isa", json::string(limits.isa)},
          {"clock_gigahertz",
           limits.clock_ghz > 0 ? json::value(limits.clock_ghz) : json::value(nullptr)},
          {"fma_f32_gflops_per_second", limits.fma_f32_gflops},
          {"fma_f32_gflops_per_second_one_thread", limits.fma_f32_one_core},
          {"fma_avx2_gflops_per_second",
           limits.fma_avx2_gflops > 0 ? json::value(limits.fma_avx2_gflops) : json::value(nullptr)},
          {"bf16_dot_gflops_per_second",
           limits.bf16_dot_gflops > 0 ? json::value(limits.bf16_dot_gflops) : json::value(nullptr)},
          {"byte_dot_gops_per_second",
           limits.byte_dot_gops > 0 ? json::value(limits.byte_dot_gops) : json::value(nullptr)},
          {"amx_bf16_gflops_per_second",
           limits.amx_bf16_gflops > 0 ? json::value(limits.amx_bf16_gflops) : json::value(nullptr)},
          {"read_gigabytes_per_second", limits.read_gbytes},
          {"read_pattern", json::string(limits.read_pattern)},
          {"read_gigabytes_per_second_one_thread", limits.read_one_core},
          {"copy_gigabytes_per_second", limits.copy_gbytes},
          {"round_trip_nanoseconds",
           limits.round_trip_ns > 0 ? json::value(limits.round_trip_ns) : json::value(nullptr)},
          {"buffer_bytes", limits.buffer_bytes}};
}

void print_json_report(const bench::ceilings& limits, const examined_gpus& gpus,
                       const std::vector<opened_table>& tables,
                       const std::vector<finding>& findings) {
  json::object set;
  for (const char* name : variables) {
    const auto value = variable(name);
    set[name] = value ? json::value(*value) : json::value(nullptr);
  }
  json::array wrong;
  for (const finding& finding : findings) {
    wrong.push_back(json::object{{"fact", finding.fact}, {"remedy", finding.remedy}});
  }
  print_json(json::object{{"version", json::string(version)},
                          {"device", to_json(this_device())},
                          {"rows", row_count()},
                          {"ceilings", ceilings_json(limits)},
                          {"cuda", to_json(gpus)},
                          {"tables", tables_json(tables)},
                          {"environment", std::move(set)},
                          {"findings", std::move(wrong)}});
}

std::string size_text(std::int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
}

std::string_view tiles_text(tile_access tiles) {
  switch (tiles) {
    case tile_access::absent:
      return "none";
    case tile_access::not_saved:
      return "in the processor, but the operating system does not keep them";
    case tile_access::refused:
      return "in the processor, but the operating system refused them to this process";
    case tile_access::granted:
      return "granted to this process";
  }
  return "";
}

void print_device() {
  const device_facts& device = this_device();
  print(styled(style::bold, "Device") + "\n");
  print_fact("processor",
             device.product_name().empty() ? "unnamed" : std::string(device.product_name()));
  std::string isas;
  for (const backend target : all_backends) {
    if (device.runs(target)) isas += (isas.empty() ? "" : ", ") + std::string(name_of(target));
  }
  print_fact("back ends", isas);
  print_fact("AMX tiles", std::string(tiles_text(device.tiles)));
  print_fact("cores",
             fmt::format("{} socket{}, {} cores, {} hardware threads, {} for this process",
                         device.sockets, device.sockets == 1 ? "" : "s", device.physical_cores,
                         device.hardware_threads, device.available_threads));
  print_fact("memory nodes", std::to_string(device.memory_nodes) +
                                 (device.memory_nodes > 1
                                      ? ": the threads beside each pack the keys that they share"
                                      : ""));
  print_fact("caches", fmt::format("L1d {} and L2 {} of a core, L3 {}", size_text(device.l1d_bytes),
                                   size_text(device.l2_bytes), size_text(device.l3_bytes)));
}

void print_ceilings(const bench::ceilings& limits) {
  print(styled(style::bold, "Measured ceilings") +
        fmt::format(" ({} thread{}, {}{})\n", limits.threads, limits.threads == 1 ? "" : "s",
                    limits.isa,
                    limits.clock_ghz > 0 ? fmt::format(", {:.2f} GHz", limits.clock_ghz) : ""));
  print_fact("f32 FMA", fmt::format("{:8.1f} GFLOP/s   (one thread {:.1f})", limits.fma_f32_gflops,
                                    limits.fma_f32_one_core));
  if (limits.fma_avx2_gflops > 0) {
    print_fact("  with AVX2", fmt::format("{:8.1f} GFLOP/s", limits.fma_avx2_gflops));
  }
  print_fact("bf16 dot", limits.bf16_dot_gflops > 0
                             ? fmt::format("{:8.1f} GFLOP/s", limits.bf16_dot_gflops)
                             : "       - the device has no bf16 dot product");
  if (limits.byte_dot_gops > 0) {
    print_fact("i8 dot", fmt::format("{:8.1f} GOP/s", limits.byte_dot_gops));
  }
  if (limits.amx_bf16_gflops > 0) {
    print_fact("bf16 AMX", fmt::format("{:8.1f} GFLOP/s", limits.amx_bf16_gflops));
  }
  print_fact("read", fmt::format("{:8.1f} GB/s      (one thread {:.1f}; {})", limits.read_gbytes,
                                 limits.read_one_core, limits.read_pattern));
  print_fact("copy",
             fmt::format("{:8.1f} GB/s      (bytes read and bytes written)", limits.copy_gbytes));
  if (limits.round_trip_ns > 0) {
    print_fact("round trip",
               fmt::format("{:8.0f} ns        (a cache line to another thread and back)",
                           limits.round_trip_ns));
  }
}

void print_report(const bench::ceilings& limits, const examined_gpus& gpus,
                  const std::vector<opened_table>& tables, const std::vector<finding>& findings) {
  print_device();
  print_ceilings(limits);
  print_gpus(gpus);
  print(styled(style::bold, "Library") + "\n");
  print_fact("version", fmt::format("{}, {} rows", version, row_count()));
  print(styled(style::bold, "Lookup tables") + "\n");
  for (const opened_table& table : tables) {
    print_fact(table.layer, fmt::format("{}: {}", table.file().path, state_of(table)));
  }
  print(styled(style::bold, "Environment") + "\n");
  for (const char* name : variables) {
    const auto value = variable(name);
    print(fmt::format("  {:<18} {}\n", name, value ? *value : styled(style::dim, "not set")));
  }
  if (findings.empty()) {
    print(styled(style::good, "Nothing is wrong.") + "\n");
    return;
  }
  print(styled(style::warning, "To mend") + "\n");
  for (const finding& finding : findings)
    print(fmt::format("  {}\n    {}\n", finding.fact, finding.remedy));
}

exit_status doctor(const common_flags& flags) {
  measured_machine machine;
  examined_gpus gpus;
  {
    progress steps(flags.quiet, 2);
    steps.step("measuring ceilings");
    machine = measure_machine();
    steps.step("measuring GPUs");
    gpus = examine_gpus();
  }
  const std::vector<opened_table> tables = open_tables({});
  std::vector<finding> findings = diagnose(omp_get_max_threads(), machine.lost_share, tables);
  check_gpus(gpus, findings);
  if (flags.json) {
    print_json_report(machine.limits, gpus, tables, findings);
  } else {
    print_report(machine.limits, gpus, tables, findings);
  }
  return exit_status::success;
}

}  // namespace

void add_doctor(CLI::App& program, exit_status& status) {
  CLI::App* command =
      program.add_subcommand("doctor", "This machine: facts, ceilings, what is wrong");
  const auto flags = std::make_shared<common_flags>();
  add_common_flags(*command, *flags);
  command->footer("Example:\n  tessera doctor\n  tessera doctor --json > device.json");
  command->callback([flags, &status] { status = doctor(*flags); });
}

}  // namespace tessera::tool
