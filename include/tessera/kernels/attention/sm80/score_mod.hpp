// Score modification: from products q k to logits on the registers of a warp: scale, biases, soft
// cap, functors, masks and segments. The order and the treatment of -inf are those of the CPU.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/score_mod_tile.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

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
      if (!args.plain && begin < end) change(args, hooks, x, at, near, hidden);
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
    float values[Count];
#pragma unroll
    for (int e = 0; e < Count; ++e) values[e] = load_bias(bias, row + near(e) * bias.column);
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      hidden |= values[e] == prim::minus_infinity ? 1u << e : 0u;
      x[e] += values[e];
    }
  }

  template <int Count, class Near>
  static __device__ __forceinline__ void change(const launch_args& args, const Hooks& hooks,
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
        const bool counts = x[e] != prim::minus_infinity && (hidden >> e & 1u) == 0;
        if (counts) x[e] = hooks.logits(x[e], at);
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

/// From products to logits for all rows of a warp: which rows and keys its scores belong to, and
/// whether a tile is worked on as a whole or a row at a time. `State` is the `block_state`, which
/// lies in shared memory.
template <class Traits, class Hooks, class State>
class score_mod {
  using row_form = score_mod_row<Traits, Hooks>;
  using scores_type = prim::cuda::accumulator[Traits::row_tiles][Traits::key_tiles];
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  __device__ __forceinline__ score_mod(warp_tile<Traits, State>& warp, const Hooks& hooks)
      : warp_(warp), args_(warp.args), hooks_(hooks), block_(warp.block) {}

  /// `looks`: mask tensor, segments or mask functor may hide something.
  __device__ __forceinline__ void apply(int key0, bool looks) const {
    scores_type& scores = warp_.scores;
    const auto thread = static_cast<int>(prim::cuda::thread_index());
    if constexpr (!row_form::calls_functors) {
      if (!row_form::reads || (args_.wide && can_read(key0))) {
        apply_to_tile(scores, thread, key0, looks);
        return;
      }
    }
    if constexpr (row_form::calls_functors || row_form::reads) {
      // One row at a time, each in the place of the first, so that the code is there once.
#pragma unroll 1
      for (int r = 0; r < 2 * row_tiles; ++r) {
        const int row = row_of_thread<Traits>(thread, r / 2, r % 2);
        row_form::apply(args_, hooks_, scores[0], 0, position_of(row), key0, keys_of(row), looks);
        turn_rows(scores);
      }
    }
  }

 private:
  /// Of a row of the block.
  __device__ __forceinline__ position position_of(int row) const {
    const query_row at = query_at(args_, block_, row);
    return {block_.work.seq.index, at.head, at.query, 0, at.query + block_.visible.mask.offset};
  }
  /// Empty for a row that is not used.
  __device__ __forceinline__ prim::key_interval keys_of(int row) const {
    return row < block_.work.used ? block_.visible.keys_of(query_at(args_, block_, row).query)
                                  : prim::key_interval{};
  }

  /// True if tensors have all keys of a tile.
  __device__ __forceinline__ bool can_read(int key0) const {
    const attention_kernel_args& call = args_.call;
    return key0 + Traits::block_kv <=
           (call.cu_seqlens_k != nullptr ? block_.work.seq.k_len : call.kv_len);
  }

  __device__ __forceinline__ void apply_to_tile(scores_type& scores, int thread, int key0,
                                                bool looks) const {
    const bool inside =
        block_.keys.full_begin <= key0 && block_.keys.full_end >= key0 + Traits::block_kv;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      // Row tiles are apart, so that what tensors say of one is not fetched while another's takes
      // registers.
      if (row_form::reads && row_of_thread<Traits>(thread & ~31, m, 0) >= block_.work.used) {
        break;
      }
      const auto row_at = [&](int half) {
        return position_of(min(row_of_thread<Traits>(thread, m, half), block_.work.used - 1));
      };
      score_mod_tile<Traits, decltype(row_at)> tile(args_, scores[m], row_at, thread, key0);
      if constexpr (row_form::changes) {
        if (!args_.plain) tile.change();
      }
      if (looks) tile.hide();
      if (!inside) {
        tile.clip([&](int half) { return keys_of(row_of_thread<Traits>(thread, m, half)); });
      }
    }
  }

  /// Each row takes the place of the one before, the first that of the last.
  static __device__ __forceinline__ void turn_rows(scores_type& scores) {
#pragma unroll
    for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float first = scores[0][n].at[e];
#pragma unroll
        for (int r = 0; r + 1 < 2 * row_tiles; ++r) {
          scores[r / 2][n].at[r % 2 * 2 + e] = scores[(r + 1) / 2][n].at[(r + 1) % 2 * 2 + e];
        }
        scores[row_tiles - 1][n].at[2 + e] = first;
      }
    }
  }

  warp_tile<Traits, State>& warp_;
  const launch_args& args_;
  const Hooks& hooks_;
  const State& block_;
};

}  // namespace tessera::kernels::attention::sm80
