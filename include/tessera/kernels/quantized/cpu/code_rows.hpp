// Rows of a batch as operands of products that multiply codes as they are: where their parts lie.
#pragma once

#include <cstdint>

#include <tessera/kernels/quantized/cpu/traits.hpp>

namespace tessera::kernels::quantized::cpu {

/// Of rows of the batch, that stay in the first-level cache beside sums and codes.
inline constexpr std::int64_t bytes_of_x_in_cache = 12 << 10;

/// All rows alike. A block is as many codes as lanes add up before they are scaled: `together`
/// registers, of which a lane has neighbouring words (prim/cpu/code_blocks.hpp).
struct code_row_layout {
  std::int64_t columns = 0;
  std::int64_t groups = 0;
  std::int64_t group_size = 0;
  int code_bits = 0;  ///< 4 or 8
  int together = 1;   ///< registers of codes
  int element_bytes = 0;

  static constexpr int bytes_of_register = 64, lanes = 16;

  constexpr int codes_of_word() const { return 32 / code_bits; }
  constexpr int block() const { return together * lanes * codes_of_word(); }
  /// Of a block, the column of code `code` of a lane's word of register `number`.
  constexpr int column(int number, int lane, int code) const {
    return (lane * together + number) * codes_of_word() + code;
  }
  constexpr std::int64_t blocks() const { return (columns + block() - 1) / block(); }
  /// Of a row: not a multiple of 4 KB, or all rows would lie in the same sets of the first-level
  /// cache.
  constexpr std::int64_t bytes() const {
    const std::int64_t held = blocks() * block() * element_bytes;
    return held + (held % 1024 == 0 ? 128 : 0);
  }
  constexpr std::int64_t sums() const { return whole_lines(groups); }
};

/// Most registers of 4-bit codes whose lanes keep within a group, of at most `most`.
constexpr int registers_together(std::int64_t group_size, int most) noexcept {
  const std::int64_t within = group_size / 8;  // codes of a lane's word
  return within < most ? static_cast<int>(within) : most;
}

/// What a row's results are multiplied by: two powers of two, as one may be none of f32's.
struct code_row_scale {
  float first = 1, second = 1;
  bool has_specials = false;  ///< elements that are left out, zeros in their place
};

}  // namespace tessera::kernels::quantized::cpu
