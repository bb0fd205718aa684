// What the kernels of grouped matrix products receive: raw pointers, element strides and sizes of
// one launch. Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Matrices whose rows are contiguous. Null: absent.
struct grouped_matrix {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t group = 0;  ///< between matrices; 0: groups are rows of one matrix
  std::int64_t row = 0;

  constexpr std::int64_t offset(std::int64_t matrix, std::int64_t at_row,
                                std::int64_t column) const noexcept {
    return matrix * group + at_row * row + column;
  }
};

/// Scales of a result of codes; null: 1.
struct result_scales {
  void* data = nullptr;    ///< floats
  std::int64_t group = 0;  ///< between matrices; 0: there is one, or they share all rows
  std::int64_t row = 0;    ///< 0: all rows share them
  std::int64_t block = 0;  ///< between blocks of `scale_block` columns; 0: columns share one

  /// What is divided by, of a block.
  constexpr float at(std::int64_t matrix, std::int64_t at_row, std::int64_t of) const noexcept {
    if (data == nullptr) return 1;
    return static_cast<const float*>(data)[matrix * group + at_row * row + of * block];
  }
};

/// Arguments of one launch: out = lhs rhs, or the gradients of that where there is d_out. Rows of
/// rhs and d_rhs are rows of the weight, or its columns where rhs is transposed.
struct grouped_matmul_kernel_args {
  grouped_matrix lhs{}, rhs{}, rhs_scale{}, rhs_bias{}, out_init{}, out{};
  grouped_matrix multiplier{}, residual{};
  result_scales out_code_scale{};
  product_activation activation = product_activation::none;
  float out_scale = 1;
  grouped_matrix d_out{}, d_lhs{}, d_rhs{}, d_rhs_scale{}, d_rhs_bias{}, d_out_init{};

  /// Of all groups; contiguous. Null: every matrix has rows of its own, m of them.
  const std::int32_t* group_sizes = nullptr;
  std::int64_t all_groups = 0;
  std::int64_t group_offset = 0;  ///< the group of matrix 0
  bool local_rows = false;        ///< row 0 is the first one of that group

  std::int64_t groups = 1;  ///< matrices
  std::int64_t m = 0;       ///< rows of lhs and out
  std::int64_t n = 0;       ///< columns of out
  std::int64_t k = 0;       ///< the summed axis
  bool transpose_rhs = false;
  std::int64_t scale_blocks = 1;  ///< of the summed axis, each with a scale of its own

  /// Of elements of 8 bits: scales of rows, or of blocks. Rows of rhs_scale are then blocks of its
  /// rows, or those; and scale_blocks those of rhs as well as of lhs.
  grouped_matrix lhs_scale{};
  product_scales scales = product_scales::blocks;

  /// An element of out becomes something else before it is rounded.
  constexpr bool has_epilogue() const noexcept {
    return activation != product_activation::none || out_scale != 1 || multiplier.data != nullptr ||
           residual.data != nullptr;
  }
};

}  // namespace tessera
