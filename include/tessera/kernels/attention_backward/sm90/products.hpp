// Products of a warpgroup between tiles, and the weights of the scores that it has in registers.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>
#include <tessera/kernels/attention_backward/sm90/dropped_pairs.hpp>
#include <tessera/kernels/attention_backward/sm90/query_walk.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention_backward::sm90 {

using prim::cuda::describe_panels;
using prim::cuda::panel_step;
using prim::cuda::warpgroup_a;
using prim::cuda::warpgroup_product;

/// S^T = A B^T: 64 rows of TileA at `a`, all rows of TileB at `b`, as deep as they are wide. A
/// group of its own.
template <class Element, class TileA, class TileB>
__device__ __forceinline__ void multiply_keys(float (&sums)[TileB::rows / 2], std::uint32_t a,
                                              std::uint32_t b) {
  static_assert(TileA::width == TileB::width);
  const std::uint64_t of_a = describe_panels(a, 0), of_b = describe_panels(b, 0);
#pragma unroll
  for (int d = 0; d < TileA::width / 16; ++d) {
    warpgroup_product<Element, TileB::rows>::scores(
        sums, of_a + panel_step(d / 4 * TileA::panel_bytes + d % 4 * 32),
        of_b + panel_step(d / 4 * TileB::panel_bytes + d % 4 * 32), d > 0);
  }
  prim::cuda::commit_products();
}

/// 64 queries and 64 columns of d_q = d_s K, from panels of which each row is a key. A group of its
/// own.
template <class Element, int Keys>
__device__ __forceinline__ void multiply_d_q(float (&sums)[32], std::uint32_t d_scores,
                                             std::uint32_t keys) {
  const std::uint64_t a = describe_panels(d_scores, 0), b = describe_panels(keys, 0);
#pragma unroll
  for (int c = 0; c < Keys / 16; ++c) {
    warpgroup_product<Element, 64>::template multiply<true, true>(sums, a + panel_step(c * 2048),
                                                                  b + panel_step(c * 2048), c > 0);
  }
  prim::cuda::commit_products();
}

/// One of equal parts, one behind the other.
struct part {
  int number = 0, of = 1;

  __device__ constexpr int begin(int count) const { return count / of * number; }
  __device__ constexpr int end(int count) const { return count / of * (number + 1); }
};

/// Sums += A B of a tile of rows, or a part of them, with A in registers. A group of its own.
template <class Element, class Tile, part Part = part{}, int Steps>
__device__ __forceinline__ void add_rows(float (&sums)[Tile::width / 2],
                                         const warpgroup_a (&a)[Steps], std::uint32_t tile) {
  static_assert(Steps % Part.of == 0);
  const std::uint64_t b = describe_panels(tile, Tile::panel_bytes);
  prim::cuda::begin_products();
#pragma unroll
  for (int r = Part.begin(Steps); r < Part.end(Steps); ++r) {
    warpgroup_product<Element, Tile::width>::sums_of(sums, a[r], b + panel_step(r * 2048));
  }
  prim::cuda::commit_products();
}

/// Sums of a product, or a part of them, as the operand A of the next, 16 columns each. Weights of
/// score_kind::dropped are marked.
template <class Element, part Part = part{}, score_kind Kind = score_kind::plain, int Steps>
__device__ __forceinline__ void pack_operands(warpgroup_a (&to)[Steps],
                                              const float (&sums)[8 * Steps]) {
  using words = prim::cuda::half_words<Element>;
#pragma unroll
  for (int i = 4 * Part.begin(Steps); i < 4 * Part.end(Steps); ++i) {
    if constexpr (Kind == score_kind::dropped) {
      to[i / 4].word[i % 4] = words::pack(kept_weight(sums[2 * i]), kept_weight(sums[2 * i + 1]));
    } else {
      to[i / 4].word[i % 4] = words::pack(sums[2 * i], sums[2 * i + 1]);
    }
  }
}

/// Stores operands of 16 rows of a warp, from number `first_row` on, to a tile of scores.
template <class Tile, int Steps>
__device__ __forceinline__ void store_operands(std::uint32_t tile, int first_row,
                                               const warpgroup_a (&a)[Steps]) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t own =
      tile + Tile::offset(static_cast<unsigned>(first_row) + lane % 16, lane / 16);
#pragma unroll
  for (int i = 0; i < Steps; ++i) {
    prim::cuda::store_matrices((own ^ static_cast<std::uint32_t>(i % 4 * 32)) +
                                   static_cast<std::uint32_t>(i / 4 * Tile::panel_bytes),
                               a[i].word);
  }
}

/// Adds 64 queries and 64 columns of d_q, those before `Tiles::width`, to sums in memory.
template <class Tiles>
__device__ __forceinline__ void add_d_q(float* tile, int row16, int column8,
                                        const float (&d_q)[32]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const place = query_sums<Tiles>::place_of(tile, row16, column8);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (column8 + i >= Tiles::width / 8) break;
    query_sums<Tiles>::add(place, 0, i, lane,
                           {{d_q[4 * i], d_q[4 * i + 1], d_q[4 * i + 2], d_q[4 * i + 3]}});
  }
}

/// What products are multiplied by: to the base 2 where they are plain, into the unit of a cap.
template <score_kind Kind>
__device__ __forceinline__ float scale_of(const attention_kernel_args& args) {
  if constexpr (Kind == score_kind::computed) return args.softmax_scale / args.soft_cap;
  return args.softmax_scale * prim::log2_e;
}

/// The scores that a thread has of a tile: two keys, `key` and 8 on, and a quarter of the queries.
template <class Statistics>
struct own_scores {
  const Statistics& statistics;
  const key_taint* taint;
  int key, keys_left;
  const std::int32_t* segments_of_keys;
  bool tainted;
  float scale;          ///< see scale_of
  float dropout_scale;  ///< of what dropout keeps

  static __device__ __forceinline__ int query_of(int i) {
    return i * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
  }

  template <tile_view View>
  __device__ __forceinline__ bool sees(int query, int key_of_block) const {
    if constexpr (View == tile_view::whole) return true;
    const bool within = statistics.within_bounds(query, key_of_block);
    if constexpr (View == tile_view::bounded) return within;
    // Loaded whether needed or not: pairs with branches between them take more registers.
    const bool same = statistics.segment[query] == segments_of_keys[key_of_block];
    return (static_cast<int>(within) & static_cast<int>(same)) != 0;
  }

  /// Weights of plain products, or of a part of them.
  template <tile_view View, part Part, int Count>
  __device__ __forceinline__ void weigh_products(float (&products)[Count]) const {
#pragma unroll
    for (int i = Part.begin(Count / 4); i < Part.end(Count / 4); ++i) {
      const int query = query_of(i);
      const float2 shift = *reinterpret_cast<const float2*>(&statistics.shift[query]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int own = key + e / 2 * 8;
        float& x = products[4 * i + e];
        if (View == tile_view::any && tainted && own < keys_left) x += taint[own].k;
        x = prim::cuda::exp2_fast(fmaf(x, scale, -(e % 2 == 0 ? shift.x : shift.y)));
        if (!sees<View>(query + e % 2, own)) x = 0.0f;
      }
    }
  }
  /// Gradients of plain scores, or a part of them, from those of weights, which are marked where
  /// scores are of score_kind::dropped.
  template <score_kind Kind, tile_view View, part Part, int Count>
  __device__ __forceinline__ void weigh_gradients(const float (&weights)[Count],
                                                  float (&gradients)[Count]) const {
#pragma unroll
    for (int i = Part.begin(Count / 4); i < Part.end(Count / 4); ++i) {
      const int query = query_of(i);
      const float2 correction = *reinterpret_cast<const float2*>(&statistics.correction[query]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int own = key + e / 2 * 8;
        float& x = gradients[4 * i + e];
        if (View == tile_view::any && tainted && own < keys_left) x += taint[own].v;
        const float subtracted = e % 2 == 0 ? correction.x : correction.y;
        if constexpr (Kind == score_kind::dropped) {
          const float keep = is_marked(weights[4 * i + e]) ? 0.0f : dropout_scale;
          x = fabsf(weights[4 * i + e]) * fmaf(keep, x, -subtracted);
        } else {
          x = weights[4 * i + e] * (x - subtracted);
        }
        // Weights of hidden pairs are 0, those of pairs with tainted keys may be.
        const bool seen = View == tile_view::bounded ? weights[4 * i + e] != 0.0f
                                                     : sees<View>(query + e % 2, own);
        if (!seen) x = 0.0f;
      }
    }
  }
  /// Weights of scores behind a cap, most * tanh(products * scale), or of a part of them, as
  /// operands. What is left of products are weights times the slope of the cap.
  template <class Element, tile_view View, part Part, int Count, int Steps>
  __device__ __forceinline__ void weigh_capped(float most, float (&products)[Count],
                                               warpgroup_a (&weights)[Steps]) const {
    float largest = 0.0f;
#pragma unroll
    for (int i = Part.begin(Count); i < Part.end(Count); ++i) {
      largest = fmaxf(largest, fabsf(products[i]));
    }
    if (prim::cuda::any_of_warp(largest * fabsf(scale) >= prim::cuda::tanh_near)) {
      // What is near zero among them may be so to the digits of 1: logits are added up.
      const float to_base_2 = scale * (2.0f * prim::log2_e);
      weigh_behind<Element, View, Part>(most, products, weights, [to_base_2](float x) {
        return prim::cuda::scaled_tanh_with_slope(x * to_base_2);
      });
    } else {
      weigh_behind<Element, View, Part>(most, products, weights, [this](float x) {
        return prim::cuda::tanh_with_slope_near_zero(x * scale);
      });
    }
  }
  /// The same behind `most` times any function that `apply` gives with its slope.
  template <class Element, tile_view View, part Part, int Count, int Steps, class Apply>
  __device__ __forceinline__ void weigh_behind(float most, float (&products)[Count],
                                               warpgroup_a (&weights)[Steps],
                                               const Apply& apply) const {
#pragma unroll
    for (int i = Part.begin(Count / 2); i < Part.end(Count / 2); ++i) {
      const int query = query_of(i / 2), own = key + i % 2 * 8;
      const float2 shift = *reinterpret_cast<const float2*>(&statistics.shift[query]);
      float of_pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float &x = products[2 * i + e], &weight = of_pair[e];
        if (View == tile_view::any && tainted && own < keys_left) x += taint[own].k;
        const prim::cuda::value_with_slope capped = apply(x);
        weight = prim::cuda::exp2_fast(
            fmaf(capped.value, most * prim::log2_e, -(e == 0 ? shift.x : shift.y)));
        x = weight * capped.slope;
        if (!sees<View>(query + e, own)) weight = x = 0.0f;
      }
      weights[i / 4].word[i % 4] = prim::cuda::half_words<Element>::pack(of_pair[0], of_pair[1]);
    }
  }
  /// Both of scores of which tensors or random numbers say something. `first`: where the tile's
  /// first query meets the block's first key.
  template <class Hooks, int Count>
  __device__ __forceinline__ void weigh_all(const hooked_args<Hooks>& args,
                                            const score_place& first, float (&products)[Count],
                                            float (&gradients)[Count]) const {
#pragma unroll
    for (int i = 0; i < Count / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = query_of(i) + e % 2, own = key + e / 2 * 8;
        const bool seen = sees<tile_view::any>(query, own);
        if (tainted && seen) {
          products[4 * i + e] += taint[own].k;
          gradients[4 * i + e] += taint[own].v;
        }
        weigh<score_kind::all>(args,
                               {first.entry, first.head, first.query + query, first.key + own},
                               seen, scale, statistics.shift[query], statistics.correction[query],
                               products[4 * i + e], gradients[4 * i + e]);
      }
    }
  }
  /// Weights of plain products, or of a part of them.
  template <part Part = part{}, int Count>
  __device__ __forceinline__ void weigh_products(tile_view view, float (&products)[Count]) const {
    if (view == tile_view::whole) {
      weigh_products<tile_view::whole, Part>(products);
    } else if (view == tile_view::bounded) {
      weigh_products<tile_view::bounded, Part>(products);
    } else {
      weigh_products<tile_view::any, Part>(products);
    }
  }
  template <score_kind Kind, part Part = part{}, int Count>
  __device__ __forceinline__ void weigh_gradients(tile_view view, const float (&weights)[Count],
                                                  float (&gradients)[Count]) const {
    if (view == tile_view::whole) {
      weigh_gradients<Kind, tile_view::whole, Part>(weights, gradients);
    } else if (!tainted) {
      weigh_gradients<Kind, tile_view::bounded, Part>(weights, gradients);
    } else {
      weigh_gradients<Kind, tile_view::any, Part>(weights, gradients);
    }
  }
  /// Weights as operands, or a part of them, and what gradients of weights are multiplied by in
  /// place of products: weights, which are marked where dropout took them, or behind a cap weights
  /// times its slope.
  template <class Element, score_kind Kind, part Part = part{}, int Count, int Words, int Steps>
  __device__ __forceinline__ void weigh_operands(tile_view view, float most,
                                                 const std::uint32_t (&taken)[Words],
                                                 float (&products)[Count],
                                                 warpgroup_a (&weights)[Steps]) const {
    if constexpr (Kind != score_kind::computed) {
      weigh_products<Part>(view, products);
      if constexpr (Kind == score_kind::dropped) {
        mark_dropped<Part.begin(Count), Part.end(Count)>(taken, products);
      }
      pack_operands<Element, Part, Kind>(weights, products);
    } else if (view == tile_view::whole) {
      weigh_capped<Element, tile_view::whole, Part>(most, products, weights);
    } else {
      weigh_capped<Element, tile_view::any, Part>(most, products, weights);
    }
  }
};

}  // namespace tessera::kernels::attention_backward::sm90
