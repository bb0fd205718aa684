// Weights to codes and scales: a few stored rows at a time, which are columns of weights that are
// stored the other way round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/encode.hpp>
#include <tessera/prim/cpu/code_lanes.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Kernel>
class quantize {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;

  explicit quantize(const quantized_kernel_args& args) : args_(args), to_(args.weights) {}

  static std::size_t workspace_bytes(int) { return 0; }

  void run(std::byte*, int threads) const {
    if (to_.groups == 0) return;
    const std::int64_t items = (to_.rows + rows_together - 1) / rows_together;
    prim::parallel_items<isa_type>(items, threads, [&](std::int64_t item, int) {
      const std::int64_t first = item * rows_together;
      const auto rows = static_cast<int>(std::min<std::int64_t>(rows_together, to_.rows - first));
      for (std::int64_t column = 0; column < to_.columns(); column += columns_together) {
        encode_tile(
            first, rows, column,
            static_cast<int>(std::min<std::int64_t>(columns_together, to_.columns() - column)));
      }
    });
  }

 private:
  static constexpr int rows_together = 8;
  static constexpr int columns_together = 1024;  ///< whole groups, whole words

  void encode_tile(std::int64_t row, int rows, std::int64_t column, int columns) const {
    alignas(64) float tile[rows_together][columns_together];
    load_tile(row, rows, column, columns, tile);
    const group_encoder<isa_type> encoder(to_);
    const auto size = static_cast<int>(to_.group_size);
    for (int r = 0; r < rows; ++r) {
      std::uint8_t codes[columns_together];
      for (int at = 0; at < columns; at += size) {
        const group_scale group = encoder.encode(tile[r] + at, codes + at);
        store_scale(row + r, (column + at) / size, group);
      }
      pack(codes, columns,
           static_cast<std::uint32_t*>(to_.codes.data) + (row + r) * to_.codes.row +
               column / prim::codes_of_block * to_.bits);
    }
  }

  /// Weights as floats. Where the rows of the codes are columns of the weights, each row of these
  /// gives a column of the tile.
  void load_tile(std::int64_t row, int rows, std::int64_t column, int columns,
                 float (&tile)[rows_together][columns_together]) const {
    const strided_matrix& w = args_.w;
    if (!args_.transposed) {
      for (int r = 0; r < rows; ++r) {
        prim::load_row<isa_type>(w, (row + r) * w.row + column, columns, tile[r]);
      }
      return;
    }
    prim::with_elements<isa_type>(w, [&](const auto* elements) {
      for (int c = 0; c < columns; ++c) {
        const auto* const from = elements + (column + c) * w.column + row;
        for (int r = 0; r < rows; ++r) tile[r][c] = static_cast<float>(from[r]);
      }
    });
  }

  void store_scale(std::int64_t row, std::int64_t group, const group_scale& value) const {
    const std::int64_t at = row * to_.scales.row + group;
    if (!has_float_scales(to_.mode)) {
      static_cast<std::uint8_t*>(to_.scales.data)[at] = value.code;
      return;
    }
    store_finite(to_.scales, at, value.scale);
    if (to_.zeros.data != nullptr) store_finite(to_.zeros, row * to_.zeros.row + group, value.zero);
  }
  /// What is beyond the largest number of the type becomes that.
  static void store_finite(const strided_matrix& to, std::int64_t at, float value) {
    const float most = to.type == dtype::f16    ? 65504.0f
                       : to.type == dtype::bf16 ? 0x1.fep127f
                                                : most_float;
    const float bounded = value > most ? most : value < -most ? -most : value;
    prim::store_element<isa_type>(to, at, bounded);
  }

  /// Codes one behind the other, from the lowest bit of the first word.
  void pack(const std::uint8_t* codes, int count, std::uint32_t* words) const {
    std::uint64_t pending = 0;
    int filled = 0;
    for (int i = 0; i < count; ++i) {
      pending |= std::uint64_t{codes[i]} << filled;
      filled += to_.bits;
      if (filled < 32) continue;
      *words++ = static_cast<std::uint32_t>(pending);
      pending >>= 32;
      filled -= 32;
    }
    if (filled > 0) *words = static_cast<std::uint32_t>(pending);
  }

  const quantized_kernel_args& args_;
  const packed_weights& to_;
};

}  // namespace tessera::kernels::quantized::cpu
