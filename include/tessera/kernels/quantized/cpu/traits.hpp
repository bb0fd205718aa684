// Sizes of the tiles of products with packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/prim/cpu/code_lanes.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::quantized::cpu {

/// Rows of a batch that meet a tile of decoded weights before another one is decoded.
inline constexpr std::int64_t batch_of_item = 256;

/// Register tiles of an instruction set.
template <class Isa>
struct register_tile {
  static constexpr int width = prim::simd<Isa>::width;
  /// Dot products: rows of the batch and rows of weights, together as many sums as a register has
  /// floats.
  static constexpr int dot_batch = width >= 8 ? 4 : 2;
  static constexpr int dot_rows = width / dot_batch;
  /// Outer products: rows of the batch, registers of columns.
  static constexpr int outer_batch = width == 16 ? 14 : width == 8 ? 6 : 4;
  static constexpr int outer_vectors = 2;
};

/// Columns up to a whole block of codes, which is whole registers too.
constexpr std::int64_t whole_blocks(std::int64_t columns) noexcept {
  return (columns + prim::codes_of_block - 1) / prim::codes_of_block * prim::codes_of_block;
}

/// Floats in whole cache lines.
constexpr std::int64_t whole_lines(std::int64_t floats) noexcept {
  return (floats + 15) / 16 * 16;
}

}  // namespace tessera::kernels::quantized::cpu
