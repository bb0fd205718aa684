// What the library knows of the machine: instruction sets that the processor and the operating
// system both support, caches, cores. A plain struct, so that tests and `tessera explain --device`
// can describe a machine that is not there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Facts of one device. Sizes in bytes; 0 where the machine does not say.
struct device_facts {
  device_kind kind = device_kind::cpu;
  /// The most specialised backend that may run: CPUID, XCR0 and the cap TESSERA_CPU.
  backend highest = backend::cpu_generic;
  int sockets = 1;
  int physical_cores = 1;                    ///< of the machine
  int hardware_threads = 1;                  ///< of the machine
  int available_threads = 1;                 ///< that this process may use (affinity)
  std::int64_t l1d_bytes = 32 * 1024;        ///< of one core
  std::int64_t l2_bytes = 1024 * 1024;       ///< of one core
  std::int64_t l3_bytes = 16 * 1024 * 1024;  ///< of one cluster of cores
  std::array<char, 64> product{};            ///< name as the processor reports it, 0-terminated

  std::string_view product_name() const noexcept { return product.data(); }
  /// True if rows of that backend run here.
  constexpr bool runs(backend target) const noexcept {
    return is_cpu(target) == (kind == device_kind::cpu) && target <= highest;
  }
  friend constexpr bool operator==(const device_facts&, const device_facts&) = default;
};

/// The machine this process runs on; found out once, at the first call. Capped by TESSERA_CPU.
const device_facts& this_device() noexcept;

/// The same without the cap.
device_facts detect_device() noexcept;

}  // namespace tessera
