// What the library knows of a device: of the machine's processor, instruction sets, caches and
// cores; of a GPU, what its kernels are cut by. A plain struct, so that tests and `tessera explain
// --device` can describe a machine that is not there.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// The kind of device that runs rows of a backend.
constexpr device_kind kind_of(backend target) noexcept {
  return is_cpu(target) ? device_kind::cpu : device_kind::cuda;
}

/// Whether this process may use the tile registers of AMX-BF16, and what is in the way.
enum class tile_access : std::uint8_t {
  absent,     ///< the processor has none
  not_saved,  ///< the operating system does not keep them between threads (XCR0)
  refused,    ///< it does, and did not let this process have them
  granted,    ///< it does and did
};

/// The same in words, behind the name of something else that the processor has.
constexpr std::string_view reason_of(tile_access tiles) noexcept {
  switch (tiles) {
    case tile_access::absent:
      return ": it has no AMX";
    case tile_access::not_saved:
      return ": the operating system does not keep the registers of AMX";
    case tile_access::refused:
      return ": the operating system refused this process the registers of AMX";
    case tile_access::granted:
      break;
  }
  return {};
}

/// Facts of one device. Sizes in bytes; 0 where the device does not say, or where a fact is of the
/// other kind of device.
struct device_facts {
  device_kind kind = device_kind::cpu;
  /// The most specialised backend that may run. CPU: CPUID, XCR0 and the cap TESSERA_CPU. GPU: its
  /// compute capability; cpu_generic where no backend is for it.
  backend highest = backend::cpu_generic;
  int sockets = 1;
  int physical_cores = 1;                    ///< of the machine
  int hardware_threads = 1;                  ///< of the machine
  int available_threads = 1;                 ///< that this process may use (affinity)
  int memory_nodes = 1;                      ///< beside those that it may use
  std::int64_t l1d_bytes = 32 * 1024;        ///< of one core
  std::int64_t l2_bytes = 1024 * 1024;       ///< of one core; of a GPU, all of it
  std::int64_t l3_bytes = 16 * 1024 * 1024;  ///< of one cluster of cores
  int l3_threads = 0;                        ///< hardware threads of such a cluster; 0: not known
  /// VDPBF16PS a cycle as a percentage of f32 multiply-adds of that width; 0: not known, taken to
  /// be as many.
  int bf16_dot_percent = 0;
  tile_access tiles = tile_access::absent;
  int ordinal = 0;             ///< among the devices of its kind
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;           ///< the most that a kernel may ask for
  int shared_bytes_per_multiprocessor = 0;  ///< that its blocks share
  std::int64_t memory_bytes = 0;
  int core_clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  std::array<char, 64> product{};  ///< name as the device reports it, 0-terminated

  std::string_view product_name() const noexcept { return product.data(); }
  device_id id() const noexcept { return {kind, ordinal}; }
  /// True if rows of that backend run here.
  constexpr bool runs(backend target) const noexcept {
    return kind_of(target) == kind && target <= highest;
  }
  /// What a GPU's memory moves at most: two transfers a clock.
  constexpr double memory_bytes_per_second() const noexcept {
    return 2e3 * static_cast<double>(memory_clock_khz) * static_cast<double>(memory_bus_bits) / 8;
  }
  friend constexpr bool operator==(const device_facts&, const device_facts&) = default;
};

}  // namespace tessera
