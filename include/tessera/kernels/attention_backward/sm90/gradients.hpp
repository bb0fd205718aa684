// All three gradients in one pass on Hopper (sm_90a): two warpgroups own 128 keys and walk through
// the queries of their group that see them. d_k and d_v stay in registers; what the block adds to
// d_q goes to f32 sums in memory, to which blocks of other keys add too, in no order or in turns.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691; J. Shah et al., "FlashAttention-3",
// arXiv:2407.08608. Scores are computed transposed: a warpgroup's 64 keys are its rows, so weights
// and gradients of scores are operands of d_v and d_k in the registers that they come in. Only d_q,
// which sums over keys, needs the gradients of all of them: they pass through shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm90/products.hpp>
#include <tessera/kernels/attention_backward/sm90/turn_keeper.hpp>

namespace tessera::kernels::attention_backward::sm90 {

/// Tiles of a head dim.
template <int Width, bool InTurns>
struct hopper_tiles {
  static constexpr int width = Width, value_width = Width, queries = Width == 64 ? 128 : 64,
                       own = 128, threads = 256;
  static constexpr int block_threads = threads + (InTurns ? prim::cuda::warpgroup_size : 0);
  static constexpr int turns_apart = 2;                ///< see section_of
  static constexpr bool finds_sequences = Width > 64;  ///< see goes_through_slots
  /// Scores that a cap or dropout changes while they are in registers.
  template <score_kind Kind>
  static constexpr bool modified = Kind == score_kind::computed || Kind == score_kind::dropped;
  /// Weights become operands at once, or half of them once gradients have left registers.
  template <score_kind Kind>
  static constexpr int weight_parts = (Width == 64 && (InTurns || modified<Kind>)) ||
                                              (InTurns && Kind == score_kind::computed)
                                          ? 2
                                          : 1;
  using keys = panel_tile<own, Width>;
  using values = keys;
  using rows = panel_tile<queries, Width>;
  using out_rows = rows;
  using scores = panel_tile<own, queries>;  ///< of gradients: rows are keys
  using statistics = query_numbers<queries>;
  /// d_q: columns of a warpgroup, if they share the rows, whose columns may be fewer.
  static constexpr bool shared_rows = queries == 64;
  static constexpr int stage_bytes = 2 * rows::bytes;
  static constexpr int stages_at = 2 * keys::bytes + 2 * scores::bytes;
  static constexpr int statistics_at = stages_at + 2 * stage_bytes;
  /// What is known of the block's keys lies in shared memory, where sums need the registers.
  template <score_kind Kind>
  static constexpr bool shares_block = Width > 64 || InTurns || modified<Kind>;
  static constexpr int block_at =
      statistics_at + 2 * static_cast<int>(sizeof(statistics)) + own * 4;
  static_assert(block_at % alignof(key_block) == 0);
  static constexpr int told_at = block_at + static_cast<int>(sizeof(key_block));
  static constexpr int shared_bytes = alignment_bytes + told_at + (InTurns ? 16 : 0);
};

template <class Element, int Width, score_kind Kind, bool InTurns>
__global__ void __launch_bounds__(hopper_tiles<Width, InTurns>::block_threads, 1)
    hopper_gradients(const __grid_constant__ hooked_args<flash_hooks<>> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using tiles = hopper_tiles<Width, InTurns>;
  using keys = typename tiles::keys;
  using rows = typename tiles::rows;
  using scores = typename tiles::scores;
  using keeper = turn_keeper<tiles>;
  constexpr int queries = tiles::queries, own = tiles::own;
  constexpr bool shares_block = tiles::template shares_block<Kind>;
  constexpr int parts_of_weights = tiles::template weight_parts<Kind>;
  constexpr bool dropped = Kind == score_kind::dropped, by_calls = Kind == score_kind::all;
  extern __shared__ __align__(16) unsigned char unaligned_memory[];
  prim::cuda::wait_for_grid_before();
  unsigned char* const memory =
      unaligned_memory + (1024 - prim::cuda::shared_address(unaligned_memory) % 1024) % 1024;
  const attention_kernel_args& of = args.call.forward;
  const auto thread = static_cast<int>(threadIdx.x);
  const int group_index = prim::cuda::warpgroup_index();
  const int warp = thread / 32 % 4, lane = thread % 32;
  const key_block known = key_block::of<tiles, InTurns>(args, taken_item<InTurns>(args, memory));
  if (known.outside()) return;
  auto& shared_block = *reinterpret_cast<key_block*>(memory + tiles::block_at);
  if (shares_block && thread == 0) shared_block = known;
  __syncthreads();
  const key_block& own_block = shares_block ? shared_block : known;
  float** const told = reinterpret_cast<float**>(memory + tiles::told_at);
  if constexpr (InTurns) {
    if (group_index == 2) {
      prim::cuda::give_registers<keeper::own_registers>();
      if (warp < keeper::keepers) keeper::keep(args, own_block, warp, told);
      return;
    }
    prim::cuda::take_registers<keeper::other_registers>();
  }
  const prim::sequence& seq = own_block.block.seq;
  const std::uint32_t k = prim::cuda::shared_address(memory), v = k + keys::bytes;
  const std::uint32_t d_scores = v + keys::bytes;
  query_walk<Element, tiles, InTurns> walk(args, own_block, memory);
  const bool tainted = walk.begin();
  auto current = tile_order<InTurns>::of_block(own_block, own);

  float d_k[Width / 2] = {}, d_v[Width / 2] = {};
  const float scale = scale_of<Kind>(of);
  const int own_row = group_index * 64 + warp * 16 + lane / 4;  // and 8 rows below
  const std::uint32_t own_k = k + keys::row_bytes * 64 * group_index;
  const std::uint32_t own_v = v + keys::row_bytes * 64 * group_index;
  float* earlier_sums = nullptr;
  // d_q of the step before, from the gradients of its scores. Two warpgroups share 64 rows and have
  // 64 columns each, or all columns of 64 rows.
  const auto multiply_earlier = [&](float(&d_q)[32], int step) {
    multiply_d_q<Element, own>(d_q,
                               d_scores + step % 2 * scores::bytes +
                                   (tiles::shared_rows ? 0 : scores::panel_bytes * group_index),
                               k + (tiles::shared_rows ? keys::panel_bytes * group_index : 0));
  };
  const int sum_row16 = tiles::shared_rows ? warp : warp + 4 * group_index;
  const int sum_column8 = tiles::shared_rows ? 8 * group_index : 0;
  const auto add_earlier = [&](const float(&d_q)[32], int step) {
    if constexpr (InTurns) {
      keeper::wait(group_index, step);
      earlier_sums = told[step % keeper::keepers];
    }
    add_d_q<tiles>(earlier_sums, sum_row16, sum_column8, d_q);
    if constexpr (InTurns) keeper::pass(step);
  };
  const auto multiply_and_add_earlier = [&](int step) {
    float d_q[32];
    prim::cuda::begin_products();
    multiply_earlier(d_q, step + 1);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(d_q);
    if (step > 0) add_earlier(d_q, step - 1);
  };
  // Of the tiles at the ends of a window some meet the keys of one warpgroup alone. Kernels of
  // other scores have no registers to know it.
  const std::int64_t group_key0 = own_block.key0 + group_index * 64,
                     group_end = group_key0 + 64 < seq.k_len ? group_key0 + 64 : seq.k_len;
  constexpr bool skips_hidden = tiles::shared_rows && Kind == score_kind::plain;
  const tile_interval seen_by_group =
      skips_hidden ? tiles_that_see<queries>(own_block.visible, seq.q_len, {group_key0, group_end})
                   : own_block.seen_by;
  for (int step = 0; step < own_block.steps; ++step) {
    walk.arrive(step);
    if (step + 1 < own_block.steps) walk.start(step + 1);
    const std::uint32_t q = walk.rows_of(step), d_out = q + rows::bytes;
    const std::int64_t first = std::int64_t{current.tile} * queries;
    const int own_head = current.head;
    if (skips_hidden && (current.tile < seen_by_group.begin || current.tile >= seen_by_group.end)) {
      multiply_and_add_earlier(step);
      if constexpr (!InTurns) {
        earlier_sums = query_sums<tiles>::tile_of(args, seq, own_head, current.tile);
      }
      const warpgroup_a none[queries / 16] = {};
      store_operands<scores>(d_scores + step % 2 * scores::bytes, group_index * 64 + warp * 16,
                             none);
      current.advance(own_block);
      continue;
    }
    const own_scores<typename tiles::statistics> pairs{walk.statistics_of(step),
                                                       walk.taint_of_keys(),
                                                       own_row,
                                                       own_block.size(),
                                                       walk.segments_of_keys(),
                                                       tainted,
                                                       scale,
                                                       of.dropout_scale};
    std::uint32_t taken[queries / 64];  // by dropout
    float products[queries / 2], gradients[queries / 2];
    {
      // Of the first step there is none before: its products are nobody's.
      float d_q[32];
      prim::cuda::begin_products();
      multiply_earlier(d_q, step + 1);
      multiply_keys<Element, keys, rows>(products, own_k, q);
      if constexpr (dropped) {
        draw_dropped(args, {seq.index, own_head, first, own_block.key0}, own_row, taken);
      }
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(d_q);
      if (step > 0) add_earlier(d_q, step - 1);
    }
    prim::cuda::begin_products();
    multiply_keys<Element, keys, rows>(gradients, own_v, d_out);
    if constexpr (!InTurns) {
      earlier_sums = query_sums<tiles>::tile_of(args, seq, own_head, current.tile);
    }
    const tile_view view = walk.statistics_of(step).view_of(step, tainted);

    // Weights while the gradients that come into them are multiplied, and those of scores while
    // weights are.
    prim::cuda::wait_products<by_calls ? 0 : 1>();
    prim::cuda::keep_in_place(products);
    warpgroup_a own_weights[queries / 16], own_gradients[queries / 16];
    if constexpr (!by_calls) {
      const auto multiply_part = [&]<part Part>() {
        pairs.template weigh_operands<Element, Kind, Part>(view, of.soft_cap, taken, products,
                                                           own_weights);
        add_rows<Element, rows, Part>(d_v, own_weights, d_out);
        if constexpr (Part.number == 0) {
          prim::cuda::wait_products<1>();
          prim::cuda::keep_in_place(gradients);
        }
        pairs.template weigh_gradients<Kind, Part>(view, products, gradients);
        pack_operands<Element, Part>(own_gradients, gradients);
      };
      multiply_part.template operator()<part{0, parts_of_weights}>();
      if constexpr (parts_of_weights == 2) multiply_part.template operator()<part{1, 2}>();
    } else {
      prim::cuda::keep_in_place(gradients);
      pairs.weigh_all(args, {seq.index, own_head, first, own_block.key0}, products, gradients);
      pack_operands<Element>(own_weights, products);
      add_rows<Element, rows>(d_v, own_weights, d_out);
      pack_operands<Element>(own_gradients, gradients);
    }
    add_rows<Element, rows>(d_k, own_gradients, q);
    store_operands<scores>(d_scores + step % 2 * scores::bytes, group_index * 64 + warp * 16,
                           own_gradients);
    current.advance(own_block);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(d_v);
    prim::cuda::keep_in_place(d_k);
  }
  if (own_block.steps > 0) {
    walk.arrive(own_block.steps);
    multiply_and_add_earlier(own_block.steps);
  }
  const std::int64_t own_first = own_block.key0 + group_index * 64 + warp * 16;
  store_sums<Element>(k + tiles::stages_at, d_k, args.call.d_k, args.call.d_k_strides, seq,
                      seq.k_begin, own_first, own_block.block.all_k, own_block.kv_head,
                      of.softmax_scale);
  store_sums<Element>(k + tiles::stages_at, d_v, args.call.d_v, args.call.d_v_strides, seq,
                      seq.k_begin, own_first, own_block.block.all_k, own_block.kv_head,
                      dropped ? of.dropout_scale : 1.0f);
#endif
}

}  // namespace tessera::kernels::attention_backward::sm90
