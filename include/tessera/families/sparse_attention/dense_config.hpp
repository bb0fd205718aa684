// The row of attention that a CPU row of sparse attention with a type stands on, with its loops
// (blocksparse) or its products (native sparse): the kernel and the cost estimate ask the same.
#pragma once

#include <tessera/families/attention/config.hpp>
#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/spec/backend.hpp>

namespace tessera {

/// With the tiles of the table's dense rows, whose bits it has where nothing is hidden.
constexpr attention_config dense_config(const sparse_attention_config& row) noexcept {
  const bool tiles = has_tile_products(row.target);
  return resolved(attention_config{.target = row.target,
                                   .type = row.type,
                                   .head_dim = row.head_dim,
                                   .features = base_features | attention_feature::soft_cap,
                                   .block_q = tiles ? 1024 : 0,
                                   .block_kv = tiles                                ? 512
                                               : row.target == backend::cpu_generic ? 64
                                               : vector_floats(row.target) < 16     ? 128
                                                                                    : 0});
}

}  // namespace tessera
