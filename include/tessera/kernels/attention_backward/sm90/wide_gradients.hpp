// All three gradients in one pass on Hopper (sm_90a) for head dims above 128: two warpgroups own 64
// keys together. The first has their scores, weights and d_v, the second the gradients of weights
// and scores and d_k; half of d_q each.
//
// Sums of 64 keys fill half of a warpgroup's registers, whichever they are of, and tiles of 64
// queries in two stages with 64 keys and values all of shared memory (227 KB at head dim 256). So
// no warpgroup can have both sums, as for narrower heads (gradients.hpp): weights go from one to
// the other through shared memory, each thread's to the thread with the same place.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention_backward/sm90/products.hpp>
#include <tessera/kernels/attention_backward/sm90/turn_keeper.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::attention_backward::sm90 {

/// Tiles of head dims above 128.
template <int Width, int ValueWidth, bool InTurns>
struct wide_tiles {
  static constexpr int width = Width, value_width = ValueWidth, queries = 64, own = 64,
                       threads = 256;
  static constexpr int block_threads = threads + (InTurns ? prim::cuda::warpgroup_size : 0);
  static constexpr int turns_apart = 2;  ///< see section_of
  static constexpr bool finds_sequences = true;
  using keys = panel_tile<own, Width>;
  using values = panel_tile<own, ValueWidth>;
  using rows = panel_tile<queries, Width>;
  using out_rows = panel_tile<queries, ValueWidth>;
  using scores = panel_tile<own, queries>;  ///< of gradients: rows are keys
  using statistics = query_numbers<queries>;
  static constexpr int d_scores_at = keys::bytes + values::bytes;
  static constexpr int weights_at = d_scores_at + 2 * scores::bytes;
  static constexpr int stages_at = weights_at + own * queries * static_cast<int>(sizeof(float));
  static constexpr int stage_bytes = rows::bytes + out_rows::bytes;
  static constexpr int statistics_at = stages_at + 2 * stage_bytes;
  static constexpr int shared_bytes =
      alignment_bytes + statistics_at + 2 * static_cast<int>(sizeof(statistics)) + own * 4;
};

/// 32 numbers of each thread of a warpgroup, for the thread with the same place in the other.
__device__ __forceinline__ void hand_over(std::uint32_t memory, const float (&numbers)[32]) {
  const std::uint32_t own = memory + threadIdx.x % prim::cuda::warpgroup_size * 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    prim::cuda::store_shared_16(
        own + i * prim::cuda::warpgroup_size * 16,
        {__float_as_uint(numbers[4 * i]), __float_as_uint(numbers[4 * i + 1]),
         __float_as_uint(numbers[4 * i + 2]), __float_as_uint(numbers[4 * i + 3])});
  }
}
__device__ __forceinline__ void take_over(float (&numbers)[32], std::uint32_t memory) {
  const std::uint32_t own = memory + threadIdx.x % prim::cuda::warpgroup_size * 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    std::uint32_t words[4];
    prim::cuda::load_shared_16(words, own + i * prim::cuda::warpgroup_size * 16);
#pragma unroll
    for (int e = 0; e < 4; ++e) numbers[4 * i + e] = __uint_as_float(words[e]);
  }
}

template <class Element, int Width, int ValueWidth, score_kind Kind, bool InTurns>
__global__ void __launch_bounds__(wide_tiles<Width, ValueWidth, InTurns>::block_threads, 1)
    wide_gradients(const __grid_constant__ hooked_args<flash_hooks<>> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using tiles = wide_tiles<Width, ValueWidth, InTurns>;
  using keeper = turn_keeper<tiles>;
  using keys = typename tiles::keys;
  using rows = typename tiles::rows;
  using scores = typename tiles::scores;
  constexpr int queries = tiles::queries;
  constexpr bool dropped = Kind == score_kind::dropped, by_calls = Kind == score_kind::all;
  constexpr int weights_ready = 1;  // the number of a barrier
  extern __shared__ __align__(16) unsigned char unaligned_memory[];
  prim::cuda::wait_for_grid_before();
  unsigned char* const memory =
      unaligned_memory + (1024 - prim::cuda::shared_address(unaligned_memory) % 1024) % 1024;
  const attention_kernel_args& of = args.call.forward;
  const key_block own = key_block::of<tiles, InTurns>(args, taken_item<InTurns>(args, memory));
  if (own.outside()) return;
  const int group_index = prim::cuda::warpgroup_index();
  if constexpr (InTurns) {
    if (group_index == 2) {
      prim::cuda::give_registers<keeper::own_registers>();
      if (threadIdx.x / 32 % 4 < keeper::keepers) {
        keeper::keep(args, own, static_cast<int>(threadIdx.x / 32 % 4));
      }
      return;
    }
    prim::cuda::take_registers<keeper::other_registers>();
  }
  const prim::sequence& seq = own.block.seq;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4,
            lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = warp * 16 + lane / 4;  // and 8 rows below
  const std::uint32_t k = prim::cuda::shared_address(memory);
  const std::uint32_t d_scores = k + tiles::d_scores_at, weights = k + tiles::weights_at;
  query_walk<Element, tiles, InTurns> walk(args, own, memory);
  const bool tainted = walk.begin();
  const float scale = scale_of<Kind>(of);

  const auto gradients_of = [&]<bool OfKeys>() {
    // What S^T, or the gradients of weights, are products of, and the rows that d_v, or d_k, sums.
    using own_tile = std::conditional_t<OfKeys, typename tiles::values, keys>;
    using other_tile = std::conditional_t<OfKeys, typename tiles::out_rows, rows>;
    using summed_tile = std::conditional_t<OfKeys, rows, typename tiles::out_rows>;
    const std::uint32_t own_tile_at = OfKeys ? k + keys::bytes : k;
    constexpr std::uint32_t other_at = OfKeys ? rows::bytes : 0;
    constexpr std::uint32_t summed_at = OfKeys ? 0 : rows::bytes;
    // Of d_q the first warpgroup has one panel of columns or two, the second the others.
    constexpr int panels = Width / 64;
    constexpr int own_panels = OfKeys ? panels / 2 : (panels + 1) / 2;
    constexpr int first_panel = OfKeys ? panels - own_panels : 0;
    static_assert(own_panels == 1 || own_panels == 2);
    // The second goes beside the weights, or, where registers take over those of the other, behind.
    constexpr bool panel_beside = own_panels == 2 && !OfKeys;
    const auto multiply_panel = [&](float(&d_q)[32], int step, int panel) {
      multiply_d_q<Element, tiles::own>(d_q, d_scores + step % 2 * scores::bytes,
                                        k + (first_panel + panel) * keys::panel_bytes);
    };
    auto current = tile_order<InTurns>::of_block(own, tiles::own);
    float sums[summed_tile::width / 2] = {};
    float* earlier_sums = nullptr;  // of d_q of the step before; in turns not kept
    const auto add_panel = [&](const float(&d_q)[32], int panel) {
      if constexpr (InTurns) {
        const auto before = current.before(own);
        earlier_sums = query_sums<tiles>::tile_of(args, seq, before.head, before.tile);
      }
      add_d_q<tiles>(earlier_sums, warp, (first_panel + panel) * 8, d_q);
    };
    for (int step = 0; step < own.steps; ++step) {
      walk.arrive(step);
      if (step + 1 < own.steps) walk.start(step + 1);
      const std::int64_t first = std::int64_t{current.tile} * queries;
      const own_scores<typename tiles::statistics> pairs{walk.statistics_of(step),
                                                         walk.taint_of_keys(),
                                                         own_row,
                                                         own.size(),
                                                         walk.segments_of_keys(),
                                                         tainted,
                                                         scale,
                                                         of.dropout_scale};
      const score_place first_pair{seq.index, current.head, first, own.key0};
      // d_q of the step before. Of the first step there is none before: its products are nobody's.
      float d_q[32], products[queries / 2];
      prim::cuda::begin_products();
      multiply_panel(d_q, step + 1, 0);
      multiply_keys<Element, own_tile, other_tile>(products, own_tile_at,
                                                   walk.rows_of(step) + other_at);
      std::uint32_t taken[queries / 64];  // by dropout
      if constexpr (dropped && !OfKeys) draw_dropped(args, first_pair, own_row, taken);
      if (InTurns && step > 0) keeper::wait(group_index, step - 1);
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(d_q);
      if (step > 0) add_panel(d_q, 0);
      if constexpr (panel_beside) {
        prim::cuda::begin_products();
        multiply_panel(d_q, step + 1, 1);
      }
      prim::cuda::wait_products<panel_beside ? 1 : 0>();
      prim::cuda::keep_in_place(products);

      const tile_view view = walk.statistics_of(step).view_of(step, tainted);
      warpgroup_a operands[queries / 16];
      if constexpr (OfKeys) {
        // The other warpgroup's: weights times slopes, or products if more must be known of them.
        float other[queries / 2];
        prim::cuda::wait_for_threads(weights_ready, tiles::threads);
        take_over(other, weights);
        if constexpr (by_calls) {
          pairs.weigh_all(args, first_pair, other, products);
        } else {
          pairs.template weigh_gradients<Kind>(view, other, products);
        }
        pack_operands<Element>(operands, products);
        store_operands<scores>(d_scores + step % 2 * scores::bytes, warp * 16, operands);
      } else {
        if constexpr (by_calls) {
          hand_over(weights, products);
          prim::cuda::arrive_for_threads(weights_ready, tiles::threads);
          float gradients[queries / 2] = {};  // nobody's
          pairs.weigh_all(args, first_pair, products, gradients);
          pack_operands<Element>(operands, products);
        } else {
          pairs.template weigh_operands<Element, Kind>(view, of.soft_cap, taken, products,
                                                       operands);
          hand_over(weights, products);
          prim::cuda::arrive_for_threads(weights_ready, tiles::threads);
        }
      }
      if constexpr (own_panels == 2 && !panel_beside) {
        prim::cuda::begin_products();
        multiply_panel(d_q, step + 1, 1);
      }
      add_rows<Element, summed_tile>(sums, operands, walk.rows_of(step) + summed_at);
      if constexpr (own_panels == 2) {
        prim::cuda::wait_products<1>();
        prim::cuda::keep_in_place(d_q);
        if (step > 0) add_panel(d_q, 1);
      }
      if (InTurns && step > 0) keeper::pass(step - 1);
      if constexpr (!InTurns) {
        earlier_sums = query_sums<tiles>::tile_of(args, seq, current.head, current.tile);
      }
      current.advance(own);
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(sums);
    }
    if (own.steps > 0) {
      const int last = own.steps - 1;
      walk.arrive(own.steps);
      if (InTurns) keeper::wait(group_index, last);
#pragma unroll
      for (int panel = 0; panel < own_panels; ++panel) {
        float d_q[32];
        prim::cuda::begin_products();
        multiply_panel(d_q, own.steps + 1, panel);
        prim::cuda::wait_products<0>();
        prim::cuda::keep_in_place(d_q);
        add_panel(d_q, panel);
      }
      if (InTurns) keeper::pass(last);
    }
    if constexpr (OfKeys) {
      store_sums<Element>(k + tiles::stages_at, sums, args.call.d_k, args.call.d_k_strides, seq,
                          seq.k_begin, own.key0 + warp * 16, own.block.all_k, own.kv_head,
                          of.softmax_scale);
    } else {
      store_sums<Element>(k + tiles::stages_at, sums, args.call.d_v, args.call.d_v_strides, seq,
                          seq.k_begin, own.key0 + warp * 16, own.block.all_k, own.kv_head,
                          dropped ? of.dropout_scale : 1.0f);
    }
  };
  if (group_index == 0) {
    gradients_of.template operator()<false>();
  } else {
    gradients_of.template operator()<true>();
  }
#endif
}

}  // namespace tessera::kernels::attention_backward::sm90
