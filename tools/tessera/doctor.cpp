// `tessera doctor`: the machine as the library sees it, what it can do at most, what is wrong and
// how to mend it.
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/registry.hpp>
#include <tessera/version.hpp>

#include "bench/support/ceilings.hpp"
#include "command.hpp"
#include "device_file.hpp"
#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

constexpr std::array variables{"TESSERA_EXPLAIN",   "TESSERA_CPU",    "TESSERA_ROW",
                               "TESSERA_TABLE_DIR", "TESSERA_RECORD", "OMP_NUM_THREADS"};

/// Something that is not as it should be, and what helps.
struct finding {
  std::string fact;
  std::string remedy;
};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void check_instructions(const device_facts& device, std::vector<finding>& findings) {
  const device_facts whole = detect_device();
  if (device.highest != whole.highest) {
    findings.push_back({fmt::format("TESSERA_CPU={} caps this device at {}, it has {}",
                                    variable("TESSERA_CPU").value_or(""), name_of(device.highest),
                                    name_of(whole.highest)),
                        "unset TESSERA_CPU to use all of it"});
  }
  std::size_t here = 0;
  for (const flash_instance& row : flash_fwd_registry()) {
    here += row.config.target == whole.highest ? 1 : 0;
  }
  if (here == 0) {
    findings.push_back({fmt::format("this build has 0 of its {} rows for {}, which this device has",
                                    flash_fwd_registry().size(), name_of(whole.highest)),
                        "build with a compiler and row list that have it"});
  }
}

void check_threads(const device_facts& device, int threads, std::vector<finding>& findings) {
  const int available = device.available_threads;
  if (threads < available) {
    const auto set = variable("OMP_NUM_THREADS");
    findings.push_back(
        {fmt::format("{} thread{} will be used, this process may use {}", threads,
                     threads == 1 ? "" : "s", available),
         set ? fmt::format("unset OMP_NUM_THREADS (it is {}) or set it to {}", *set, available)
             : fmt::format("set OMP_NUM_THREADS={}", available)});
  }
  if (threads > available) {
    findings.push_back(
        {fmt::format("{} threads will be used on {} hardware threads", threads, available),
         fmt::format("set OMP_NUM_THREADS={}", available)});
  }
  if (available < device.hardware_threads) {
    findings.push_back({fmt::format("this process may use {} of the machine's {} hardware threads",
                                    available, device.hardware_threads),
                        "widen its CPU affinity or its container's limit"});
  }
}

void check_system(const device_facts& device, std::vector<finding>& findings) {
  const std::string load = first_line("/proc/loadavg");
  double busy = 0;
  std::from_chars(load.data(), load.data() + load.size(), busy);
  if (busy > 0.5 * device.available_threads) {
    findings.push_back({fmt::format("the machine is busy: load {:.1f} on {} hardware threads", busy,
                                    device.available_threads),
                        "measure when it is idle: the ceilings below are too low"});
  }
  if (first_line("/sys/kernel/mm/transparent_hugepage/enabled").find("[never]") !=
      std::string::npos) {
    findings.push_back({"huge pages are off, large tensors pay for address translation",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"});
  }
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor == "powersave") {
    findings.push_back({"the CPU frequency governor is powersave",
                        "cpupower frequency-set -g performance (as root)"});
  }
#if !defined(NDEBUG)
  findings.push_back({"this build has assertions on, its timings mean little",
                      "configure with CMAKE_BUILD_TYPE=Release"});
#endif
}

std::vector<finding> diagnose(int threads) {
  std::vector<finding> findings;
  const device_facts& device = this_device();
  check_instructions(device, findings);
  check_threads(device, threads, findings);
  check_system(device, findings);
  for (const std::string& warning : process_environment().warnings) {
    findings.push_back({warning, "correct or unset the variable"});
  }
  return findings;
}

json::object ceilings_json(const bench::ceilings& limits) {
  return {{"threads", limits.threads},
          {"isa", json::string(limits.isa)},
          {"fma_f32_gflops_per_second", limits.fma_f32_gflops},
          {"fma_f32_gflops_per_second_one_thread", limits.fma_f32_one_core},
          {"bf16_dot_gflops_per_second",
           limits.bf16_dot_gflops > 0 ? json::value(limits.bf16_dot_gflops) : json::value(nullptr)},
          {"read_gigabytes_per_second", limits.read_gbytes},
          {"read_gigabytes_per_second_one_thread", limits.read_one_core},
          {"copy_gigabytes_per_second", limits.copy_gbytes},
          {"buffer_bytes", limits.buffer_bytes}};
}

void print_json_report(const bench::ceilings& limits, const std::vector<finding>& findings) {
  json::object set;
  for (const char* name : variables) {
    const auto value = variable(name);
    set[name] = value ? json::value(*value) : json::value(nullptr);
  }
  json::array wrong;
  for (const finding& one : findings) {
    wrong.push_back(json::object{{"fact", one.fact}, {"remedy", one.remedy}});
  }
  print_json(json::object{{"version", json::string(version)},
                          {"device", to_json(this_device())},
                          {"rows", flash_fwd_registry().size()},
                          {"ceilings", ceilings_json(limits)},
                          {"environment", std::move(set)},
                          {"findings", std::move(wrong)}});
}

std::string size_text(std::int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
}

void line(std::string_view name, const std::string& text) {
  print(fmt::format("  {:<12} {}\n", name, text));
}

void print_device() {
  const device_facts& device = this_device();
  print(styled(style::bold, "Device") + "\n");
  line("processor", device.product_name().empty() ? "unnamed" : std::string(device.product_name()));
  std::string isas;
  for (const backend target : all_backends) {
    if (device.runs(target)) isas += (isas.empty() ? "" : ", ") + std::string(name_of(target));
  }
  line("back ends", isas);
  line("cores", fmt::format("{} socket{}, {} cores, {} hardware threads, {} for this process",
                            device.sockets, device.sockets == 1 ? "" : "s", device.physical_cores,
                            device.hardware_threads, device.available_threads));
  line("caches", fmt::format("L1d {} and L2 {} of a core, L3 {}", size_text(device.l1d_bytes),
                             size_text(device.l2_bytes), size_text(device.l3_bytes)));
}

void print_ceilings(const bench::ceilings& limits) {
  print(styled(style::bold, "Measured ceilings") +
        fmt::format(" ({} thread{}, {})\n", limits.threads, limits.threads == 1 ? "" : "s",
                    limits.isa));
  line("f32 FMA", fmt::format("{:8.1f} GFLOP/s   (one thread {:.1f})", limits.fma_f32_gflops,
                              limits.fma_f32_one_core));
  line("bf16 dot", limits.bf16_dot_gflops > 0
                       ? fmt::format("{:8.1f} GFLOP/s", limits.bf16_dot_gflops)
                       : "       - the device has no bf16 dot product");
  line("read", fmt::format("{:8.1f} GB/s      (one thread {:.1f})", limits.read_gbytes,
                           limits.read_one_core));
  line("copy", fmt::format("{:8.1f} GB/s      (bytes read and bytes written)", limits.copy_gbytes));
}

void print_report(const bench::ceilings& limits, const std::vector<finding>& findings) {
  print_device();
  print_ceilings(limits);
  print(styled(style::bold, "Library") + "\n");
  line("version", fmt::format("{}, {} rows", version, flash_fwd_registry().size()));
  line("tables", "none in this version: rows are chosen by predicted time");
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
  for (const finding& one : findings) print(fmt::format("  {}\n    {}\n", one.fact, one.remedy));
}

exit_status doctor(const common_flags& flags) {
  const std::vector<finding> findings = diagnose(omp_get_max_threads());
  bench::ceilings limits;
  {
    progress steps(flags.quiet, 1);
    steps.step("measuring ceilings");
    limits = bench::measure_ceilings();
  }
  if (flags.json) {
    print_json_report(limits, findings);
  } else {
    print_report(limits, findings);
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
