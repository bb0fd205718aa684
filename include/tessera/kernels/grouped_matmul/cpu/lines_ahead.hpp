// The lines of the next block of a tensor, asked for a few at a time beside a product.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows of `lines` lines each, `stride` bytes apart. Without it packing waits for memory while no
/// product runs, and products leave memory idle.
struct lines_ahead {
  static constexpr int line_bytes = 64;

  const char* data = nullptr;
  std::int64_t stride = 0;
  int rows = 0;
  int lines = 0;
  int each_step = 0;

  /// Elements `inside` of rows of a matrix.
  static lines_ahead of(const grouped_matrix& from, std::int64_t matrix, part_of_axis rows,
                        part_of_axis inside) {
    const auto bytes = static_cast<std::int64_t>(size_of(from.type));
    return {
        static_cast<const char*>(from.data) + bytes * from.offset(matrix, rows.first, inside.first),
        bytes * from.row, rows.count,
        static_cast<int>((bytes * inside.count + line_bytes - 1) / line_bytes)};
  }

  /// Spreads them over so many calls of `step`.
  void spread(std::int64_t steps) {
    const std::int64_t all = std::int64_t{rows} * lines;
    each_step = steps == 0 ? 0 : static_cast<int>((all + steps - 1) / steps);
  }
  TESSERA_INLINE void step() {
    for (int i = 0; i < each_step && rows > 0; ++i) {
      TESSERA_PREFETCH_L2(data + std::int64_t{line} * line_bytes);
      if (++line < lines) continue;
      line = 0;
      data += stride;
      --rows;
    }
  }

  int line = 0;  ///< of the first row that is left
};

}  // namespace tessera::kernels::grouped_matmul::cpu
