// Forward attention with mma.sync: a block of query rows against tiles of keys.
//
// T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
// arXiv:2307.08691, for the split of rows over warps; the conditional rescaling is that of
// FlashAttention-4. Measurements behind the choices: NOTES.md of this folder.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/sm80/dropout.hpp>
#include <tessera/kernels/attention/sm80/epilogue.hpp>
#include <tessera/kernels/attention/sm80/gemm.hpp>
#include <tessera/kernels/attention/sm80/group_epilogue.hpp>
#include <tessera/kernels/attention/sm80/group_tile.hpp>
#include <tessera/kernels/attention/sm80/key_source.hpp>
#include <tessera/kernels/attention/sm80/kv_pipeline.hpp>
#include <tessera/kernels/attention/sm80/planned_items.hpp>
#include <tessera/kernels/attention/sm80/queries.hpp>
#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/softmax.hpp>
#include <tessera/kernels/attention/sm80/split_kv.hpp>
#include <tessera/kernels/attention/sm80/tile_iterator.hpp>
#include <tessera/kernels/attention/sm80/tile_loader.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Traits, class Hooks>
using state_of_block =
    block_state<Traits::config.mask, key_source_of<Traits>,
                typename tile_iterator<Traits, Hooks>::bits_type,
                std::conditional_t<Traits::codes, query_units<Traits::block_q>, no_query_units>>;

/// What a warp holds, and what it does with it.
template <class Traits, class State, bool Grouped = Traits::grouped>
struct warp_work {
  using tile = warp_tile<Traits, State>;
  using qk = gemm_qk<Traits, State>;
  using results = epilogue<Traits, State>;
};
template <class Traits, class State>
struct warp_work<Traits, State, true> {
  using tile = group_tile<Traits, State>;
  using qk = group_qk<Traits, State>;
  using results = group_epilogue<Traits, State>;
};

/// True if every row of the block sees all of a tile, and its logits are products times the scale.
template <class Traits, class Hooks>
__device__ __forceinline__ bool is_whole(const launch_args& args, const key_range& keys,
                                         const key_tile& tile) {
  const int key0 = tile.index * Traits::block_kv;
  return keys.full_begin <= key0 && keys.full_end >= key0 + Traits::block_kv && tile.whole &&
         (!score_mod_row<Traits, Hooks>::changes || args.plain);
}

/// One work tile and one split of its keys, or a warp's part of that. `block` and `shared`
/// (Traits::shared_bytes, a multiple of 1024) lie in shared memory. True if partial results are
/// left in the workspace.
template <class Traits, class Hooks>
__device__ __forceinline__ bool attend(const launch_args& args, const Hooks& hooks,
                                       state_of_block<Traits, Hooks>& block, std::uint32_t shared,
                                       int index, int split) {
  using state = state_of_block<Traits, Hooks>;
  using source = key_source_of<Traits>;
  using iterator = tile_iterator<Traits, Hooks>;

  const std::uint32_t q_tile = Traits::keeps_addresses ? prim::cuda::computed_anew(shared) : shared;
  typename warp_work<Traits, state>::tile warp(args, block);
  iterator tiles(args, hooks, block.work, block.keys, block.tile_bits);
  kv_pipeline<Traits, state> kv(args, block, q_tile);

  // The block's rows and keys; queries and the first tile are asked for before anything else, of
  // pages where they lie before the queries.
  [[maybe_unused]] const work_item item = kept_item_of_block<Traits>(args, index);
  const work_tile work = work_tile_of_block<Traits>(args, item, index);
  if (work.rows <= 0) return false;
  if (!Traits::paged && work.used > 0) copy_queries<Traits>(args, work, q_tile);
  const auto visible = visibility_of_block<Traits>(args, work, index);
  key_pass<source> pass{listed_keys_of_block<Traits>(args, work, visible, item, index, split),
                        source::template keys_of<Traits>(args, work),
                        source::template values_of<Traits>(args, work)};
  if constexpr (Traits::grouped) cut_to_part(args, pass.keys);
  const bool any_keys = pass.keys.first_tile < pass.keys.last_tile;
  if constexpr (Traits::grouped) {
    // Numbers of pages are read even of a sequence without keys, whose table may have no columns:
    // then a length takes their place.
    if (pass.keys.end == 0) pass.k.numbers = pass.v.numbers = args.call.seqlens_k;
    const auto first = kv.locate_first_tiles(pass);
    copy_queries<Traits>(args, work, q_tile);
    kv.copy_first_tiles(first);
  } else if constexpr (Traits::paged) {
    typename kv_pipeline<Traits, state>::first_rows first;
    if (iterator::visits_all && any_keys) first = kv.locate_first(pass, pass.keys.first_tile);
    if (work.used > 0) copy_queries<Traits>(args, work, q_tile);
    if (Traits::codes) kv.end_queries();
    if (iterator::visits_all && any_keys) kv.copy_first(pass, first, pass.keys.first_tile);
  } else {
    if (iterator::visits_all && any_keys) kv.copy_first(pass, pass.keys.first_tile);
  }
  if (threadIdx.x == 0) {
    block.work = work;
    block.visible = visible;
    block.keys = pass.keys;
    block.k = pass.k;
    block.v = pass.v;
    block.careful = false;
    block.changes_queries = Traits::codes || args.negative_scale ||
                            (Traits::paged && args.call.q_divisor != 1.0f) ||
                            (takes_codes(Traits::config) && args.call.q_as_codes);
  }
  if (split == 0 && work.used < work.rows) write_empty_rows<Traits>(args, work, work.used);
  if (work.used == 0) return false;
  warp.clear();
  const bool has_rows = !Traits::skips_warps || warp.first_row() < work.used;

  // One pass over the keys. 0 times a value that is infinite or NaN reaches the sums of rows that
  // must not see it: then a second, careful pass looks at every value that some row must not see.
  for (bool again = false; any_keys; again = true) {
    // The block's state is there for everyone; kernels that need none of it before their first tile
    // has arrived do not wait for it.
    if (!(Traits::keeps_sources && iterator::visits_all)) sync_tiles<Traits>();
    tiles.begin();
    key_tile now = tiles.next(pass.keys.first_tile);
    if (!iterator::visits_all && now.index >= pass.keys.last_tile) {
      kv.drain();
    } else {
      if (!iterator::visits_all || again) kv.copy_first(pass, now.index);
      kv.clear_columns();
      kv.begin(pass, now);
      if (!Traits::grouped && (Traits::keeps_sources || Traits::shape.threads.q_in_registers ||
                               block.changes_queries)) {
        kv.wait_for_queries();
        change_queries<Traits>(args, block, q_tile);
        load_queries(warp, q_tile);
      }
      if constexpr (Traits::codes && !Traits::grouped) load_log2_scales(warp);
      while (now.index < kv.range().last_tile) {
        const key_tile next = tiles.next(now.index + 1);

        // Scores: S = Q K^T. Where the next keys lie is read from shared memory among the products.
        if constexpr (Traits::grouped) {
          kv.prefetch_tile(now);
          if (now.index == pass.keys.first_tile) {  // queries have come with the first keys
            change_queries<Traits>(args, block, q_tile);
            load_queries(warp, q_tile);
            if constexpr (Traits::codes) load_log2_scales(warp);
          }
        } else {
          const auto values_ahead = kv.locate_values(now, next);
          kv.wait_for_keys();
          kv.prefetch_values(values_ahead);
        }
        kv.clear_missing_keys(kv.keys(), now);
        typename warp_work<Traits, state>::qk qk(warp, q_tile, kv.keys());
        constexpr int most_steps = Traits::dim_groups > 2 ? Traits::dim_groups - 2 : 0;
        const auto copy_some = [&kv](int step) { kv.prefetch_among(step); };
        if (has_rows) qk.template steps<0, most_steps>(copy_some);
        [[maybe_unused]] const auto keys_ahead = kv.locate_keys(next);
        if (has_rows) {
          qk.template steps<most_steps, Traits::dim_groups>(copy_some);
          qk.finish();
        }
        if constexpr (Traits::has_token_scales) {
          if (args.call.k_token_scales.data != nullptr) scale_scores(warp, kv.key_scales());
          if (!args.plain) unit_scores(warp);
          warp.value_scales = kv.value_scales();
        }

        if constexpr (!Traits::grouped) {
          kv.wait_for_values();
          kv.prefetch_keys(keys_ahead);
        }

        // Logits: biases, cap, mask, unless every row sees the whole tile as it is.
        const std::uint32_t values = kv.values();
        const int key0 = now.index * Traits::block_kv;
        const bool whole = is_whole<Traits, Hooks>(args, kv.range(), now);
        bool not_finite = false;
        if (!whole) {
          if constexpr (Traits::grouped) {
            hide_keys(warp, key0, values);
          } else {
            if (has_rows) score_mod<Traits, Hooks, state>(warp, hooks).apply(key0, !now.whole);
          }
          kv.clear_missing_values(values, key0);
        }
        // Parts of an infinite f32 value are NaN: also rows that see it need it whole.
        if ((!whole || Traits::use_3xtf32) && block.careful) {
          not_finite = kv.has_not_finite(values);
          if (not_finite) kv.keep_finite(values);
        }

        // Softmax and out += P V: P of 16 keys is computed among the products of the 16 before.
        if (has_rows) {
          const bool moved = update_row_max(warp);
          if constexpr (Traits::has_token_scales) {
            if (args.call.v_token_scales.data != nullptr) update_value_max(warp);
          }
          if constexpr (Traits::grouped) {
            gemm_pv<false>(warp, {}, values);
          } else if (Traits::rescales_among_products && moved && !not_finite) {
            gemm_pv<true>(warp, draw_kept<Traits>(args, block, key0), values);
          } else {
            if (Traits::rescales_among_products && moved) rescale_out(warp);
            if (not_finite) add_not_finite(warp, key0);
            gemm_pv<false>(warp, draw_kept<Traits>(args, block, key0), values);
          }
        }

        kv.advance();
        now = next;
      }
    }
    const bool last = block.careful;
    // Of groups, values that nobody sees are no part of products.
    if (Traits::grouped || __syncthreads_or(warp.has_not_finite()) == 0 || last) break;
    warp.clear();
    if (threadIdx.x == 0) block.careful = true;
    __syncthreads();
    pass = {block.keys, block.k, block.v};
  }
  if (!any_keys) {
    kv.drain();
    sync_tiles<Traits>();
  }

  if constexpr (Traits::has_token_scales) {
    if (args.call.v_token_scales.data != nullptr) finish_value_max(warp);
  }
  if constexpr (Traits::grouped) {
    if (!join_parts(warp, q_tile)) return Traits::single && args.splits > 1;
  }
  const typename warp_work<Traits, state>::results results(warp, q_tile);
  if constexpr (Traits::paged && !Traits::single) {
    if (args.list.items != nullptr) {
      const work_item done = Traits::keeps_items ? item : *item_of_block(args, index);
      if (done.place < 0) {
        results.write_rows();
      } else {
        const std::int64_t first =
            first_partial_of(args, done, block.work.kv_head, Traits::block_q) + done.split;
        results.write_partials([&](int r, const query_row&) { return first + r * done.splits; });
      }
      return false;
    }
  }
  if (args.splits > 1) {
    results.write_partials([&](int, const query_row& row) {
      return flat_row(args.call, block.work.seq, row) * args.splits + split;
    });
    return true;
  }
  results.write_rows();
  return false;
}

/// Where the state of a block lies, of grouped kernels that of each warp.
template <class Traits, class State>
__device__ __forceinline__ State& shared_state(unsigned char* own_shared) {
  if constexpr (Traits::grouped) {
    static_assert(sizeof(State) <= grouped_state_bytes);
    return *reinterpret_cast<State*>(own_shared + Traits::state_at);
  } else {
    __shared__ State block;
    return block;
  }
}

/// One work tile and one split of its keys per thread block.
template <class Kernel, int Width, class Tokens, class Hooks>
__global__ void __launch_bounds__((kernel_traits<Kernel, Width, Tokens>::most_threads),
                                  (kernel_traits<Kernel, Width, Tokens>::blocks_per_sm))
    forward_kernel(const __grid_constant__ launch_args args, const __grid_constant__ Hooks hooks) {
  using traits = kernel_traits<Kernel, Width, Tokens>;
  using state = state_of_block<traits, Hooks>;
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const own_shared = shared + part_of_block<traits>() * traits::shared_bytes;
  state& block = shared_state<traits, state>(own_shared);
  // A kernel beside the row's starts when all blocks of that know that the list is written, and
  // what combines when all of its blocks run: that has much to look up before it reads. Blocks of
  // the next grid that come while some of this one's have ended crowd on a few multiprocessors:
  // where every block has its share of the keys, they come when all have read it, or combined.
  if constexpr (is_own_row<Kernel>) {
    acquire_list(args.list);
    prim::cuda::let_next_grid_start();
  } else {
    const bool waits_first = traits::paged && args.list.part == work_part::groups;
    if (!traits::combines_splits && !waits_first) prim::cuda::let_next_grid_start();
    prim::cuda::wait_for_grid_before();
    // What combines finds out which parts there are while blocks of this launch work.
    const bool is_planned = traits::keeps_items && args.list.planned_share > 0.0f;
    if ((!traits::combines_splits && waits_first) || is_planned) prim::cuda::let_next_grid_start();
  }
  const bool is_split = attend<traits>(args, hooks, block, prim::cuda::shared_address(own_shared),
                                       static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  if (traits::combines_splits && !is_own_row<Kernel> && !is_split) {
    prim::cuda::let_next_grid_start();
  }
  if constexpr (is_own_row<Kernel>) {
    // It ran beside the grid before; what comes behind it waits for both.
    if (blockIdx.x + 1 == gridDim.x) prim::cuda::wait_for_grid_before();
  } else if constexpr (traits::combines_splits) {
    if (is_split && args.arrivals >= 0) {
      // Of warps that share keys the first one's state is left: others lie under their parts.
      combine_if_late<traits, Kernel>(args, shared_state<traits, state>(shared).work,
                                      static_cast<int>(blockIdx.x));
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
