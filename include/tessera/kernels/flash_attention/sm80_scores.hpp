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

  /// True if keys inside the visible interval may be hidden, or logits change, in any tile.
  static __device__ __forceinline__ bool everywhere(const flash_kernel_args& call) {
    return changes || Hooks::has_mask || (masks && call.mask.data != nullptr) ||
           (segments && call.q_segments.data != nullptr);
  }

  /// One row of a warp's tile: columns 2t and 2t + 1 of each 8 keys, elements 2 * half and
  /// 2 * half + 1 of each accumulator. `keys` is empty for a row that is not used.
  static __device__ __forceinline__ void apply(const launch_args& args, const Hooks& hooks,
                                               prim::cuda::accumulator (&scores)[Traits::key_tiles],
                                               int half, position at, int key0,
                                               const prim::key_interval& keys) {
    const flash_kernel_args& call = args.call;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    const int begin = static_cast<int>(keys.begin) - key0 - column;
    const int end = static_cast<int>(keys.end) - key0 - column;
    const std::int32_t own = keys.empty() ? 0 : segment_of(call, at);
#pragma unroll
    for (int tile = 0; tile < Traits::key_tiles; ++tile) {
#pragma unroll
      for (int one = 0; one < 2; ++one) {
        float& score = scores[tile].at[2 * half + one];
        const bool inside = tile * 8 + one >= begin && tile * 8 + one < end;
        at.key = key0 + tile * 8 + column + one;
        if constexpr (changes) {
          score = inside ? logit(args, hooks, score, at) : prim::minus_infinity;
        }
        const bool seen = inside && !hidden(call, hooks, at, own);
        score = seen ? score : prim::minus_infinity;
      }
    }
  }

  /// One product as a logit; `own` is the row's segment.
  static __device__ __forceinline__ float apply_one(const launch_args& args, const Hooks& hooks,
                                                    float product, const position& at,
                                                    std::int32_t own) {
    const float x = logit(args, hooks, product, at);
    return hidden(args.call, hooks, at, own) ? prim::minus_infinity : x;
  }

  /// Segment of the row at `at`.
  static __device__ __forceinline__ std::int32_t segment_of(const flash_kernel_args& call,
                                                            const position& at) {
    if (!segments || call.q_segments.data == nullptr) return 0;
    return call.q_segments.data[at.batch * call.q_segments.batch + at.query * call.q_segments.row];
  }

 private:
  static __device__ __forceinline__ std::int64_t offset_in(const score_tensor& tensor,
                                                           const position& at) {
    return at.batch * tensor.batch + at.head * tensor.head + at.query * tensor.row +
           at.key * tensor.column;
  }

  static __device__ __forceinline__ float logit(const launch_args& args, const Hooks& hooks,
                                                float product, const position& at) {
    const flash_kernel_args& call = args.call;
    float x = product * call.softmax_scale;
    [[maybe_unused]] bool hides = false;
    if constexpr (biases) {
      if (call.bias_pre.data != nullptr) {
        const float bias = load_bias(call.bias_pre, offset_in(call.bias_pre, at));
        hides = bias == prim::minus_infinity;
        x += bias;
      }
    }
    if constexpr (caps) {
      if (call.soft_cap > 0.0f) x = call.soft_cap * tanhf(x / call.soft_cap);
    }
    if constexpr (biases) {
      if (call.bias_post.data != nullptr) {
        const float bias = load_bias(call.bias_post, offset_in(call.bias_post, at));
        hides = hides || bias == prim::minus_infinity;
        x += bias;
      }
      if (hides) x = prim::minus_infinity;
    }
    if constexpr (Hooks::has_logits) {
      if (x != prim::minus_infinity) x = hooks.logits(x, at);
    }
    return x;
  }

  static __device__ __forceinline__ bool hidden(const flash_kernel_args& call, const Hooks& hooks,
                                                const position& at, std::int32_t own) {
    bool hide = false;
    if constexpr (masks) {
      if (call.mask.data != nullptr) {
        hide = static_cast<const std::uint8_t*>(call.mask.data)[offset_in(call.mask, at)] == 0;
      }
    }
    if constexpr (segments) {
      if (call.q_segments.data != nullptr) {
        hide =
            hide || own < 0 ||
            call.kv_segments
                    .data[at.batch * call.kv_segments.batch + at.key * call.kv_segments.row] != own;
      }
    }
    if constexpr (Hooks::has_mask) hide = hide || !hooks.mask(at);
    return hide;
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
