// What the kernels of quantised weights receive: raw pointers, element strides and sizes of one
// launch. Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/options.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A matrix whose elements lie `row` and `column` elements apart, or one for each group; null:
/// absent.
struct strided_matrix {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t matrix = 0;  ///< between matrices

  /// One of the matrices.
  constexpr strided_matrix at(std::int64_t number) const noexcept {
    strided_matrix of_group = *this;
    if (data != nullptr) {
      of_group.data = static_cast<std::byte*>(data) +
                      number * matrix * static_cast<std::int64_t>(size_of(type));
    }
    return of_group;
  }
};

/// Weights in codes, as they are stored: rows of columns in groups, contiguous, or columns of them
/// (`k_major`); or so many matrices of them.
struct packed_weights {
  strided_matrix codes{};   ///< words of 32 bits
  strided_matrix scales{};  ///< of the groups of a row
  strided_matrix zeros{};
  void* tensor_scale = nullptr;  ///< a float of each matrix; null: 1
  std::int64_t rows = 0;
  std::int64_t groups = 0;
  std::int64_t group_size = 0;
  int bits = 0;
  weight_mode mode = weight_mode::affine;
  mx_scale_encoding encoding = mx_scale_encoding::e8m0;
  affine_weight_form form = affine_weight_form::zero;

  constexpr std::int64_t columns() const noexcept { return groups * group_size; }

  /// One of the matrices.
  constexpr packed_weights at(std::int64_t number) const noexcept {
    packed_weights of_group = *this;
    of_group.codes = codes.at(number);
    of_group.scales = scales.at(number);
    of_group.zeros = zeros.at(number);
    if (tensor_scale != nullptr) of_group.tensor_scale = static_cast<float*>(tensor_scale) + number;
    return of_group;
  }
};

/// Arguments of a launch.
struct quantized_kernel_args {
  packed_weights weights{};
  strided_matrix w{};  ///< the same weights as floats: rows and columns are those of the codes
  /// A product and its gradients: a row for each of the batch.
  strided_matrix x{}, out{}, d_out{}, d_x{};
  strided_matrix d_scales{}, d_zeros{};
  std::int64_t batch = 0;
  /// Groups lie along the outputs. Rows of the codes are columns of w, which is stored row by row,
  /// where weights are packed.
  bool transposed = false;
  /// Words, scales, zeros and the gradients of these lie column by column.
  bool k_major = false;

  /// Rows of the batch in all groups; contiguous. Null: there is one matrix, for all rows.
  const std::int32_t* group_sizes = nullptr;
  std::int64_t all_groups = 0;
  std::int64_t group_offset = 0;  ///< the group of matrix 0
  std::int64_t matrices = 1;
  bool local_rows = false;  ///< row 0 is the first one of that group
};

}  // namespace tessera
