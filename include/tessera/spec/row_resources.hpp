// What a CUDA row takes of a multiprocessor, as its compiler reported. Part of registry entries.
#pragma once

#include <cstdint>

namespace tessera {

/// The most over the row's kernels and the architectures it was measured for. 0 registers: not
/// measured, or a CPU row.
struct row_resources {
  std::int32_t registers = 0;    ///< of a thread
  std::int32_t local_bytes = 0;  ///< of a thread: stack and spilled registers
  friend constexpr bool operator==(const row_resources&, const row_resources&) = default;
};

}  // namespace tessera
