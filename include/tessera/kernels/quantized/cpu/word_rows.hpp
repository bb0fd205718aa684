// Rows of a batch as operands B of tiles: columns of words of bf16. A row of bf16 is one column, of
// f16 or f32 two or three, whose sum it is.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/code_words.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::cpu {

/// Where words and sums of rows lie, which are columns of tiles: those that meet the same columns
/// of weights side by side, as they are needed together.
struct word_layout {
  std::int64_t columns = 0;  ///< of weights, in whole blocks
  int span = 0;              ///< columns of weights whose products have a sum of their own
  int parts = 1;             ///< columns of words of a row

  static constexpr int block = prim::tile_width * 2;
  /// Of a tile, that meet columns which are decoded together.
  static constexpr std::int64_t words_together = most_decoded / 2 * prim::tile_width;

  constexpr int rows_of_tile() const { return prim::tile_width / parts; }
  constexpr std::int64_t tiles(std::int64_t rows) const {
    return (rows + rows_of_tile() - 1) / rows_of_tile();
  }
  /// Words of all of so many tiles.
  constexpr std::int64_t words(std::int64_t tiles) const {
    return (columns + most_decoded - 1) / most_decoded * tiles * words_together;
  }
  /// Where those of a tile are that meet a column of weights, the first of a block.
  constexpr std::int64_t word(std::int64_t tile, std::int64_t tiles, std::int64_t column) const {
    return (column / most_decoded * tiles + tile) * words_together +
           column % most_decoded / 2 * prim::tile_width;
  }
  constexpr std::int64_t spans() const { return columns / span; }
  constexpr std::int64_t sums() const { return spans() * prim::tile_width; }
};

/// Numbers of bf16 that make up one of a type.
constexpr int word_parts_of(dtype type) noexcept {
  return type == dtype::bf16 ? 1 : type == dtype::f16 ? 2 : 3;
}

/// Row `row` of tile `tile`, of `tiles`, out of its floats: words and sums of spans. False: it has
/// huge elements, in whose place are zeros.
inline bool pack_word_row(const word_layout& layout, std::int64_t tile, std::int64_t tiles, int row,
                          const float* x, std::uint32_t* words, float* sums) {
  bool ordinary = true;
  for (std::int64_t first = 0; first < layout.columns; first += layout.block) {
    float left[word_layout::block];
    float sum = 0;
    for (int i = 0; i < layout.block; ++i) {
      const bool huge = is_huge(x[first + i]);
      left[i] = huge ? 0.0f : x[first + i];
      ordinary = ordinary && !huge;
      sum += left[i];
    }
    sums[first / layout.span * prim::tile_width + row] += sum;
    std::uint32_t* const block = words + layout.word(tile, tiles, first);
    for (int part = 0; part < layout.parts; ++part) {
      std::uint32_t halves[word_layout::block];
      for (int i = 0; i < layout.block; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(left[prim::code_at_place(i)]);
        halves[i] = bits & 0xffff0000u;
      }
      for (int i = 0; i < layout.block; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(left[i]);
        left[i] -= std::bit_cast<float>(bits & 0xffff0000u);
      }
      std::uint32_t* const column = block + part * layout.rows_of_tile() + row;
      for (int pair = 0; pair < prim::tile_width; ++pair) {
        column[pair * prim::tile_width] = halves[2 * pair] >> 16 | halves[2 * pair + 1];
      }
    }
  }
  return ordinary;
}

}  // namespace tessera::kernels::quantized::cpu
