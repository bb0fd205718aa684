// Score modification on a GPU, of one row of scores and tensors of any strides: scale, biases, soft
// cap, functors, masks and segments. The order and the treatment of -inf are those of the CPU.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/score_mod_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention {

/// Element `offset` of a bias, as f32.
__device__ __forceinline__ float load_bias(const score_tensor& bias, std::int64_t offset) {
  if (bias.type == dtype::f32) return static_cast<const float*>(bias.data)[offset];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(bias.data)[offset];
  return bias.type == dtype::f16 ? prim::cuda::half_words<f16>::unpack(bits)
                                 : prim::cuda::half_words<bf16>::unpack(bits);
}

/// What a kernel's features make of the scores of one row and tensors of any strides.
template <class Traits, class Hooks>
struct score_mod_row {
  static constexpr bool caps = Traits::has(attention_feature::soft_cap);
  static constexpr bool biases = Traits::has_biases;
  static constexpr bool position_biases = Traits::has_position_biases;
  static constexpr bool masks = Traits::has(attention_feature::mask);
  static constexpr bool segments = Traits::has(attention_feature::segments);
  /// Logits are not simply products times the scale.
  static constexpr bool changes = caps || biases || position_biases || Hooks::has_logits;
  static constexpr bool calls_functors = Hooks::has_logits || Hooks::has_mask;
  /// Tensors say something of every score.
  static constexpr bool reads = biases || masks || segments;

  /// One row of a warp's tile: columns 2t and 2t + 1 of each 8 keys, elements 2 * half and
  /// 2 * half + 1 of each accumulator. `keys` is empty for a row that is not used; unless `looks`,
  /// all of them are seen.
  template <class Args>
  static __device__ __forceinline__ void apply(const Args& args, const Hooks& hooks,
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
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_row(const Args& args, const Hooks& hooks,
                                                   float (&x)[Count], const position& at,
                                                   const KeyOf& key_of,
                                                   const prim::key_interval& keys, bool looks) {
    const int begin = static_cast<int>(keys.begin);
    const int end = static_cast<int>(keys.end);
    unsigned hidden = 0;  // bit e
    // A key that can be read, that itself where it counts.
    const auto near = [&](int e) { return max(begin, min(key_of(e), end - 1)); };
    if (begin < end) modify(args, hooks, x, at, near, looks, hidden);
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      const int key = key_of(e);
      const bool seen = key >= begin && key < end && (hidden >> e & 1u) == 0;
      x[e] = seen ? x[e] : prim::minus_infinity;
    }
  }

  /// The same of a row whose interval has all of the keys.
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_inside(const Args& args, const Hooks& hooks,
                                                      float (&x)[Count], const position& at,
                                                      const KeyOf& key_of, bool looks) {
    unsigned hidden = 0;  // bit e
    modify(args, hooks, x, at, key_of, looks, hidden);
    if constexpr (biases || position_biases || masks || segments || Hooks::has_mask) {
#pragma unroll
      for (int e = 0; e < Count; ++e) {
        x[e] = (hidden >> e & 1u) == 0 ? x[e] : prim::minus_infinity;
      }
    }
  }

 private:
  /// Element (batch, head, query, key 0).
  static __device__ __forceinline__ std::int64_t row_in(const score_tensor& tensor,
                                                        const position& at) {
    return at.batch * tensor.batch + at.head * tensor.head + at.query * tensor.row;
  }

  template <class Args, int Count, class Near>
  static __device__ __forceinline__ void modify(const Args& args, const Hooks& hooks,
                                                float (&x)[Count], const position& at,
                                                const Near& near, bool looks, unsigned& hidden) {
    if constexpr (changes) {
      if (Hooks::has_logits || !args.plain) change(args, hooks, x, at, near, hidden);
    }
    if constexpr (masks || segments || Hooks::has_mask) {
      if (looks) hide<Count>(args.call, hooks, at, near, hidden);
    }
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void add_bias(const score_tensor& bias, float (&x)[Count],
                                                  const position& at, const Near& near,
                                                  unsigned& hidden) {
    const std::int64_t row = row_in(bias, at);
    float values[Count];
#pragma unroll
    for (int e = 0; e < Count; ++e) values[e] = load_bias(bias, row + near(e) * bias.column);
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      hidden |= values[e] == prim::minus_infinity ? 1u << e : 0u;
      x[e] += values[e];
    }
  }

  template <class Args, int Count, class Near>
  static __device__ __forceinline__ void change(const Args& args, const Hooks& hooks,
                                                float (&x)[Count], const position& row,
                                                const Near& near, unsigned& hidden) {
    const attention_kernel_args& call = args.call;
    const float scale = scale_of_head<Traits>(args, row.head);
#pragma unroll
    for (int e = 0; e < Count; ++e) x[e] *= scale;
    if constexpr (biases) {
      if (call.bias_pre.data != nullptr) add_bias(call.bias_pre, x, row, near, hidden);
    }
    if constexpr (caps) {
      if (call.soft_cap > 0.0f) {
#pragma unroll
        for (int e = 0; e < Count; ++e) {
          x[e] = Traits::use_3xtf32 ? call.soft_cap * tanhf(x[e] / call.soft_cap)
                                    : call.soft_cap * tanh_fast(x[e] * args.inverse_cap);
        }
      }
    }
    if constexpr (biases) {
      if (call.bias_post.data != nullptr) add_bias(call.bias_post, x, row, near, hidden);
    }
    if constexpr (position_biases) {
      const row_biases more(call.positions, row);
#pragma unroll
      for (int e = 0; e < Count; ++e) {
        x[e] = more.added(x[e], near(e));
        hidden |= x[e] == prim::minus_infinity ? 1u << e : 0u;
      }
    }
    if constexpr (Hooks::has_logits) {
      position at = row;
#pragma unroll
      for (int e = 0; e < Count; ++e) {
        at.key = near(e);
        if constexpr (requires { near.ahead(e); }) at.ahead = near.ahead(e);
        // Called for hidden keys too: a branch for each of them would cost more.
        const float logit = hooks.logits(x[e], at);
        const bool counts = !(biases || position_biases) ||
                            (x[e] != prim::minus_infinity && (hidden >> e & 1u) == 0);
        x[e] = counts ? logit : x[e];
      }
    }
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void hide(const attention_kernel_args& call, const Hooks& hooks,
                                              const position& row, const Near& near,
                                              unsigned& hidden) {
    if constexpr (masks) {
      if (call.mask.data != nullptr) {
        const auto* shown =
            static_cast<const std::uint8_t*>(call.mask.data) + row_in(call.mask, row);
        std::uint8_t bytes[Count];
#pragma unroll
        for (int e = 0; e < Count; ++e) bytes[e] = shown[near(e) * call.mask.column];
#pragma unroll
        for (int e = 0; e < Count; ++e) hidden |= bytes[e] == 0 ? 1u << e : 0u;
      }
    }
    if constexpr (segments) {
      if (call.q_segments.data != nullptr) {
        const std::int32_t own =
            call.q_segments
                .data[row.batch * call.q_segments.batch + row.query * call.q_segments.row];
        const std::int32_t* ids = call.kv_segments.data + row.batch * call.kv_segments.batch;
        std::int32_t keys[Count];
#pragma unroll
        for (int e = 0; e < Count; ++e) keys[e] = ids[near(e) * call.kv_segments.row];
#pragma unroll
        for (int e = 0; e < Count; ++e) hidden |= own < 0 || keys[e] != own ? 1u << e : 0u;
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

}  // namespace tessera::kernels::attention
