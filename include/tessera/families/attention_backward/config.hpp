// What a kernel of the gradients of attention is, at compile time.
#pragma once

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// One row of the table. A zero tile extent means the backend's default (see `resolved`). Rows of
/// any head dim take every mask and feature; of the others fits.hpp says what they do not.
struct attention_backward_config {
  backend target = backend::cpu_generic;
  dtype type = dtype::f32;  ///< of q, k, v, out and their gradients
  int head_dim = 0;         ///< of q and k; 0: any from 1 to 256 of each, known at run time
  int v_head_dim = 0;       ///< of v; 0: that of q
  /// CUDA: blocks of keys add to d_q in memory, in no order, instead of a pass of its own that
  /// computes all scores again.
  bool d_q_atomics = false;
  int block_q = 0;   ///< query rows that meet a tile of keys together
  int block_kv = 0;  ///< keys of a tile
  /// With d_q_atomics: blocks add one after the other, in the order of their keys, so that the bits
  /// of a sum are always the same.
  bool in_turns = false;
  friend constexpr bool operator==(const attention_backward_config&,
                                   const attention_backward_config&) = default;
};

/// Rows of a block: whole register tiles and whole vectors, for rows become columns.
constexpr int backward_rows_step(backend target) noexcept {
  const int rows = prefill_rows(target), width = vector_floats(target);
  int step = rows;
  while (width > 0 && step % width != 0) step += rows;
  return step;
}

/// Queries and keys of a tile of a CUDA row.
struct cuda_gradient_block {
  int queries = 0, keys = 0;
};

constexpr cuda_gradient_block cuda_block_of(const attention_backward_config& config) noexcept {
  if (config.head_dim == 0) return {16, 16};
  if (!config.d_q_atomics) return {128, 128};
  if (config.target != backend::cuda_sm90 || config.head_dim > 128) {
    return {config.head_dim == 64 ? 128 : 64, 64};
  }
  return {config.head_dim == 64 ? 128 : 64, 128};
}

/// The config with every default filled in.
constexpr attention_backward_config resolved(attention_backward_config config) noexcept {
  if (config.v_head_dim == 0) config.v_head_dim = config.head_dim;
  if (is_cuda(config.target)) {
    const cuda_gradient_block block = cuda_block_of(config);
    if (config.block_q == 0) config.block_q = block.queries;
    if (config.block_kv == 0) config.block_kv = block.keys;
    return config;
  }
  const int step = backward_rows_step(config.target);
  const int rows = has_tile_products(config.target) ? 128 : 64;
  if (config.block_q == 0) config.block_q = (rows + step - 1) / step * step;
  if (config.block_kv == 0) config.block_kv = 128;
  return config;
}

/// The forward kernel whose scores a CPU row recomputes: the same tile, every feature.
constexpr attention_config scores_of(const attention_backward_config& config) noexcept {
  return {.target = config.target,
          .type = config.type,
          .head_dim = config.head_dim,
          .v_head_dim = config.head_dim,
          .features = every_feature,
          .block_q = config.block_q,
          .block_kv = config.block_kv};
}

}  // namespace tessera
