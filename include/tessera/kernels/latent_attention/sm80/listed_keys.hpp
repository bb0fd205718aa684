// Lists of keys as a mask of the dense kernels: a bit for each token and key.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Tokens whose lists are known together.
inline constexpr int united_tokens = 16;

struct listed_keys {
  const std::uint32_t* listed = nullptr;  ///< [entries][length][words]
  const std::uint32_t* united = nullptr;  ///< of each 16 tokens: [entries][groups][words]
  std::int64_t words = 0, length = 0;

  __host__ __device__ std::int64_t groups() const { return ceil_div(length, united_tokens); }
  /// The words of a token from that of key `key` on.
  __device__ __forceinline__ const std::uint32_t* of(std::int64_t entry, std::int64_t token,
                                                     std::int64_t key) const {
    return listed + (entry * length + token) * words + key / 32;
  }
  __device__ __forceinline__ bool operator()(const position& at) const {
    return (*of(at.batch, at.query, at.key) >> at.key % 32 & 1u) != 0;
  }
  __device__ prim::tile_visibility classify(const prim::score_tile& tile) const {
    std::uint32_t some = 0;
    const std::int64_t last = (tile.query_end - 1) / united_tokens;
    for (std::int64_t group = tile.query_begin / united_tokens; group <= last; ++group) {
      const std::uint32_t* const of_group = united + (tile.entry * groups() + group) * words;
      for (std::int64_t word = tile.key_begin / 32; word * 32 < tile.key_end; ++word) {
        some |= of_group[word];
      }
    }
    return some == 0 ? prim::tile_visibility::skip : prim::tile_visibility::partial;
  }
};
static_assert(prim::classifies_tiles<listed_keys>);
using listed_hooks = flash_hooks<prim::no_logit_modifier, listed_keys>;

/// Keys that some of 16 tokens have in their lists. A thread for each word.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    unite_lists(const listed_keys lists, std::uint32_t* united, const std::int64_t entries) {
  const std::int64_t all = entries * lists.groups() * lists.words;
  for (std::int64_t at = std::int64_t{blockIdx.x} * Threads + threadIdx.x; at < all;
       at += std::int64_t{gridDim.x} * Threads) {
    const std::int64_t word = at % lists.words, group = at / lists.words % lists.groups();
    const std::int64_t entry = at / lists.words / lists.groups(), first = group * united_tokens;
    std::uint32_t some = 0;
    for (std::int64_t t = first; t < first + united_tokens && t < lists.length; ++t) {
      some |= lists.of(entry, t, 0)[word];
    }
    united[at] = some;
  }
}

}  // namespace tessera::kernels::latent_attention::sm80

namespace tessera::kernels::attention {

/// Scores of a row of a warp's tile: the bits of its 64 keys are two words.
template <class Traits>
struct score_mod_row<Traits, kernels::latent_attention::sm80::listed_hooks> {
  static constexpr bool caps = Traits::has(attention_feature::soft_cap);
  static constexpr bool changes = caps;
  static constexpr bool calls_functors = true;
  static constexpr bool reads = false;
  static_assert(Traits::block_kv == 64);

  /// Columns 2t and 2t + 1 of each 8 keys, elements 2 * half and 2 * half + 1 of each accumulator;
  /// see `score_mod_row`.
  template <class Args>
  static __device__ __forceinline__ void apply(
      const Args& args, const kernels::latent_attention::sm80::listed_hooks& hooks,
      prim::cuda::accumulator (&scores)[Traits::key_tiles], int half, const position& at, int key0,
      const prim::key_interval& keys, bool looks) {
    std::uint32_t seen[2] = {bits_of(keys, key0), bits_of(keys, key0 + 32)};
    if (looks && (seen[0] | seen[1]) != 0) {
      const std::uint32_t* const words = hooks.mask.of(at.batch, at.query, key0);
      seen[0] &= words[0];
      seen[1] &= words[1];
    }
    // A lane's first column comes to bit 0, so that the others are constants.
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    seen[0] >>= column;
    seen[1] >>= column;
    const bool capped = caps && args.call.soft_cap > 0.0f;
#pragma unroll
    for (int e = 0; e < 2 * Traits::key_tiles; ++e) {
      float& score = scores[e / 2].at[2 * half + e % 2];
      if (!args.plain) score *= args.call.softmax_scale;
      if (capped) score = args.call.soft_cap * tanh_fast(score * args.inverse_cap);
      const std::uint32_t bit = 1u << (e % 8 / 2 * 8 + e % 2);
      score = (seen[e / 8] & bit) != 0 ? score : prim::minus_infinity;
    }
  }

  /// Products of one row and the keys `key_of(e)`, of a tile or alone; see `score_mod_row`.
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_row(
      const Args& args, const kernels::latent_attention::sm80::listed_hooks& hooks,
      float (&x)[Count], const position& at, const KeyOf& key_of, const prim::key_interval& keys,
      bool looks) {
    if constexpr (Count == 1) {
      position pair = at;
      pair.key = key_of(0);
      const bool inside = pair.key >= keys.begin && pair.key < keys.end;
      x[0] = inside && (!looks || hooks.mask(pair)) ? logit(args, x[0]) : prim::minus_infinity;
    } else {
      const int key0 = key_of(0) & ~63;
      hide(args, hooks, x, at, key0, bits_of(keys, key0), bits_of(keys, key0 + 32), looks);
    }
  }
  template <class Args, int Count, class KeyOf>
  static __device__ __forceinline__ void apply_inside(
      const Args& args, const kernels::latent_attention::sm80::listed_hooks& hooks,
      float (&x)[Count], const position& at, const KeyOf& key_of, bool looks) {
    hide(args, hooks, x, at, key_of(0) & ~63, ~0u, ~0u, looks);
  }

 private:
  template <class Args>
  static __device__ __forceinline__ float logit(const Args& args, float score) {
    if (!args.plain) score *= args.call.softmax_scale;
    if (caps && args.call.soft_cap > 0.0f) {
      score = args.call.soft_cap * tanh_fast(score * args.inverse_cap);
    }
    return score;
  }

  /// Of a tile, whose keys of the row that may be seen are the bits of two words.
  template <class Args, int Count>
  static __device__ __forceinline__ void hide(
      const Args& args, const kernels::latent_attention::sm80::listed_hooks& hooks,
      float (&x)[Count], const position& at, int key0, std::uint32_t low, std::uint32_t high,
      bool looks) {
    static_assert(Count == 2 * Traits::key_tiles);
    if (looks && (low | high) != 0) {
      const uint2 words = *reinterpret_cast<const uint2*>(hooks.mask.of(at.batch, at.query, key0));
      low &= words.x;
      high &= words.y;
    }
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    low >>= column;
    high >>= column;
#pragma unroll
    for (int e = 0; e < Count; ++e) {
      const std::uint32_t bit = 1u << (e % 8 / 2 * 8 + e % 2);
      x[e] = ((e < 8 ? low : high) & bit) != 0 ? logit(args, x[e]) : prim::minus_infinity;
    }
  }

  /// Keys [first, first + 32) that lie in an interval.
  static __device__ __forceinline__ std::uint32_t bits_of(const prim::key_interval& keys,
                                                          int first) {
    const auto before = [first](std::int64_t end) {
      const std::int64_t count = end - first;
      return count <= 0 ? 0u : count >= 32 ? ~0u : (1u << count) - 1;
    };
    return before(keys.end) & ~before(keys.begin);
  }
};

}  // namespace tessera::kernels::attention
