// From products q k to logits on the registers of a warp: biases, soft cap, functors, masks and
// segments. The order and the treatment of -inf are those of the CPU's scores.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/kernels/flash_attention/sm80_block.hpp>
#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

/// Element `offset` of a bias, as f32.
__device__ __forceinline__ float load_bias(const score_tensor& bias, std::int64_t offset) {
  if (bias.type == dtype::f32) return static_cast<const float*>(bias.data)[offset];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(bias.data)[offset];
  return bias.type == dtype::f16 ? prim::cuda::half_words<f16>::unpack(bits)
                                 : prim::cuda::half_words<bf16>::unpack(bits);
}

/// What a row's features make of the scores.
template <class Traits, class Hooks>
struct score_modifiers {
  static constexpr bool caps = Traits::has(flash_feature::soft_cap);
  static constexpr bool biases = Traits::has(flash_feature::bias);
  static constexpr bool masks = Traits::has(flash_feature::mask);
  static constexpr bool segments = Traits::has(flash_feature::segments);
  static constexpr bool drops = Traits::has(flash_feature::dropout);
  /// Logits are not simply products times the scale.
  static constexpr bool changes = caps || biases || Hooks::has_logits;

  /// One row of a warp's tile: columns 2t and 2t + 1 of each 8 keys, elements 2 * half and
  /// 2 * half + 1 of each accumulator. `keys` is empty for a row that is not used; unless `looks`,
  /// all of them are seen.
  static __device__ __forceinline__ void apply(const launch_args& args, const Hooks& hooks,
                                               prim::cuda::accumulator (&scores)[Traits::key_tiles],
                                               int half, const position& at, int key0,
                                               const prim::key_interval& keys, bool looks) {
    constexpr int count = 2 * Traits::key_tiles;
    const int first = key0 + static_cast<int>(threadIdx.x) % 4 * 2;
    float x[count];
#pragma unroll
    for (int e = 0; e < count; ++e) x[e] = scores[e / 2].at[2 * half + e % 2];
    apply_row(
        args, hooks, x, at, [&](int e) { return first + e / 2 * 8 + e % 2; }, keys, looks);
#pragma unroll
    for (int e = 0; e < count; ++e) scores[e / 2].at[2 * half + e % 2] = x[e];
  }

  /// Products of one row and the keys `key_of(e)` become logits; -inf outside of `keys` and where
  /// hidden. What tensors say of the keys is read for all of them at once, so that one wait does.
  template <int Count, class KeyOf>
  static __device__ __forceinline__ void apply_row(const launch_args& args, const Hooks& hooks,
                                                   float (&x)[Count], const position& at,
                                                   const KeyOf& key_of,
                                                   const prim::key_interval& keys, bool looks) {
    const int begin = static_cast<int>(keys.begin);
    const int end = static_cast<int>(keys.end);
    // A key that can be read, that itself where it counts.
    const auto near = [&](int e) { return max(begin, min(key_of(e), end - 1)); };
    unsigned hidden = 0;  // bit e
    if constexpr (changes) {
      if (!args.plain && begin < end) change(args.call, hooks, x, at, near, hidden);
    }
    if constexpr (masks || segments || Hooks::has_mask) {
      if (looks && begin < end) hide<Count>(args.call, hooks, at, near, hidden);
    }
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      const int key = key_of(e);
      const bool seen = key >= begin && key < end && (hidden >> e & 1u) == 0;
      x[e] = seen ? x[e] : prim::minus_infinity;
    }
  }

 private:
  /// Element (batch, head, query, key 0).
  static __device__ __forceinline__ std::int64_t row_in(const score_tensor& tensor,
                                                        const position& at) {
    return at.batch * tensor.batch + at.head * tensor.head + at.query * tensor.row;
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void add_bias(const score_tensor& bias, float (&x)[Count],
                                                  const position& at, const Near& near,
                                                  unsigned& hidden) {
    const std::int64_t row = row_in(bias, at);
    float found[Count];
#pragma unroll
    for (int e = 0; e < Count; ++e) found[e] = load_bias(bias, row + near(e) * bias.column);
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      hidden |= found[e] == prim::minus_infinity ? 1u << e : 0u;
      x[e] += found[e];
    }
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void change(const flash_kernel_args& call, const Hooks& hooks,
                                                float (&x)[Count], const position& row,
                                                const Near& near, unsigned& hidden) {
#pragma unroll
    for (int e = 0; e < Count; ++e) x[e] *= call.softmax_scale;
    if constexpr (biases) {
      if (call.bias_pre.data != nullptr) add_bias(call.bias_pre, x, row, near, hidden);
    }
    if constexpr (caps) {
      if (call.soft_cap > 0.0f) {
#pragma unroll
        for (int e = 0; e < Count; ++e) x[e] = call.soft_cap * tanhf(x[e] / call.soft_cap);
      }
    }
    if constexpr (biases) {
      if (call.bias_post.data != nullptr) add_bias(call.bias_post, x, row, near, hidden);
    }
    if constexpr (Hooks::has_logits) {
      position at = row;
#pragma unroll
      for (int e = 0; e < Count; ++e) {
        at.key = near(e);
        const bool counts = x[e] != prim::minus_infinity && (hidden >> e & 1u) == 0;
        if (counts) x[e] = hooks.logits(x[e], at);
      }
    }
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void hide(const flash_kernel_args& call, const Hooks& hooks,
                                              const position& row, const Near& near,
                                              unsigned& hidden) {
    if constexpr (masks) {
      if (call.mask.data != nullptr) {
        const auto* shown =
            static_cast<const std::uint8_t*>(call.mask.data) + row_in(call.mask, row);
        std::uint8_t found[Count];
#pragma unroll
        for (int e = 0; e < Count; ++e) found[e] = shown[near(e) * call.mask.column];
#pragma unroll
        for (int e = 0; e < Count; ++e) hidden |= found[e] == 0 ? 1u << e : 0u;
      }
    }
    if constexpr (segments) {
      if (call.q_segments.data != nullptr) {
        const std::int32_t own =
            call.q_segments
                .data[row.batch * call.q_segments.batch + row.query * call.q_segments.row];
        const std::int32_t* ids = call.kv_segments.data + row.batch * call.kv_segments.batch;
        std::int32_t found[Count];
#pragma unroll
        for (int e = 0; e < Count; ++e) found[e] = ids[near(e) * call.kv_segments.row];
#pragma unroll
        for (int e = 0; e < Count; ++e) hidden |= own < 0 || found[e] != own ? 1u << e : 0u;
      }
    }
    if constexpr (Hooks::has_mask) {
      position at = row;
#pragma unroll
      for (int e = 0; e < Count; ++e) {
        at.key = near(e);
        hidden |= hooks.mask(at) ? 0u : 1u << e;
      }
    }
  }
};

/// Bits 0 to 3: whether dropout keeps elements 0 to 3 of an accumulator, whose rows 2 * row_step
/// apart are queries `low` and `high` and whose first column is key `key` (a multiple of 8 plus
/// 2t). Each lane draws the four words of one row, and a pair of lanes exchanges halves.
__device__ __forceinline__ unsigned kept_elements(const flash_kernel_args& call, int entry,
                                                  const query_row& low, const query_row& high,
                                                  int key) {
  const bool odd = (threadIdx.x & 1u) != 0;
  const query_row row = odd ? high : low;
  const prim::philox_block words =
      prim::dropout_words(call.dropout_seed, entry, row.head, row.query, key);
  unsigned keeps = 0;
#pragma unroll
  for (unsigned lane = 0; lane < 4; ++lane) {
    keeps |= words[lane] >= call.dropout_threshold ? 1u << lane : 0u;
  }
  const unsigned others = __shfl_xor_sync(prim::cuda::all_lanes, keeps, 1);
  // Even lanes own words 0 and 1 of both rows, odd lanes words 2 and 3.
  return odd ? (others >> 2) | (keeps & 12u) : (keeps & 3u) | ((others & 3u) << 2);
}

}  // namespace tessera::flash::sm80
