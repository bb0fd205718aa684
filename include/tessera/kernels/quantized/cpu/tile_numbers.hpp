// Scales and zeros of the rows of a tile of weights as floats: where they lie in memory, or copies
// of them, made row by row beside the products.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/code_blocks.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::cpu {

/// Blocks of `Block` columns read the scales of `MostGroups` groups, of which those behind the last
/// one of a row may be anything where columns fill all blocks, and are 0 elsewhere.
template <class Isa, int Block, int MostGroups>
class tile_numbers {
 public:
  /// Of rows [row, row + rows); each row asks for the numbers of the one `rows_ahead` behind it.
  /// Copies of each kind lie in `floats_of_tile` floats of `memory`.
  tile_numbers(const packed_weights& weights, std::int64_t row, int rows, std::int64_t rows_ahead,
               float* memory)
      : weights_(weights),
        row_(row),
        stride_(floats_of_row(weights)),
        // Lanes behind the last column would meet scales of the next row, which may be NaN.
        scales_(
            place(weights.scales, rows, weights.columns() % Block == 0, MostGroups - 1, memory)),
        zeros_(place(weights.zeros, rows, true, 0, memory + floats_of_tile(weights))),
        scales_ahead_(ahead_of(weights.scales, rows_ahead)),
        zeros_ahead_(ahead_of(weights.zeros, rows_ahead)) {}

  static std::int64_t floats_of_tile(const packed_weights& weights) {
    return rows_of_tile * floats_of_row(weights);
  }

  TESSERA_INLINE const float* scales(int number) const {
    return scales_.first + number * scales_.stride;
  }
  TESSERA_INLINE const float* zeros(int number) const {
    return zeros_.first + number * zeros_.stride;
  }

  TESSERA_INLINE void ask_for_scales(int number) const { ask_for(scales_ahead_, number); }
  /// Has to come before the numbers of a row are read.
  TESSERA_INLINE void read_scales(int number) const {
    ask_for_scales(number);
    if (scales_.copies != nullptr) copy_scales(number);
  }
  TESSERA_INLINE void read_zeros(int number) const {
    ask_for(zeros_ahead_, number);
    if (zeros_.copies != nullptr) copy_zeros(number);
  }

 private:
  static constexpr int rows_of_tile = prim::simd<Isa>::width;

  struct floats_of_rows {
    const float* first;  ///< of row 0
    std::int64_t stride;
    float* copies;  ///< null: they lie in the tensor
  };
  struct bytes_of_rows {
    const std::byte* first;
    std::int64_t stride, count;
  };

  /// Scales are read in blocks.
  static std::int64_t floats_of_row(const packed_weights& weights) {
    return (weights.groups + prim::code_block - 1) / prim::code_block * prim::code_block;
  }

  /// Who reads `beyond` numbers behind the last one of a row must not leave the tensor.
  floats_of_rows place(const strided_matrix& numbers, int rows, bool may_lie, std::int64_t beyond,
                       float* copies) const {
    const std::int64_t behind = (weights_.rows - row_ - rows) * numbers.row;
    if (may_lie && numbers.type == dtype::f32 && behind >= beyond) {
      return {static_cast<const float*>(numbers.data) + row_ * numbers.row, numbers.row, nullptr};
    }
    return {copies, stride_, copies};
  }
  bytes_of_rows ahead_of(const strided_matrix& numbers, std::int64_t rows_ahead) const {
    if (numbers.data == nullptr) return {};
    const auto size = static_cast<std::int64_t>(size_of(numbers.type));
    const auto* const bytes = static_cast<const std::byte*>(numbers.data);
    return {bytes + (row_ + rows_ahead) * numbers.row * size, numbers.row * size,
            weights_.groups * size};
  }
  TESSERA_INLINE void ask_for(const bytes_of_rows& rows, int number) const {
    const std::byte* const own = rows.first + number * rows.stride;
    for (std::int64_t at = 0; at < rows.count; at += 64) TESSERA_PREFETCH(own + at);
  }

  [[gnu::noinline]] void copy_scales(int number) const {
    float* const to = scales_.copies + number * stride_;
    weight_reader<Isa>(weights_).read_all_scales(row_ + number, to);
    std::fill(to + weights_.groups, to + whole_lines(weights_.groups), 0.0f);
  }
  [[gnu::noinline]] void copy_zeros(int number) const {
    const strided_matrix& zeros = weights_.zeros;
    float* const to = zeros_.copies + number * stride_;
    if (zeros.data == nullptr) return std::fill(to, to + weights_.groups, 0.0f);
    prim::load_row<Isa>(zeros, (row_ + number) * zeros.row, weights_.groups, to);
  }

  const packed_weights& weights_;
  std::int64_t row_;
  std::int64_t stride_;  ///< of copies
  floats_of_rows scales_, zeros_;
  bytes_of_rows scales_ahead_, zeros_ahead_;
};

}  // namespace tessera::kernels::quantized::cpu
