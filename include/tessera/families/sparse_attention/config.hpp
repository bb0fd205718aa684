// What a sparse attention kernel is, at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

/// What says which keys a query looks at.
enum class sparse_pattern : std::uint8_t {
  blocksparse,    ///< masks, blocks, segments and positions
  native_sparse,  ///< blocks selected for each token, means of all blocks, a window
};
inline constexpr std::array<std::string_view, 2> sparse_pattern_names{"blocksparse",
                                                                      "native_sparse"};
constexpr std::string_view name_of(sparse_pattern pattern) noexcept {
  return sparse_pattern_names[static_cast<std::size_t>(pattern)];
}

using sparse_pass = kernel_pass;

/// One row of the table.
struct sparse_attention_config {
  backend target = backend::cpu_generic;
  sparse_pattern pattern = sparse_pattern::blocksparse;
  sparse_pass pass = sparse_pass::forward;
  dtype type = dtype::none;  ///< of the operands of products; none: any, products are of floats
  int head_dim = 0;          ///< of queries, keys and values; 0: any
  friend constexpr bool operator==(const sparse_attention_config&,
                                   const sparse_attention_config&) = default;
};

/// The config with every default filled in.
constexpr sparse_attention_config resolved(sparse_attention_config config) noexcept {
  return config;
}

}  // namespace tessera
