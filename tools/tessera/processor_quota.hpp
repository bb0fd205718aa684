// How much processor time the control groups of Linux leave a process: a limit that no affinity
// shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::tool {

namespace quota {

/// Processors' worth of time of one group; nothing without a limit, or where `folder` is no group.
inline std::optional<double> of_group(const std::string& folder) {
  std::string limit;
  double period = 0;
  if (std::ifstream both(folder + "/cpu.max"); !(both >> limit >> period)) {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> limit;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (limit.empty() || limit == "max" || limit.front() == '-' || period <= 0) return std::nullopt;
  return std::strtod(limit.c_str(), nullptr) / period;
}

/// The least of a group and those above it, up to `root`.
inline std::optional<double> of_path(const std::string& root, std::string path) {
  std::optional<double> least;
  for (;;) {
    const std::optional<double> found = of_group(root + path);
    if (found && (!least || *found < *least)) least = found;
    const std::size_t parent = path.rfind('/');
    if (parent == std::string::npos) return least;
    path.resize(parent);
  }
}

}  // namespace quota

/// Processors' worth of time that a process may use. `groups` is its /proc/self/cgroup, `root` the
/// folder of mounted groups: those of version 2 themselves, or a folder for each set of
/// controllers. Groups whose path is that of another name space count by their root.
inline std::optional<double> processor_quota(std::istream&& groups,
                                             const std::string& root = "/sys/fs/cgroup") {
  std::optional<double> least;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_ours =
        controllers.empty() || ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!is_ours) continue;
    // A folder of several controllers may list them in another order; `cpu` is a link to it.
    for (const std::string& folder : {controllers, std::string(controllers.empty() ? "" : "cpu")}) {
      const std::string mounted = folder.empty() ? root : root + "/" + folder;
      const std::optional<double> found = quota::of_path(mounted, line.substr(second + 1));
      if (found && (!least || *found < *least)) least = found;
    }
  }
  return least;
}

/// Threads that use up such a quota, at most `available`.
inline int threads_within(const std::optional<double>& processors, int available) {
  if (!processors || *processors >= available) return available;
  return std::max(1, static_cast<int>(std::ceil(*processors)));
}

}  // namespace tessera::tool
