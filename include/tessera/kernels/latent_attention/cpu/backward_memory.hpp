// The workspace of a backward launch: what is kept of the whole launch, of the pairs of a wave, of
// a thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Numbers of rows, tiles and columns that all parts of a backward launch go by.
template <class Kernel>
struct backward_extents {
  using shape = traits<Kernel>;

  explicit backward_extents(const latent_attention_kernel_args& args)
      : group(args.heads / args.kv_heads),
        pairs(args.entries * args.kv_heads),
        rows(args.length * group),
        tiles((args.length + shape::block_keys - 1) / shape::block_keys),
        width(args.nope + args.rope),
        key_columns(shape::columns_of(width)),
        nope_columns(shape::columns_of(args.nope)),
        rope_columns(args.rope > 0 ? shape::columns_of(args.rope) : 0),
        value_columns(shape::columns_of(args.value)),
        latent_columns(shape::columns_of(args.latent)),
        latent_panels((args.latent + nr - 1) / nr * nr) {}

  static constexpr std::int64_t nr = shape::panels::nr;
  std::int64_t group;  ///< query heads of a pair
  std::int64_t pairs;  ///< of batch entry and key/value head
  std::int64_t rows;   ///< folded query rows of a pair
  std::int64_t tiles;  ///< of the keys of a pair
  std::int64_t width;  ///< of a key
  std::int64_t key_columns, nope_columns, rope_columns, value_columns, latent_columns;
  std::int64_t latent_panels;  ///< latent columns in whole panels
};

/// Sums over pairs, and the correction of each query row.
template <class Kernel>
struct launch_sums {
  launch_sums(const latent_attention_kernel_args& args, std::byte* base) {
    const backward_extents<Kernel> of(args);
    const std::int64_t tokens = args.entries * args.length;
    prim::float_carver carver(base);
    correction = carver.take(args.entries * args.heads * args.length);
    d_ckv = carver.take(tokens * of.latent_columns);
    d_k_pe = carver.take(tokens * of.rope_columns);
    d_q_pe = carver.take(args.shared_rope ? tokens * of.rope_columns : 0);
    d_w_kc = carver.take(args.kv_heads * args.latent * of.nope_columns);
    d_w_vc = carver.take(args.kv_heads * args.latent * of.value_columns);
    d_bias = carver.take(args.d_bias.data != nullptr ? args.d_bias.batches * args.d_bias.heads *
                                                           args.d_bias.rows * args.d_bias.columns
                                                     : 0);
    bytes = carver.bytes();
  }
  /// All sums begin as zeros.
  void clear() const { std::fill(correction, correction + bytes / sizeof(float), 0.0f); }

  float* correction;       ///< [entries, heads, length]
  float *d_ckv, *d_k_pe;   ///< [entries, length, columns]
  float* d_q_pe;           ///< likewise, of one query for all heads
  float *d_w_kc, *d_w_vc;  ///< [kv_heads, latent, columns]
  float* d_bias;           ///< of the gradient's extents
  std::size_t bytes;
};

/// Of each pair of a wave: weights, keys and values, and the sums that its rows make.
template <class Kernel>
struct pair_memory {
  using shape = traits<Kernel>;
  using panels = typename shape::panels;

  pair_memory(const latent_attention_kernel_args& launch, std::byte* base, std::int64_t pairs)
      : args(launch), of(launch) {
    prim::float_carver carver(base);
    weights = carver.take(pairs * head_weights<Kernel>::floats(args));
    transposed = carver.take(pairs * of.latent_panels * (args.nope + args.value));
    keys = carver.take(pairs * of.tiles * shape::block_keys * (of.width + of.key_columns));
    values = carver.take(pairs * of.tiles * shape::block_keys * args.value);
    d_k = carver.take(pairs * args.length * of.key_columns);
    d_v = carver.take(pairs * args.length * of.value_columns);
    d_q_pe = carver.take(args.shared_rope ? pairs * args.length * of.rope_columns : 0);
    bytes = carver.bytes();
  }

  head_weights<Kernel> weights_of(std::int64_t pair) const {
    return {args, weights + pair * head_weights<Kernel>::floats(args)};
  }
  /// w_kc and w_vc with latent columns beside each other.
  panels transposed_keys(std::int64_t pair) const {
    return {transposed + pair * of.latent_panels * (args.nope + args.value),
            static_cast<int>(args.nope), static_cast<int>(of.latent_panels)};
  }
  panels transposed_values(std::int64_t pair) const {
    return {transposed_keys(pair).data + of.latent_panels * args.nope, static_cast<int>(args.value),
            static_cast<int>(of.latent_panels)};
  }
  gradient_tile<Kernel> tile(std::int64_t pair, std::int64_t number) const {
    const std::int64_t at = pair * of.tiles + number, key0 = number * shape::block_keys;
    const auto left = std::min<std::int64_t>(shape::block_keys, args.length - key0);
    float* const k = keys + at * shape::block_keys * (of.width + of.key_columns);
    gradient_tile<Kernel> found;
    found.keys = {key0, static_cast<int>(left)};
    found.k_columns = {k, static_cast<int>(of.width), shape::block_keys};
    found.k_rows = {k + shape::block_keys * of.width, shape::block_keys,
                    static_cast<int>(of.key_columns)};
    found.v_columns = {values + at * shape::block_keys * args.value, static_cast<int>(args.value),
                       shape::block_keys};
    return found;
  }
  float* d_k_row(std::int64_t pair, std::int64_t token) const {
    return d_k + (pair * args.length + token) * of.key_columns;
  }
  float* d_v_row(std::int64_t pair, std::int64_t token) const {
    return d_v + (pair * args.length + token) * of.value_columns;
  }
  float* d_q_pe_row(std::int64_t pair, std::int64_t token) const {
    return d_q_pe + (pair * args.length + token) * of.rope_columns;
  }

  const latent_attention_kernel_args& args;
  backward_extents<Kernel> of;
  float *weights, *transposed, *keys, *values, *d_k, *d_v, *d_q_pe;
  std::size_t bytes;
};

/// Of a thread, whatever it is at.
template <class Kernel>
struct backward_scratch {
  using shape = traits<Kernel>;

  backward_scratch(const latent_attention_kernel_args& args, std::byte* base)
      : carver(base), expand(args, carver), block(args, carver) {
    const backward_extents<Kernel> of(args);
    const std::int64_t most = std::max(of.nope_columns, of.value_columns);
    nonfinite = carver.take(shape::block_keys);
    corrections = carver.take(shape::block_rows);
    a = carver.take(slabs<Kernel>::floats(shape::block_keys, std::max(args.nope, args.value)));
    latents = carver.take(shape::block_keys * of.latent_columns);
    latents_transposed = carver.take(of.latent_columns * shape::score_stride);
    b = carver.take(shape::block_keys * most);
    bytes = carver.bytes();
  }

  prim::float_carver carver;
  expand_scratch<Kernel> expand;
  gradient_scratch<Kernel> block;
  float* nonfinite;
  float* corrections;         ///< of a block of rows
  float* a;                   ///< slabs of a tile of d_k or d_v
  float* latents;             ///< of a tile
  float* latents_transposed;  ///< [latent columns, score_stride]
  float* b;                   ///< a tile of d_k or d_v as rows of B
  std::size_t bytes;
};

}  // namespace tessera::kernels::latent_attention::cpu
