// Options of the grouped matmul operations, under the names that tools and files use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Which rows of the problem lhs holds, where rhs holds some of its groups only.
enum class grouped_rows : std::uint8_t {
  global,  ///< those of all groups; rows of other groups are not read
  local,   ///< those of the local groups: row 0 is the first one of group `group_offset`
};
inline constexpr std::array<std::string_view, 2> grouped_rows_names{"global", "local"};

/// What becomes of the elements of a product.
enum class product_activation : std::uint8_t { none, relu, silu, gelu, gelu_tanh };
inline constexpr std::array<std::string_view, 5> product_activation_names{"none", "relu", "silu",
                                                                          "gelu", "gelu_tanh"};

struct grouped_matmul_options {
  /// rhs is [G,N,K] instead of [G,K,N].
  bool transpose_rhs = false;
  /// Matrix g of rhs belongs to group group_offset + g of group_sizes. At least 0.
  std::int64_t group_offset = 0;
  grouped_rows lhs_rows = grouped_rows::global;
  /// Of forward operations: what becomes of the sum of products, rhs_bias and out_init.
  product_activation activation = product_activation::none;
  /// What that is multiplied by. Must be finite as a float.
  double out_scale = 1;

  friend bool operator==(const grouped_matmul_options&, const grouped_matmul_options&) = default;
};

/// Which numbers share a scale.
enum class product_scales : std::uint8_t {
  blocks,  ///< 128 elements of a row of lhs; 128 x 128 elements of a matrix of rhs
  rows,    ///< a row of lhs; a row of rhs, which is a column of out
};
inline constexpr std::array<std::string_view, 2> product_scales_names{"blocks", "rows"};

/// Elements of each axis that share a scale of blocks.
inline constexpr std::int64_t scale_block = 128;

struct scaled_matmul_options {
  product_scales scales = product_scales::blocks;
  /// The others are those of grouped_matmul.
  std::int64_t group_offset = 0;
  grouped_rows lhs_rows = grouped_rows::global;
  product_activation activation = product_activation::none;
  double out_scale = 1;

  friend bool operator==(const scaled_matmul_options&, const scaled_matmul_options&) = default;
};

}  // namespace tessera
