// All three gradients in one pass on Hopper (sm_90a): two warpgroups own 128 keys and walk through
// the queries of their group that see them. d_k and d_v stay in registers; what the block adds to
// d_q goes to f32 sums in memory, to which blocks of other keys add too, in no order.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691; J. Shah et al., "FlashAttention-3",
// arXiv:2407.08608. Scores are computed transposed: a warpgroup's 64 keys are its rows, so weights
// and gradients of scores are operands of d_v and d_k in the registers that they come in. Only d_q,
// which sums over keys, needs the gradients of all of them: they pass through shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>
#include <tessera/kernels/attention_backward/sm80/tiles.hpp>
#include <tessera/kernels/attention_backward/sm90/panels.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention_backward::sm90 {

using namespace sm80;  // NOLINT: the pieces of the kernels are the same
using prim::cuda::describe_panels;
using prim::cuda::panel_step;
using prim::cuda::warpgroup_a;
using prim::cuda::warpgroup_product;

/// What is known of the queries of a tile, in the order of its rows.
template <int Queries>
struct query_numbers {
  float shift[Queries], correction[Queries];  ///< shift to the base 2
  int begin[Queries], end[Queries];           ///< of the block's keys those that the query sees

  __device__ __forceinline__ bool sees(int query, int key) const {
    return key >= begin[query] && key < end[query];
  }
};

/// Tiles of a head dim.
template <int Width>
struct hopper_tiles {
  static constexpr int width = Width, queries = Width == 64 ? 128 : 64, own = 128, threads = 256;
  using keys = panel_tile<own, Width>;
  using rows = panel_tile<queries, Width>;
  using scores = panel_tile<own, queries>;  ///< of gradients: rows are keys
  using statistics = query_numbers<queries>;
  /// d_q: columns of a warpgroup, if they share the rows, whose columns may be fewer.
  static constexpr bool shared_rows = queries == 64;
  static constexpr int stages = 2, stage_bytes = 2 * rows::bytes;
  static constexpr int stages_at = 2 * keys::bytes + 2 * scores::bytes;
  static constexpr int statistics_at = stages_at + stages * stage_bytes;
  static constexpr int shared_bytes =
      1024 + statistics_at + 2 * static_cast<int>(sizeof(statistics));
};

/// The tiles of queries of a group of heads, one after the other.
struct tile_walk {
  int head = 0, tile = 0;
  tile_interval of{};
  int left = 0;  ///< tiles of the head

  __device__ __forceinline__ void advance() {
    if (++tile == of.end) tile = of.begin;
    if (--left == 0) {
      left = of.end - of.begin;
      ++head;
    }
  }
};

/// Sums of a product as the operand A of the next, 16 columns each.
template <class Element, int Steps>
__device__ __forceinline__ void pack_operands(warpgroup_a (&to)[Steps],
                                              const float (&sums)[8 * Steps]) {
  using words = prim::cuda::half_words<Element>;
#pragma unroll
  for (int i = 0; i < 4 * Steps; ++i) {
    to[i / 4].word[i % 4] = words::pack(sums[2 * i], sums[2 * i + 1]);
  }
}

template <class Element, int Width, score_kind Kind>
__global__ void __launch_bounds__(256, 1)
    hopper_gradients(const __grid_constant__ hooked_args<flash_hooks<>> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using tiles = hopper_tiles<Width>;
  using keys = typename tiles::keys;
  using rows = typename tiles::rows;
  using scores = typename tiles::scores;
  constexpr int queries = tiles::queries, own = tiles::own, threads = tiles::threads;
  constexpr bool plain = Kind == score_kind::plain;
  extern __shared__ unsigned char unaligned_memory[];
  unsigned char* const memory =
      unaligned_memory + (1024 - prim::cuda::shared_address(unaligned_memory) % 1024) % 1024;
  const attention_kernel_args& of = args.call.forward;
  const auto thread = static_cast<int>(threadIdx.x);
  const int group_index = prim::cuda::warpgroup_index();
  const int warp = thread / 32 % 4, lane = thread % 32;
  const std::int64_t item = blockIdx.x;
  const std::int64_t key0 = item % args.tiles * own;
  const int kv_head = static_cast<int>(item / args.tiles % of.kv_heads);
  const block_sequence block = block_sequence::of(of, item / args.tiles / of.kv_heads);
  const prim::sequence& seq = block.seq;
  if (key0 >= block.all_k) return;

  const std::uint32_t k = prim::cuda::shared_address(memory), v = k + keys::bytes;
  const std::uint32_t d_scores = v + keys::bytes, stages = k + tiles::stages_at;
  auto* const all_statistics =
      reinterpret_cast<typename tiles::statistics*>(memory + tiles::statistics_at);
  const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
  const prim::key_interval block_keys{key0, key0 + own < seq.k_len ? key0 + own : seq.k_len};
  const tile_interval seen_by = tiles_that_see<queries, threads>(visible, seq.q_len, block_keys);
  const int group = kernels::attention::group_of(of);
  const int count = seen_by.end - seen_by.begin;
  const int steps = block_keys.empty() || count <= 0 ? 0 : count * group;
  // Blocks of neighbouring keys run beside each other: each begins with other queries, or they
  // would add to the same sums at the same time.
  tile_walk loaded{kv_head * group, seen_by.begin, seen_by};
  if (steps > 0) loaded.tile += static_cast<int>(key0 / own % count);
  loaded.left = count;
  tile_walk current = loaded;
  // Copies the tile of step `step`, the next one, and says what is known of its queries.
  const auto start = [&](int step) {
    typename tiles::statistics& statistics = all_statistics[step % 2];
    const std::int64_t first = std::int64_t{loaded.tile} * queries;
    const auto left = static_cast<int>(seq.q_len - first < queries ? seq.q_len - first : queries);
    const auto used = [&](int r) { return r < left; };
    const std::uint32_t to =
        stages + static_cast<std::uint32_t>(step % tiles::stages * tiles::stage_bytes);
    copy_tile<rows, Element, threads>(to, of.q, of.q_strides, seq, seq.q_begin + first, loaded.head,
                                      used);
    copy_tile<rows, Element, threads>(to + rows::bytes, args.call.d_out, args.call.d_out_strides,
                                      seq, seq.q_begin + first, loaded.head, used);
    if (thread < queries) {
      const std::int64_t query = first + thread;
      const std::int64_t from = loaded.head * args.rows + block.row(of, thread < left ? query : 0);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&statistics.shift[thread]),
                               args.shift + from, thread < left);
      prim::cuda::copy_async_4(prim::cuda::shared_address(&statistics.correction[thread]),
                               args.correction + from, thread < left);
      seen_part seen;
      if (thread < left) seen = seen_part::of(visible.keys_of(query), key0, own);
      statistics.begin[thread] = seen.begin;
      statistics.end[thread] = seen.end;
    }
    prim::cuda::commit_copies();
    loaded.advance();
  };
  // The tile of a step has arrived, for all. Rows without weights may hold anything, and those that
  // are not finite reach others as shifts.
  const auto arrive = [&](int step) {
    const std::uint32_t q =
        stages + static_cast<std::uint32_t>(step % tiles::stages * tiles::stage_bytes);
    const typename tiles::statistics& statistics = all_statistics[step % 2];
    const auto finite = [&](int r) { return statistics.shift[r] < infinite(); };
    prim::cuda::wait_copies<0>();
    written_for_products();
    if (__syncthreads_or(step < steps && thread < queries && !finite(thread)) != 0) {
      clear_rows<rows, threads>(q, finite);
      clear_rows<rows, threads>(q + rows::bytes, finite);
      written_for_products();
      __syncthreads();
    }
  };

  bool tainted = false;
  const key_taint* const of_keys = args.taint + kv_head * args.keys + block.key(of, key0);
  const auto keys_left = static_cast<int>(block_keys.end - key0);
  if (steps > 0) {
    copy_tile<keys, Element, threads>(k, of.k, of.k_strides, seq, seq.k_begin + key0, kv_head,
                                      [&](int r) { return r < keys_left && of_keys[r].k == 0.0f; });
    copy_tile<keys, Element, threads>(v, of.v, of.v_strides, seq, seq.k_begin + key0, kv_head,
                                      [&](int r) { return r < keys_left && of_keys[r].v == 0.0f; });
    start(0);
    for (int r = thread; r < keys_left; r += threads) {
      tainted = tainted || of_keys[r].k != 0.0f || of_keys[r].v != 0.0f;
    }
  }
  tainted = __syncthreads_or(tainted) != 0;

  float d_k[Width / 2] = {}, d_v[Width / 2] = {};
  const float scale = of.softmax_scale * prim::log2_e;
  const int own_row = group_index * 64 + warp * 16 + lane / 4;  // and 8 rows below
  const std::uint64_t own_k = describe_panels(k + keys::row_bytes * 64 * group_index, 0);
  const std::uint64_t own_v = describe_panels(v + keys::row_bytes * 64 * group_index, 0);
  // Scores S^T = K Q^T, or gradients of weights V d_out^T, from a tile of rows of a step.
  const auto rows_of = [&](int step) {
    return stages + static_cast<std::uint32_t>(step % tiles::stages * tiles::stage_bytes);
  };
  const auto multiply_keys = [&](float(&sums)[queries / 2], std::uint64_t a, std::uint32_t tile) {
    const std::uint64_t b = describe_panels(tile, 0);
#pragma unroll
    for (int d = 0; d < Width / 16; ++d) {
      warpgroup_product<Element, queries>::scores(
          sums, a + panel_step(d / 4 * keys::panel_bytes + d % 4 * 32),
          b + panel_step(d / 4 * rows::panel_bytes + d % 4 * 32), d > 0);
    }
    prim::cuda::commit_products();
  };
  float* earlier_sums = nullptr;
  // d_q of the step before, from the gradients of its scores.
  const auto multiply_d_q = [&](float(&sums)[32], int step) {
    // Two warpgroups share 64 rows and have 64 columns each, or all columns of 64 rows.
    const std::uint32_t from = d_scores + step % 2 * scores::bytes;
    const std::uint64_t a =
        describe_panels(from + (tiles::shared_rows ? 0 : scores::panel_bytes * group_index), 0);
    const std::uint64_t b =
        describe_panels(k + (tiles::shared_rows ? keys::panel_bytes * group_index : 0), 0);
#pragma unroll
    for (int c = 0; c < own / 16; ++c) {
      warpgroup_product<Element, 64>::template multiply<true, true>(
          sums, a + panel_step(c * 2048), b + panel_step(c * 2048), c > 0);
    }
    prim::cuda::commit_products();
  };
  const auto add_d_q = [&](const float(&d_q)[32]) {
    const int row16 = tiles::shared_rows ? warp : warp + 4 * group_index;
    const int column8 = tiles::shared_rows ? 8 * group_index : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (column8 + i >= Width / 8) break;
      query_sums<tiles>::add(earlier_sums, row16, column8 + i, lane,
                             {{d_q[4 * i], d_q[4 * i + 1], d_q[4 * i + 2], d_q[4 * i + 3]}});
    }
  };
  for (int step = 0; step < steps; ++step) {
    arrive(step);
    if (step + 1 < steps) start(step + 1);
    const std::uint32_t q = rows_of(step), d_out = q + rows::bytes;
    const std::uint32_t own_d_scores = d_scores + step % 2 * scores::bytes;
    const typename tiles::statistics& statistics = all_statistics[step % 2];
    const std::int64_t first = std::int64_t{current.tile} * queries;
    const int own_head = current.head;
    float products[queries / 2], gradients[queries / 2];
    {
      // Of the first step there is none before: its products are nobody's.
      float d_q[32];
      prim::cuda::begin_products();
      multiply_d_q(d_q, step + 1);
      multiply_keys(products, own_k, q);
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(d_q);
      if (step > 0) add_d_q(d_q);
    }
    prim::cuda::begin_products();
    multiply_keys(gradients, own_v, d_out);
    earlier_sums = query_sums<tiles>::tile_of(args, seq, own_head, current.tile);
    const bool whole = plain && !tainted && first + queries <= seq.q_len &&
                       visible.keys_of(first, first + queries - 1).all.contains({key0, key0 + own});
    const std::uint64_t q_deep = describe_panels(q, rows::panel_bytes);
    const std::uint64_t d_out_deep = describe_panels(d_out, rows::panel_bytes);
    const auto add_rows = [&](float(&sums)[Width / 2], const warpgroup_a(&a)[queries / 16],
                              std::uint64_t b) {
      prim::cuda::begin_products();
#pragma unroll
      for (int r = 0; r < queries / 16; ++r) {
        warpgroup_product<Element, Width>::sums_of(sums, a[r], b + panel_step(r * 2048));
      }
      prim::cuda::commit_products();
    };

    // Weights while the gradients that come into them are multiplied, and those of scores while
    // weights are.
    prim::cuda::wait_products<plain ? 1 : 0>();
    prim::cuda::keep_in_place(products);
    warpgroup_a own_weights[queries / 16], own_gradients[queries / 16];
    if constexpr (plain) {
      const auto weigh_products = [&]<bool Whole>() {
#pragma unroll
        for (int i = 0; i < queries / 8; ++i) {
          const int query = i * 8 + lane % 4 * 2;
          const float2 shift = *reinterpret_cast<const float2*>(&statistics.shift[query]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = own_row + e / 2 * 8;
            float& x = products[4 * i + e];
            if (!Whole && tainted && key < keys_left) x += of_keys[key].k;
            x = prim::cuda::exp2_fast(fmaf(x, scale, -(e % 2 == 0 ? shift.x : shift.y)));
            if (!Whole && !statistics.sees(query + e % 2, key)) x = 0.0f;
          }
        }
      };
      if (whole) {
        weigh_products.template operator()<true>();
      } else {
        weigh_products.template operator()<false>();
      }
      pack_operands<Element>(own_weights, products);
      add_rows(d_v, own_weights, d_out_deep);
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(gradients);
      const auto weigh_gradients = [&]<bool Whole>() {
#pragma unroll
        for (int i = 0; i < queries / 8; ++i) {
          const int query = i * 8 + lane % 4 * 2;
          const float2 correction = *reinterpret_cast<const float2*>(&statistics.correction[query]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = own_row + e / 2 * 8;
            float& x = gradients[4 * i + e];
            if (!Whole && tainted && key < keys_left) x += of_keys[key].v;
            x = products[4 * i + e] * (x - (e % 2 == 0 ? correction.x : correction.y));
            if (!Whole && !statistics.sees(query + e % 2, key)) x = 0.0f;
          }
        }
      };
      if (whole) {
        weigh_gradients.template operator()<true>();
      } else {
        weigh_gradients.template operator()<false>();
      }
    } else {
      prim::cuda::keep_in_place(gradients);
#pragma unroll
      for (int i = 0; i < queries / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int query = i * 8 + lane % 4 * 2 + e % 2, key = own_row + e / 2 * 8;
          const bool seen = statistics.sees(query, key);
          if (tainted && seen) {
            products[4 * i + e] += of_keys[key].k;
            gradients[4 * i + e] += of_keys[key].v;
          }
          weigh<Kind>(args, {seq.index, own_head, first + query, key0 + key}, seen, scale,
                      statistics.shift[query], statistics.correction[query], products[4 * i + e],
                      gradients[4 * i + e]);
        }
      }
      pack_operands<Element>(own_weights, products);
      add_rows(d_v, own_weights, d_out_deep);
    }
    pack_operands<Element>(own_gradients, gradients);
    add_rows(d_k, own_gradients, q_deep);
#pragma unroll
    for (int i = 0; i < queries / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        prim::cuda::store_shared_4(
            own_d_scores + scores::offset(own_row + 8 * half, i) + lane % 4 * 4,
            own_gradients[i / 2].word[i % 2 * 2 + half]);
      }
    }
    current.advance();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(d_v);
    prim::cuda::keep_in_place(d_k);
  }
  if (steps > 0) {
    arrive(steps);
    float d_q[32];
    prim::cuda::begin_products();
    multiply_d_q(d_q, steps + 1);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(d_q);
    add_d_q(d_q);
  }
  const std::int64_t own_first = key0 + group_index * 64 + warp * 16;
  store_sums<Element>(d_k, args.call.d_k, args.call.d_k_strides, seq, seq.k_begin, own_first,
                      block.all_k, kv_head, of.softmax_scale);
  store_sums<Element>(d_v, args.call.d_v, args.call.d_v_strides, seq, seq.k_begin, own_first,
                      block.all_k, kv_head, 1.0f);
#endif
}

}  // namespace tessera::kernels::attention_backward::sm90
