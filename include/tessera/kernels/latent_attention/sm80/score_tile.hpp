// A block of 64 query rows against tiles of 64 keys: where their rows lie, products, and what makes
// logits of products.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// What a launch has made of latents, in its workspace, and which keys its tokens see. A pair is an
/// entry and a key/value head.
struct expanded_keys {
  float* keys = nullptr;    ///< [pairs][length][nope]; null: latents in pages are the keys
  float* values = nullptr;  ///< [pairs][length][value]
  /// A bit for each token and key; null: tokens see every key.
  std::uint32_t* listed = nullptr;
  std::int64_t list_words = 0;  ///< of a token
};

/// Shared memory of a block: offsets of its rows and of a tile of keys, operands of products.
struct tile_memory {
  std::int64_t q[tile_side], q_pe[tile_side], d_out[tile_side];
  std::int64_t k[tile_side], k_pe[tile_side], v[tile_side], scales[tile_side];
  float_tile a, b;
  score_tile_memory weights;
};

/// Operands of a block: each part of queries and keys.
struct tile_operands {
  tile_rows q{}, q_pe{}, d_out{};
  tile_rows k{}, k_pe{}, v{};
};

__device__ __forceinline__ tile_operands operands_of(const latent_attention_kernel_args& args,
                                                     const expanded_keys& expanded,
                                                     const tile_memory& memory) {
  tile_operands of;
  of.q = {args.q.data, args.q.type, memory.q, args.nope};
  of.q_pe = {args.q_pe.data, args.q_pe.type, memory.q_pe, args.rope};
  of.d_out = {args.d_out.data, args.d_out.type, memory.d_out, args.value};
  of.k_pe = {args.k_pe.data, args.k_pe.type, memory.k_pe, args.rope};
  if (expanded.keys != nullptr) {
    of.k = {expanded.keys, dtype::f32, memory.k, args.nope};
    of.v = {expanded.values, dtype::f32, memory.v, args.value};
  } else {
    const auto latents = [&](const std::int64_t* at, std::int64_t columns) {
      return tile_rows{args.ckv.data,
                       args.ckv.type,
                       at,
                       columns,
                       static_cast<const float*>(args.ckv_scale.data),
                       memory.scales,
                       args.scale_width};
    };
    of.k = latents(memory.k, args.nope);
    of.v = latents(memory.v, args.value);
  }
  return of;
}

__device__ __forceinline__ float lse_of(const latent_attention_kernel_args& args,
                                        const row_block& rows, int r) {
  return args.lse.data[rows.seq.index * args.lse.batch + rows.head(r) * args.lse.head +
                       rows.token(r) * args.lse.row];
}

/// Where the rows of a block lie, of a gradient those that see something. A barrier must follow.
__device__ __forceinline__ void place_rows(const latent_attention_kernel_args& args,
                                           const row_block& rows, tile_memory& memory) {
  const int r = static_cast<int>(threadIdx.x);
  if (r >= tile_side) return;
  bool held = r < rows.count;
  if (held && args.d_out.data != nullptr) held = lse_of(args, rows, r) != prim::minus_infinity;
  memory.q[r] = held ? rows.at(args.q, r) : no_row;
  memory.q_pe[r] = held ? rows.at(args.q_pe, r) : no_row;
  memory.d_out[r] = held && args.d_out.data != nullptr ? rows.at(args.d_out, r) : no_row;
}

/// Where keys [key0, key0 + 64) of a sequence lie, those before `end`. A barrier must follow.
__device__ __forceinline__ void place_keys(const latent_attention_kernel_args& args,
                                           const expanded_keys& expanded, const row_block& rows,
                                           std::int64_t key0, std::int64_t end,
                                           tile_memory& memory) {
  const int c = static_cast<int>(threadIdx.x);
  if (c >= tile_side) return;
  const std::int64_t key = key0 + c;
  const bool held = key < end;
  if (expanded.keys != nullptr) {
    const std::int64_t row = (rows.seq.index * args.kv_heads + rows.kv_head) * args.length + key;
    memory.k[c] = held ? row * args.nope : no_row;
    memory.v[c] = held ? row * args.value : no_row;
    memory.k_pe[c] = held ? args.k_pe.at(rows.seq.index, key) : no_row;
  } else {
    memory.k[c] = memory.v[c] = held ? slot_of(args, args.ckv, rows.seq.index, key) : no_row;
    memory.k_pe[c] = held ? slot_of(args, args.k_pe, rows.seq.index, key) : no_row;
    if (args.ckv_scale.data != nullptr) {
      memory.scales[c] = held ? slot_of(args, args.ckv_scale, rows.seq.index, key) : no_row;
    }
  }
}

/// Whether some row of the block has a key of the tile in its list. All threads ask together; it is
/// a barrier.
__device__ __forceinline__ bool lists_some(const latent_attention_kernel_args& args,
                                           const expanded_keys& expanded, const row_block& rows,
                                           std::int64_t key0) {
  if (expanded.listed == nullptr) return __syncthreads_or(1) != 0;
  const int r = static_cast<int>(threadIdx.x);
  bool some = false;
  if (r < rows.count) {
    const std::int64_t token = rows.seq.index * args.length + rows.token(r);
    const std::uint32_t* const words = expanded.listed + token * expanded.list_words + key0 / 32;
    some = (words[0] | words[1]) != 0;
  }
  return __syncthreads_or(some) != 0;
}

/// Logits of a thread's rows and keys.
class score_mod {
 public:
  __device__ __forceinline__ score_mod(const latent_attention_kernel_args& args,
                                       const expanded_keys& expanded, const row_block& rows)
      : args_(args), expanded_(expanded), rows_(rows) {
    const auto seen = rows.seen(args);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = tile_sums::row() + i;
      const prim::key_interval keys =
          r < rows.count ? seen.keys_of(rows.token(r)) : prim::key_interval{};
      begin_[i] = static_cast<int>(keys.begin);
      end_[i] = static_cast<int>(keys.end);
    }
  }

  __device__ __forceinline__ void apply(std::int64_t key0, tile_sums& scores) const {
    const bool capped = args_.soft_cap > 0;
    const float factor = capped ? args_.softmax_scale / args_.soft_cap : args_.softmax_scale;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = tile_sums::row() + i;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t key = key0 + tile_sums::column() + j;
        float x = scores.at[i][j] * factor;
        if (capped) x = args_.soft_cap * prim::cuda::tanh_fast(x);
        const bool visible = key >= begin_[i] && key < end_[i];
        scores.at[i][j] = visible ? modified(r, key, x) : prim::minus_infinity;
      }
    }
  }

 private:
  static __device__ __forceinline__ std::int64_t offset(const score_tensor& of, std::int64_t entry,
                                                        std::int64_t head, std::int64_t token,
                                                        std::int64_t key) {
    return entry * of.batch + head * of.head + token * of.row + key * of.column;
  }

  /// Bias, mask and list.
  __device__ __forceinline__ float modified(int r, std::int64_t key, float x) const {
    const std::int64_t entry = rows_.seq.index, token = rows_.token(r);
    if (args_.bias.data != nullptr) {
      const float added = prim::cuda::number_at(
          args_.bias.data, args_.bias.type, offset(args_.bias, entry, rows_.head(r), token, key));
      x = added == prim::minus_infinity ? added : x + added;
    }
    if (args_.mask.data != nullptr) {
      const auto* const mask = static_cast<const std::uint8_t*>(args_.mask.data);
      if (mask[offset(args_.mask, entry, rows_.head(r), token, key)] == 0) {
        x = prim::minus_infinity;
      }
    }
    if (expanded_.listed != nullptr) {
      const std::int64_t number = entry * args_.length + token;
      const std::uint32_t word = expanded_.listed[number * expanded_.list_words + key / 32];
      if ((word >> (key % 32) & 1u) == 0) x = prim::minus_infinity;
    }
    return x;
  }

  const latent_attention_kernel_args& args_;
  const expanded_keys& expanded_;
  const row_block& rows_;
  int begin_[4], end_[4];  ///< of the keys that a row sees
};

/// What dropout multiplies the weights of a row of the block by, of the thread's four keys: `scale`
/// or 0. They are those of one counter of the generator, whatever the tile.
__device__ __forceinline__ float4 kept_weights(const latent_attention_kernel_args& args,
                                               const row_block& rows, int r, std::int64_t key0,
                                               float scale) {
  static_assert(tile_side % 4 == 0);
  const prim::philox_block words =
      prim::dropout_words(args.dropout_seed, rows.seq.index, static_cast<int>(rows.head(r)),
                          rows.token(r), key0 + tile_sums::column());
  const auto factor = [&](std::uint32_t word) {
    return word >= args.dropout_threshold ? scale : 0.0f;
  };
  return make_float4(factor(words[0]), factor(words[1]), factor(words[2]), factor(words[3]));
}

/// Products of queries and keys, both parts. `Coded`: elements of keys may have 8 bits.
template <bool Coded = false>
__device__ __forceinline__ void multiply_scores(const tile_operands& of, tile_memory& memory,
                                                tile_sums& scores) {
  multiply_along<false, Coded>(of.q, of.k, memory.a, memory.b, scores);
  multiply_along<false, Coded>(of.q_pe, of.k_pe, memory.a, memory.b, scores);
}

/// Of the 16 threads that share rows.
__device__ __forceinline__ float maximum_of_row(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(prim::cuda::all_lanes, x, step));
  }
  return x;
}
__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(prim::cuda::all_lanes, x, step);
  return x;
}

__device__ __forceinline__ float exponential(float x) {
  return prim::cuda::exp2_fast(x * prim::log2_e);
}

}  // namespace tessera::kernels::latent_attention::sm80
