#include "doctor_checks.hpp"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>

#include "families.hpp"
#include "processor_quota.hpp"

namespace tessera::tool {
namespace {

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
  if (whole.tiles == tile_access::refused) {
    findings.push_back(
        {"the operating system refused this process the tile registers of AMX, "
         "which cpu_amx_bf16 rows need",
         "give signal stacks (sigaltstack) 8 KB more, or lift the seccomp filter of "
         "arch_prctl"});
  }
  if (whole.tiles == tile_access::not_saved) {
    findings.push_back(
        {"the operating system does not keep the tile registers of AMX, which "
         "cpu_amx_bf16 rows need",
         "use Linux 5.16 or newer; in a virtual machine, let it have amx-tile, "
         "amx-bf16 and amx-int8"});
  }
  std::size_t here = 0, all = 0;
  for (const family* family : all_families()) {
    for (const listed_row& row : family->rows()) {
      here += row.target == whole.highest ? 1 : 0;
      ++all;
    }
  }
  if (here == 0) {
    findings.push_back({fmt::format("this build has 0 of its {} rows for {}, which this device has",
                                    all, name_of(whole.highest)),
                        "build with a compiler and row list that have it"});
  }
}

void check_threads(const device_facts& device, int threads, std::vector<finding>& findings) {
  const auto quota = processor_quota(std::ifstream("/proc/self/cgroup"));
  const int available = threads_within(quota, device.available_threads);
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
        {fmt::format("{} threads will be used, this process may use {}", threads, available),
         fmt::format("set OMP_NUM_THREADS={}", available)});
  }
  if (quota && *quota < device.available_threads) {
    findings.push_back(
        {fmt::format("its control group leaves this process the time of {:.4g} of {} processors",
                     *quota, device.available_threads),
         "raise cpu.max of the group or the container's limit: threads beyond it stand still"});
  }
  if (device.available_threads < device.hardware_threads) {
    findings.push_back({fmt::format("this process may use {} of the machine's {} hardware threads",
                                    device.available_threads, device.hardware_threads),
                        "widen its CPU affinity or its container's limit"});
  }
}

void check_neighbours(double lost_share, std::vector<finding>& findings) {
  if (lost_share <= 0.02) return;
  findings.push_back({fmt::format("other programs or virtual machines took {:.0f} % of the cores "
                                  "while the ceilings were measured",
                                  100 * lost_share),
                      "measure again when they are idle: the ceilings are too low"});
}

void check_tables(const std::vector<opened_table>& tables, std::vector<finding>& findings) {
  for (const opened_table& table : tables) {
    const std::string warning = warning_of(table.file());
    if (!warning.empty()) {
      findings.push_back({warning, "`tessera table verify` names the lines, `compact` drops them"});
    }
  }
}

void check_system(std::vector<finding>& findings) {
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

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::vector<finding> diagnose(int threads, double lost_share,
                              const std::vector<opened_table>& tables) {
  std::vector<finding> findings;
  const device_facts& device = this_device();
  check_instructions(device, findings);
  check_threads(device, threads, findings);
  check_system(findings);
  check_neighbours(lost_share, findings);
  check_tables(tables, findings);
  for (const std::string& warning : process_environment().warnings) {
    findings.push_back({warning, "correct or unset the variable"});
  }
  return findings;
}

}  // namespace tessera::tool
