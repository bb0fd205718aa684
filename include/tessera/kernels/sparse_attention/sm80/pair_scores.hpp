// Hooks of the kernels of attention that hide what blocksparse attention hides: how they ask about
// the pairs of a tile.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/kernels/attention/common/score_mod_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tanh.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

template <class Pairs>
using blocksparse_hooks = flash_hooks<prim::no_logit_modifier, Pairs>;
template <class Pairs>
concept says_who_is_seen = std::derived_from<Pairs, visible_pairs>;

}  // namespace tessera::kernels::sparse_attention::sm80

namespace tessera::kernels::attention {

/// Scores of a row of a warp's tile: keys are asked about one after the other, whose answers take
/// one register. All at once they would take those of the sums.
template <class Traits, kernels::sparse_attention::sm80::says_who_is_seen Pairs>
struct score_mod_row<Traits, kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>> {
  static constexpr bool caps = Traits::has(attention_feature::soft_cap);
  static constexpr bool changes = caps;
  static constexpr bool calls_functors = true;
  static constexpr bool reads = false;

  /// Columns 2t and 2t + 1 of each 8 keys, elements 2 * half and 2 * half + 1 of each accumulator;
  /// see `score_mod_row`.
  template <class Args>
  static __device__ __forceinline__ void apply(
      const Args& args, const kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>& hooks,
      prim::cuda::accumulator (&scores)[Traits::key_tiles], int half, const position& at, int key0,
      const prim::key_interval& keys, bool looks) {
    const int first = key0 + static_cast<int>(threadIdx.x) % 4 * 2;
    const auto key_of = [first](int e) { return first + e / 2 * 8 + e % 2; };
    const std::uint32_t seen =
        seen_keys<2 * Traits::key_tiles>(hooks, at, key_of, keys, looks && !keys.empty());
#pragma unroll
    for (int e = 0; e < 2 * Traits::key_tiles; ++e) {
      float& score = scores[e / 2].at[2 * half + e % 2];
      const float x = logit(args, score);
      score = (seen >> e & 1u) != 0 ? x : prim::minus_infinity;
    }
  }

  /// Products of one row and the keys `key_of(e)`; see `score_mod_row`.
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_row(
      const Args& args, const kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>& hooks,
      float (&x)[Count], const position& at, const KeyOf& key_of, const prim::key_interval& keys,
      bool looks) {
    change(args, x);
    if (looks && !keys.empty()) {
      const std::uint32_t seen = seen_keys<Count>(hooks, at, key_of, keys, true);
      return hide(x, [seen](int e) { return (seen >> e & 1u) != 0; });
    }
    hide(x, [&](int e) { return key_of(e) >= keys.begin && key_of(e) < keys.end; });
  }
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_inside(
      const Args& args, const kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>& hooks,
      float (&x)[Count], const position& at, const KeyOf& key_of, bool looks) {
    change(args, x);
    if (!looks) return;
    const std::uint32_t seen = seen_keys<Count>(hooks, at, key_of, {0, INT32_MAX}, true);
    hide(x, [seen](int e) { return (seen >> e & 1u) != 0; });
  }

 private:
  /// Bit e: the row sees the key. Unless `asks`, it sees those of its interval.
  template <int Count, class KeyOf>
  static __device__ __forceinline__ std::uint32_t seen_keys(
      const kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>& hooks, const position& at,
      const KeyOf& key_of, const prim::key_interval& keys, bool asks) {
    static_assert(Count <= 32);
    std::uint32_t seen = 0;
    kernels::sparse_attention::sm80::row_view view{};
    if (asks) view = hooks.mask.view_of(at.batch, at.query);
#pragma unroll 1
    for (int e = 0; e < Count; ++e) {
      const int key = key_of(e);
      const bool sees = key >= keys.begin && key < keys.end &&
                        (!asks || hooks.mask.sees(view, at.batch, at.head, at.query, key));
      seen |= sees ? 1u << e : 0u;
    }
    return seen;
  }
  template <class Args>
  static __device__ __forceinline__ float logit(const Args& args, float score) {
    if (!args.plain) score *= args.call.softmax_scale;
    if constexpr (caps) {
      if (args.call.soft_cap > 0.0f) {
        score = args.call.soft_cap * tanh_fast(score * args.inverse_cap);
      }
    }
    return score;
  }
  template <class Args, int Count>
  static __device__ __forceinline__ void change(const Args& args, float (&x)[Count]) {
    if (args.plain) return;
#pragma unroll
    for (float& score : x) score = logit(args, score);
  }
  template <int Count, class Sees>
  static __device__ __forceinline__ void hide(float (&x)[Count], const Sees& sees) {
#pragma unroll
    for (int e = 0; e < Count; ++e) x[e] = sees(e) ? x[e] : prim::minus_infinity;
  }
};

}  // namespace tessera::kernels::attention
