// Flash attention forward on the CPU, prefill: query rows against all blocks of keys.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles instead of warps. The query heads
// of a group are rows of the same axis: folded row r is query r / group of head r % group. A work
// item is (up to block_q such rows, batch entry, key/value head). Per block of keys, and then per
// register tile of rows (prefill_rows.hpp):
//
//   pack      K [keys, D] -> panels [D][columns],  V [keys, Dv] -> panels [keys][columns]
//   scores    S[rows, keys] = Q K^T            register tiles, skipped outside the visible interval
//   softmax   S -> weights in place            modifiers, running maximum and denominator
//   values    O = correction * O + weights V   register tiles over the visible keys only
//
// Packing is memory latency: where heads lie side by side, no hardware prefetcher follows the rows
// of one, and rows a power of two apart share few cache sets. So the next block is packed a few
// keys at a time between the register tiles of this one, each group of keys fetched one group
// ahead (prim/cpu/line_queue.hpp), and an item has as many rows as leave every thread several
// items. Blocks of keys start at multiples of block_kv: the bits of a row depend neither on the
// items nor on the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/cpu/prefill_rows.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/line_queue.hpp>
#include <tessera/prim/cpu/pack.hpp>

namespace tessera::kernels::attention::cpu {

/// Rows of an item, whole register tiles, from sizes alone: scratch memory is sized before lengths
/// are known.
template <class Row>
int rows_of_item(const attention_kernel_args& args, int threads) {
  using shape = traits<Row>;
  const std::int64_t entries = args.batch > 0 ? args.batch : 1;
  const std::int64_t queries =
      args.cu_seqlens_q != nullptr ? (args.q_len + entries - 1) / entries : args.q_len;
  const std::int64_t rows = queries * group_of(args);
  // With the longest items first, a few items a thread are enough to finish together.
  constexpr std::int64_t items_per_thread = 4;
  const std::int64_t fair =
      threads > 1 ? rows * entries * args.kv_heads / (items_per_thread * threads) : rows;
  const std::int64_t wanted = fair < rows ? fair : rows;
  const std::int64_t tiles = (wanted + shape::tile_rows - 1) / shape::tile_rows;
  constexpr std::int64_t least = 4;
  constexpr std::int64_t most = shape::block_q / shape::tile_rows;
  const std::int64_t enough = tiles < least ? least : tiles;
  const std::int64_t bounded = enough < most ? enough : most;
  if (args.cu_seqlens_q != nullptr || rows == 0) {
    return static_cast<int>(bounded) * shape::tile_rows;
  }
  // Blocks of one length, and as many as give every thread as many items, unless they get short.
  const std::int64_t all_tiles = (rows + shape::tile_rows - 1) / shape::tile_rows;
  std::int64_t blocks = (all_tiles + bounded - 1) / bounded;
  std::int64_t whole_rounds = blocks;
  while (whole_rounds * entries * args.kv_heads % threads != 0) ++whole_rounds;
  if (all_tiles / whole_rounds >= least) blocks = whole_rounds;
  return static_cast<int>((all_tiles + blocks - 1) / blocks) * shape::tile_rows;
}

/// One work item on one thread.
template <class Row, class Hooks>
class prefill_item {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using element = typename shape::element;
  using buffers = prefill_buffers<Row>;

 public:
  /// Rows [first_row, first_row + rows) of the folded axis.
  prefill_item(const attention_kernel_args& args, const Hooks& hooks, const buffers& scratch,
               std::int64_t entry, int kv_head, std::int64_t first_row, int rows)
      : args_(args),
        scratch_(scratch),
        rows_(args, hooks, scratch, entry, kv_head, first_row, rows) {}

  void run() {
    rows_.clear_unused();
    if (rows_.count() == 0) return;
    keys_ = rows_.keys_of_all();
    packing block = next_block(first_key(), 0);
    if (block.keys.count == 0) {
      rows_.start(0, rows_.count());
      rows_.finish(0, rows_.count());
      return;
    }
    pack_at_once(block);
    for (bool first = true; block.keys.count > 0; first = false) {
      finish_packing(block);
      packing next = next_block(block.keys.key0 + shape::block_kv, 1 - block.buffer);
      prim::line_queue lines;
      rows_.attend(block.keys, lines, tile_work{*this, next, lines, first});
      block = next;
    }
    if constexpr (shape::has(attention_feature::weights)) {
      if (args_.weights != nullptr) write_weights();
    }
  }

 private:
  /// Keys that are packed in one go.
  static constexpr int group = shape::width;

  /// A block on its way into the panels.
  struct packing {
    key_block keys;
    prim::packed_keys use;  ///< the columns that some row sees
    int packed = 0;         ///< columns up to here are
    int queued = 0;         ///< columns up to here are on their way
    int buffer = 0;
    bool whole = false;  ///< every row sees every key
  };

  /// What happens around a register tile of rows: rows are loaded before their first block and
  /// written behind their last, keys of the next block are packed, and what the next tile's share
  /// of that will touch is queued.
  struct tile_work {
    prefill_item& item;
    packing& next;
    prim::line_queue& lines;
    bool first_block;

    void before(int first, int end) const {
      if (first_block) item.rows_.start(first, end);
      const bool last_block = next.keys.count == 0;
      lines.clear();
      if (first_block) item.rows_.queue_queries(end, end + shape::tile_rows, &lines);
      if (last_block) item.rows_.queue_outputs(first, end, &lines);
      // One group ahead of what is packed behind this tile.
      item.queue_keys(next, item.columns_behind(next, end) + group, &lines);
      lines.spread(item.rows_.products());
    }
    void after(int first, int end) const {
      if (next.keys.count == 0) {
        item.rows_.finish(first, end);
      } else {
        item.pack_up_to(next, item.columns_behind(next, end));
      }
    }
  };

  /// The column up to which `next` is packed when `rows` rows of the item are through this block.
  int columns_behind(const packing& next, int rows) const {
    const int groups = (next.use.high - next.use.low + group - 1) / group;
    return next.use.low + groups * rows / rows_.count() * group;
  }

  std::int64_t first_key() const { return keys_.begin / shape::block_kv * shape::block_kv; }

  /// The first block from `key0` on that is not hidden as a whole; with no keys if there is none.
  packing next_block(std::int64_t key0, int buffer) const {
    packing next;
    next.buffer = buffer;
    for (; key0 < keys_.end; key0 += shape::block_kv) {
      const std::int64_t left = rows_.sequence().k_len - key0;
      const int count = left < shape::block_kv ? static_cast<int>(left) : shape::block_kv;
      const prim::tile_visibility seen = rows_.visibility_of(key0, count);
      if (seen == prim::tile_visibility::skip) continue;
      const prim::key_interval keys = prim::intersection(keys_, {key0, key0 + count});
      next.keys = {key0, count, scratch_.k[buffer], scratch_.v[buffer], scratch_.nonfinite[buffer],
                   true, seen};
      next.use = {static_cast<int>(keys.begin - key0) / group * group,
                  static_cast<int>(keys.end - key0), count};
      next.packed = next.queued = next.use.low;
      next.whole = rows_.all_see(seen, key0, count);
      break;
    }
    return next;
  }

  void queue_keys(packing& block, int column, prim::line_queue* lines) const {
    const auto keys = rows_.rows_from(args_.k, args_.k_strides, block.keys.key0);
    const auto values = rows_.rows_from(args_.v, args_.v_strides, block.keys.key0);
    constexpr std::int64_t size = sizeof(element);
    for (; block.queued < column && block.queued < block.use.high; ++block.queued) {
      lines->add(keys.row(block.queued), shape::head_dim(args_) * size);
      lines->add(values.row(block.queued), shape::v_head_dim(args_) * size);
    }
  }

  /// Packs the columns below `column`, group by group.
  void pack_up_to(packing& block, int column) const {
    const int end = column < block.use.high ? column : block.use.high;
    while (block.packed < end) {
      const int next = block.packed + group < end ? block.packed + group : end;
      const prim::packed_keys keys{block.packed, next, block.use.count};
      prim::pack_keys<isa_type, words, shape::tile_vectors>(
          rows_.rows_from(args_.k, args_.k_strides, block.keys.key0), keys, shape::head_dim(args_),
          block.keys.k);
      if (!pack_values(block, keys, nullptr)) block.keys.finite = false;
      block.packed = next;
    }
  }

  /// Packs a whole block, each group of keys fetched while the one before is packed.
  void pack_at_once(packing& block) const {
    prim::line_queue lines;
    queue_keys(block, block.use.low + group, &lines);
    while (block.packed < block.use.high) {
      lines.spread(1);
      lines.step();
      lines.clear();
      queue_keys(block, block.queued + group, &lines);
      pack_up_to(block, block.packed + group);
    }
  }

  /// Returns false if some value is not finite.
  bool pack_values(const packing& block, prim::packed_keys keys, const bool* skip) const {
    return prim::pack_values<isa_type, words, shape::tile_vectors>(
        rows_.rows_from(args_.v, args_.v_strides, block.keys.key0), keys, shape::v_head_dim(args_),
        skip, block.keys.v);
  }

  /// Values that are not finite must not meet a weight of 0: unless every row sees every key, such
  /// keys leave the panels.
  void finish_packing(packing& block) const {
    if (block.keys.finite) return;
    block.keys.finite = block.whole;
    if (block.whole) return;
    const auto values = rows_.rows_from(args_.v, args_.v_strides, block.keys.key0);
    prim::find_nonfinite<isa_type>(values, block.keys.count, shape::v_head_dim(args_),
                                   block.keys.nonfinite);
    static_cast<void>(pack_values(block, block.use, block.keys.nonfinite));
  }

  void write_weights() {
    packing block = next_block(first_key(), 0);
    while (block.keys.count > 0) {
      pack_at_once(block);
      rows_.write_weights(block.keys);
      block = next_block(block.keys.key0 + shape::block_kv, 0);
    }
  }

  const attention_kernel_args& args_;
  const buffers& scratch_;
  prefill_rows<Row, Hooks> rows_;
  prim::key_interval keys_;
};

}  // namespace tessera::kernels::attention::cpu
