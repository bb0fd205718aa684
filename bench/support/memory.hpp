// Memory for measurements: aligned to a huge page and backed by huge pages where the system gives
// them, so that address translation is not what is measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tessera::bench {

struct free_memory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// Owns at least the bytes asked for; the contents are whatever was there.
class buffer {
 public:
  buffer() = default;
  explicit buffer(std::size_t bytes) : size_(bytes) {
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    const std::size_t alignment = bytes < huge_page ? 64 : huge_page;
    const std::size_t whole =
        (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
    if (!memory_) throw std::bad_alloc();
#if defined(__linux__)
    if (alignment == huge_page) static_cast<void>(madvise(memory_.get(), whole, MADV_HUGEPAGE));
#endif
  }

  std::byte* data() const noexcept {
    return memory_.get();
  }
  std::size_t size() const noexcept {
    return size_;
  }

 private:
  std::unique_ptr<std::byte, free_memory> memory_;
  std::size_t size_ = 0;
};

/// Bytes of the largest cache that the operating system reports for CPU 0; 32 MiB where it does
/// not say.
inline std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
#if defined(__linux__)
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::size_t size = 0;
    char unit = 0;
    if (!(file >> size)) break;
    file >> unit;
    if (unit == 'K') size <<= 10;
    if (unit == 'M') size <<= 20;
    largest = std::max(largest, size);
  }
#endif
  return largest > 0 ? largest : std::size_t{32} << 20;
}

/// Bytes of memory that the machine has; infinite where it does not say.
inline double physical_bytes() {
#if defined(__linux__)
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
#else
  return std::numeric_limits<double>::infinity();
#endif
}

}  // namespace tessera::bench
