// Prefill: query rows against all tiles of keys.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles instead of warps. The query heads
// of a group are rows of the same axis: folded row r is query r / group of head r % group. A work
// item is (up to item_rows such rows, batch entry, key/value head).
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention/cpu/epilogue.hpp>
#include <tessera/kernels/attention/cpu/gemm.hpp>
#include <tessera/kernels/attention/cpu/packed_tile.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/row_pipeline.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// Loads the queries of the rows and starts their softmax and accumulators.
template <class Kernel, class Hooks>
void load_q(const query_rows<Kernel, Hooks>& queries, row_tile rows,
            const prefill_scratch<Kernel>& scratch) {
  using shape = traits<Kernel>;
  typename shape::element room[max_head_dim];
  // Products of tiles take whole ones: the rows behind the last are zeros.
  const int end = shape::tiles ? rows.first + round_up(rows.rows, prim::tile_rows) : rows.end();
  for (int r = rows.first; r < end; ++r) {
    if (r < rows.end()) {
      prim::pack_a<typename shape::isa_type, typename shape::words>(
          queries.operand(r, room), shape::head_dim(queries.args()), scratch.q_row(r));
    } else {
      std::memset(scratch.q_row(r), 0, shape::q_stride * sizeof(float));
    }
    scratch.softmax.clear(r);
    std::memset(scratch.out_row(r), 0,
                static_cast<std::size_t>(scratch.out_stride()) * sizeof(float));
  }
}

/// Writes the rows.
template <class Kernel, class Hooks>
void store_rows(const query_rows<Kernel, Hooks>& queries, row_tile rows,
                const prefill_scratch<Kernel>& scratch) {
  for (int r = rows.first; r < rows.end(); ++r) {
    queries.store(r, queries.result_of(r, scratch.softmax.state(r)), scratch.out_row(r));
  }
}

/// Queues what comes from or goes to memory during a register tile of rows: the next rows' queries
/// beside the first tile of keys, the rows' outputs beside the last, and else keys to be packed.
template <class Kernel, class Hooks, class Source>
void queue_lines(const query_rows<Kernel, Hooks>& queries, row_tile rows, bool first_tile,
                 const tile_packer<Kernel, Hooks, Source>& packer, packed_tile<Kernel>& next,
                 prim::line_queue& lines) {
  using shape = traits<Kernel>;
  constexpr std::int64_t size = sizeof(typename shape::element);
  lines.clear();
  if (first_tile) {
    for (int r = rows.end(); r < rows.end() + shape::mr && r < queries.count(); ++r) {
      lines.add(queries.query(r), shape::head_dim(queries.args()) * size);
    }
  }
  if (next.empty()) {
    for (int r = rows.first; r < rows.end(); ++r) {
      lines.add(queries.output(r), shape::v_head_dim(queries.args()) * size);
    }
  }
  packer.queue(next, rows.first, rows.end(), lines);
  lines.spread(steps_of_products<Kernel>(queries.args()));
}

/// The next rows' Q and accumulators, on their way from beyond the second-level cache.
template <class Kernel>
void prefetch_rows(const attention_kernel_args& args, int first, int count,
                   const prefill_scratch<Kernel>& scratch) {
  using shape = traits<Kernel>;
  if (first + shape::mr > count) return;
  const int q_words = prim::words_for<typename shape::words>(shape::head_dim(args));
  for (int r = first; r < first + shape::mr; ++r) {
    for (int i = 0; i < q_words; i += 16) TESSERA_PREFETCH_L2(scratch.q_row(r) + i);
    for (int i = 0; i < shape::v_head_dim(args); i += 16) {
      TESSERA_PREFETCH_L2(scratch.out_row(r) + i);
    }
  }
}

/// Second sweep over the keys: their scores again, and exp(s - row_max) / row_sum straight to
/// memory.
template <class Kernel, class Hooks, class Source>
void write_weights(const query_rows<Kernel, Hooks>& queries,
                   const tile_packer<Kernel, Hooks, Source>& packer,
                   const prefill_scratch<Kernel>& scratch) {
  const auto tiles = queries.tiles();
  prim::line_queue no_lines;
  for (key_tile keys = tiles.first(); !keys.empty(); keys = tiles.after(keys)) {
    packed_tile<Kernel> tile = packer.begin(keys, 0);
    packer.pack_all(tile);
    for (row_tile rows = queries.first_tile(); rows.rows > 0; rows = queries.tile_after(rows)) {
      const key_columns used = queries.columns_of(rows, keys);
      if (used.seen == prim::tile_visibility::skip) continue;
      gemm_qk<Kernel>(queries.args(), rows, tile.k, used, scratch, no_lines);
      apply_score_mod(queries, rows, used, scratch);
      for (int r = rows.first; r < rows.end(); ++r) {
        store_weights<Kernel>(queries.args(),
                              queries.scores_of_row(r, scratch.score_row(r - rows.first), used),
                              queries.result_of(r, scratch.softmax.state(r)));
      }
    }
  }
}

/// One work item on one thread. The next tile of keys is packed between the register tiles of rows
/// of this one (packed_tile.hpp), or with the other threads of the head where `shared` has it.
template <class Kernel, class Hooks, class Source>
void prefill(const query_rows<Kernel, Hooks>& queries, const Source& source,
             const prefill_scratch<Kernel>& scratch, const head_tiles<Kernel>& shared) {
  const attention_kernel_args& args = queries.args();
  queries.store_unused();
  if (queries.count() == 0) return;
  const auto tiles = queries.tiles();
  const tile_packer<Kernel, Hooks, Source> packer(queries, source, scratch, shared);
  packed_tile<Kernel> tile = packer.begin(tiles.first(), 0);
  if (tile.empty()) {  // No row sees a key.
    load_q(queries, {0, queries.count()}, scratch);
    store_rows(queries, {0, queries.count()}, scratch);
    return;
  }
  packer.pack_all(tile);
  prim::line_queue lines;
  const auto store = [&](row_tile rows) { store_rows(queries, rows, scratch); };
  row_pipeline<Kernel, Hooks, Source, decltype(store)> pipeline(queries, source, scratch, lines,
                                                                store);
  for (bool first_tile = true; !tile.empty(); first_tile = false) {
    packer.keep_nonfinite_out(tile);
    packed_tile<Kernel> next = packer.begin(tiles.after(tile.keys), 1 - tile.buffer);
    for (row_tile rows = queries.first_tile(); rows.rows > 0; rows = queries.tile_after(rows)) {
      if (first_tile) load_q(queries, rows, scratch);
      queue_lines(queries, rows, first_tile, packer, next, lines);
      key_columns used = queries.columns_of(rows, tile.keys);
      if (used.seen == prim::tile_visibility::skip && next.empty()) pipeline.finish_unseen(rows);
      while (used.seen != prim::tile_visibility::skip) {
        const key_columns after = queries.columns_after(rows, tile.keys, used);
        const bool last = next.empty() && after.seen == prim::tile_visibility::skip;
        prefetch_rows<Kernel>(args, rows.end(), queries.count(), scratch);
        pipeline.add(tile, rows, used, last);
        used = after;
      }
      if (!next.empty() && (next.shared() || !pipeline.reads_before(tile))) {
        packer.pack_after(next, rows.end());
      }
    }
    pipeline.finish_before(tile);
    if (next.shared() || (traits<Kernel>::tiles && !next.empty())) packer.pack_all(next);
    tile = next;
  }
  pipeline.finish();
  if constexpr (score_mods<Kernel, Hooks>::weights) {
    if (args.weights != nullptr) write_weights(queries, packer, scratch);
  }
}

}  // namespace tessera::kernels::attention::cpu
