// How much of a measured span other programs took: what threads of this process waited for a core
// (the scheduler's run-queue delay) and what the hypervisor gave to other machines (steal). A round
// that lost more than a hundredth of its time is no statement about the code that was timed.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__linux__)
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#endif
#include <time.h>

namespace tessera::bench {

/// Seconds of processor time that all threads of this process have used.
inline double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// Watches the threads that exist when it is made. Reports 0 where the system does not say.
class tenant_watch {
 public:
  tenant_watch() {
#if defined(__linux__)
    stat_ = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    DIR* tasks = opendir("/proc/self/task");
    if (tasks == nullptr) return;
    while (const dirent* entry = readdir(tasks)) {
      if (entry->d_name[0] == '.') continue;
      const std::string path = std::string("/proc/self/task/") + entry->d_name + "/schedstat";
      const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (file >= 0) threads_.push_back(file);
    }
    closedir(tasks);
#endif
  }
  tenant_watch(const tenant_watch&) = delete;
  tenant_watch& operator=(const tenant_watch&) = delete;
  ~tenant_watch() {
#if defined(__linux__)
    for (const int file : threads_) close(file);
    if (stat_ >= 0) close(stat_);
#endif
  }

  /// Core seconds taken by others since some point; differences are what counts.
  double lost_seconds() const {
    return waited_seconds() + stolen_seconds();
  }

  double waited_seconds() const {
    double waited = 0;
#if defined(__linux__)
    for (const int file : threads_) {
      unsigned long long ran = 0, delayed = 0;
      char text[96];
      if (!read_start(file, text, sizeof text)) continue;
      if (std::sscanf(text, "%llu %llu", &ran, &delayed) == 2) {
        waited += static_cast<double>(delayed) * 1e-9;
      }
    }
#endif
    return waited;
  }

  /// Counted by the system in ticks, mostly of 10 ms.
  double stolen_seconds() const {
#if defined(__linux__)
    char text[256];
    unsigned long long at[8] = {};
    if (stat_ < 0 || !read_start(stat_, text, sizeof text)) return 0;
    if (std::sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", at, at + 1, at + 2, at + 3,
                    at + 4, at + 5, at + 6, at + 7) == 8) {
      return static_cast<double>(at[7]) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
#endif
    return 0;
  }

 private:
#if defined(__linux__)
  static bool read_start(int file, char* text, std::size_t size) {
    const ssize_t count = pread(file, text, size - 1, 0);
    if (count <= 0) return false;
    text[count] = '\0';
    return true;
  }
  int stat_ = -1;
#endif
  std::vector<int> threads_;  // open schedstat files
};

}  // namespace tessera::bench
