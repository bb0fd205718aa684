// How a CPU launch is cut into work items, as pure functions of config, sizes and threads. Kernels,
// their workspaces, the cost estimate and explain call them: no number is predicted that other code
// decides. Every size may be zero.
//
// Units with wider instructions compile these functions too. So that no copy of theirs can stand in
// for everybody's, the small ones are inlined always and the others know their unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include <tessera/families/attention/call_sizes_cpu.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::schedule_cpu {

/// With the longest items first, a few items a thread are enough to finish together.
inline constexpr std::int64_t items_per_thread = 4;

/// Packed keys and values that the items of a head share: each tile is packed once, by whichever of
/// its threads come by. There is room for the heads that keep all threads busy and as many before
/// them, so that what one head leaves in the caches serves the next. Heads of one item share none.
///
/// Threads beside several memory nodes begin with heads of their own, and have copies of their own
/// of those that they share with others: a panel is read by the threads beside its memory.
struct shared_keys {
  /// No copy takes more memory; heads take turns where all do not fit.
  static constexpr std::int64_t most_bytes = std::int64_t{128} << 20;
  static constexpr std::int64_t most_copies = 8;  ///< memory nodes beyond have none of their own

  std::int64_t slots = 0;       ///< heads that there is room for; 0: every item packs its own
  std::int64_t copies = 1;      ///< one for each memory node
  std::int64_t tiles = 0;       ///< of a head
  std::int64_t tile_bytes = 0;  ///< keys and values

  [[gnu::always_inline]] constexpr bool any() const noexcept { return slots > 0; }

  /// Floats of a packed tile of keys.
  [[gnu::always_inline]] static constexpr std::int64_t k_floats(const attention_config& config,
                                                                int head_dim) noexcept {
    const auto words = static_cast<int>(ceil_div(head_dim, k_pack(config.target)));
    const bool tiles = has_tile_products(config.target);
    return std::int64_t{config.block_kv} * (tiles ? round_up(words, 16) : words);
  }
  [[gnu::always_inline]] static constexpr std::int64_t v_floats(const attention_config& config,
                                                                int v_head_dim) noexcept {
    return std::int64_t{config.block_kv / k_pack(config.target)} *
           round_up(v_head_dim, vector_floats(config.target));
  }

  /// Of `heads` heads, `blocks` items each.
  [[gnu::always_inline]] static constexpr shared_keys of(const attention_config& config,
                                                         const call_sizes& sizes,
                                                         std::int64_t heads, std::int64_t blocks,
                                                         std::int64_t workers,
                                                         std::int64_t nodes) noexcept {
    shared_keys keys;
    const std::int64_t most = nodes < most_copies ? nodes : most_copies;
    keys.copies = most < workers ? most : workers;
    keys.tiles = ceil_div(sizes.most_kv_len, config.block_kv);
    keys.tile_bytes = (k_floats(config, sizes.head_dim) + v_floats(config, sizes.v_head_dim)) *
                      static_cast<std::int64_t>(sizeof(float));
    const std::int64_t head_bytes = keys.tiles * keys.tile_bytes;
    if (head_bytes <= 0 || head_bytes > most_bytes) return {};
    const std::int64_t busy = 2 * ceil_div(items_per_thread * workers, blocks);
    const std::int64_t room = most_bytes / head_bytes < busy ? most_bytes / head_bytes : busy;
    keys.slots = room < heads ? room : heads;
    // Heads of one place must be of one node: those of a round have the places of every other one.
    if (keys.copies > 1 && keys.slots < heads) keys.slots = keys.slots / 2 * 2;
    // The heads of a round must keep all threads busy.
    if (keys.slots < heads && (keys.slots < 2 || keys.round_heads(heads) * blocks < 2 * workers)) {
      return {};
    }
    return keys;
  }
  /// Heads whose items are handed out together. Half the slots belong to the round before.
  [[gnu::always_inline]] constexpr std::int64_t round_heads(std::int64_t heads) const noexcept {
    return slots == 0 || slots >= heads ? heads : slots / 2;
  }
  /// How many of the first `count` heads of a round the threads of a node begin with.
  [[gnu::always_inline]] constexpr std::int64_t heads_of_node(std::int64_t node,
                                                              std::int64_t count) const noexcept {
    return (count + copies - 1 - node) / copies;
  }
};

/// Work items of a prefill launch: up to `item_rows` rows of the folded axis (query x head of the
/// group) of one entry and key/value head.
struct prefill_schedule {
  static constexpr std::int64_t least_tiles = 4;        ///< register tiles of rows of an item
  static constexpr std::int64_t most_whole_tiles = 16;  ///< of heads not worth cutting for balance
  static constexpr int tile_buffers = 2;  ///< tiles of keys: one in use, one being packed

  int item_rows = 0;
  std::int64_t tile_rows = 0;  ///< of a register tile
  /// Register tiles of a head in blocks that, but for the short ones, differ by one at most, where
  /// all heads have as many rows; no blocks: each has `item_rows`.
  std::int64_t head_tiles = 0, head_blocks = 0;
  /// The first blocks of those, handed out last: half as long as the others, and how many tiles
  /// they have together. Threads that are through early still find some.
  std::int64_t short_blocks = 0, short_tiles = 0;
  std::int64_t heads = 0;  ///< entries times key/value heads
  std::int64_t group = 0;
  shared_keys shared;

  /// Items of an entry and head whose longest sequence has `q_len` query positions.
  [[gnu::always_inline]] constexpr std::int64_t blocks(std::int64_t q_len) const noexcept {
    return head_blocks > 0 ? head_blocks : ceil_div(q_len * group, item_rows);
  }
  /// The first row of a block.
  [[gnu::always_inline]] constexpr std::int64_t first_row(std::int64_t block) const noexcept {
    if (head_blocks == 0) return block * item_rows;
    if (block < short_blocks) return block * short_tiles / short_blocks * tile_rows;
    return (short_tiles +
            (block - short_blocks) * (head_tiles - short_tiles) / (head_blocks - short_blocks)) *
           tile_rows;
  }
  [[gnu::always_inline]] constexpr std::int64_t items(std::int64_t q_len) const noexcept {
    return blocks(q_len) * heads;
  }

  struct item {
    std::int64_t head = 0;
    std::int64_t block = 0;
  };
  /// Items that the threads of a node begin with, where each head has `blocks`; without copies
  /// node 0 has all of them.
  [[gnu::always_inline]] constexpr std::int64_t items_of_node(std::int64_t node,
                                                              std::int64_t blocks) const noexcept {
    const std::int64_t together = shared.round_heads(heads);
    if (together == 0) return 0;
    const std::int64_t rounds = heads / together;
    return blocks * (rounds * shared.heads_of_node(node, together) +
                     shared.heads_of_node(node, heads - rounds * together));
  }
  /// Item `index` of those. The ones with the longest keys come first: with a causal mask later
  /// rows see more.
  [[gnu::always_inline]] constexpr item item_at(std::int64_t index, std::int64_t blocks,
                                                std::int64_t node = 0) const noexcept {
    const std::int64_t together = shared.round_heads(heads);
    const std::int64_t of_round = blocks * shared.heads_of_node(node, together);
    const std::int64_t round = index / of_round, rest = index - round * of_round;
    const std::int64_t first = round * together;
    const std::int64_t in_round =
        shared.heads_of_node(node, together < heads - first ? together : heads - first);
    return {first + node + rest % in_round * shared.copies, blocks - 1 - rest / in_round};
  }

  /// From sizes alone, since scratch memory is sized before lengths are known. `config` is
  /// resolved; `nodes` are the memory nodes that threads run beside, which change neither items nor
  /// whether they share keys.
  template <class Unit = void>
  static constexpr prefill_schedule of(const attention_config& config, const call_sizes& sizes,
                                       int threads, int nodes = 1) noexcept {
    const std::int64_t workers = threads < 1 ? 1 : threads;
    const int mr = prefill_rows(config.target);
    const std::int64_t heads = (sizes.entries > 0 ? sizes.entries : 1) * sizes.kv_heads;
    const std::int64_t rows = sizes.q_len * sizes.group;
    const std::int64_t fair = workers > 1 ? rows * heads / (items_per_thread * workers) : rows;
    const std::int64_t tiles = ceil_div(fair < rows ? fair : rows, mr);
    const std::int64_t most = config.block_q / mr;
    const std::int64_t enough = tiles < least_tiles ? least_tiles : tiles;
    std::int64_t item_tiles = enough < most ? enough : most;
    prefill_schedule cut;
    cut.heads = sizes.entries * sizes.kv_heads;
    cut.group = sizes.group;
    if (!sizes.packed && rows > 0) {
      // As many blocks as give every thread as many items, unless they get short.
      const std::int64_t all_tiles = ceil_div(rows, mr);
      // Packing the keys of short heads takes as long as their products: they stay whole where that
      // gives every thread as many of them.
      const bool whole = heads % workers == 0 && all_tiles <= most_whole_tiles && all_tiles <= most;
      if (whole) item_tiles = all_tiles;
      const std::int64_t step = workers / std::gcd(workers, heads);
      const auto even_blocks = [&](std::int64_t tiles_of_block) {
        const std::int64_t blocks = ceil_div(all_tiles, tiles_of_block);
        const std::int64_t whole_rounds = ceil_div(blocks, step) * step;
        return all_tiles / whole_rounds >= least_tiles ? whole_rounds : blocks;
      };
      // Items that share their keys need not make up for packing them: half of the rows leave room
      // in the caches.
      const std::int64_t half = most < 2 ? 1 : most / 2;
      std::int64_t blocks = even_blocks(all_tiles > most && half < item_tiles ? half : item_tiles);
      if (shares_keys(config, blocks, ceil_div(all_tiles, blocks))) {
        cut.shared = shared_keys::of(config, sizes, cut.heads, blocks, workers, nodes);
      }
      if (!cut.shared.any()) blocks = even_blocks(item_tiles);
      item_tiles = ceil_div(all_tiles, blocks);
      cut.head_tiles = all_tiles;
      cut.head_blocks = blocks;
      // A quarter of the rows, in whole rounds. Where rows see keys up to theirs, the first blocks
      // are short work as they are.
      const std::int64_t last = blocks / 4 / step * step;
      if (cut.shared.any() && !sizes.causal && workers > 1 && all_tiles >= 2 * blocks && last > 0) {
        cut.short_blocks = 2 * last;
        cut.short_tiles = ceil_div(last * all_tiles, blocks);
        cut.head_blocks += last;
      }
    }
    cut.tile_rows = mr;
    cut.item_rows = static_cast<int>(item_tiles) * mr;
    return cut;
  }

  /// Whether packing a tile once is worth that its other items read it from where that left it.
  [[gnu::always_inline]] static constexpr bool shares_keys(const attention_config& config,
                                                           std::int64_t blocks,
                                                           std::int64_t item_tiles) noexcept {
    if (blocks < 2) return false;
    return item_tiles * 2 <= config.block_q / prefill_rows(config.target);
  }

  /// Bytes of the tiles of keys that a thread has in its caches, as floats.
  [[gnu::always_inline]] static constexpr std::int64_t tile_bytes(const attention_config& config,
                                                                  int head_dim,
                                                                  int v_head_dim) noexcept {
    const std::int64_t floats = std::int64_t{config.block_kv} * (head_dim + v_head_dim);
    return tile_buffers * floats * static_cast<std::int64_t>(sizeof(float));
  }
};

/// How the keys of one sequence are cut for decode (split-KV): from their number and the kind of
/// row alone, so that neither threads nor batch change the bits of a result.
struct key_splits {
  std::int64_t count = 1;
  std::int64_t keys = 0;  ///< of each split but the last

  static constexpr std::int64_t least_keys = 512;
  static constexpr std::int64_t few = 32;  ///< with `least_keys` or more
  /// With so many keys that combining the splits is nothing beside reading them: enough for many
  /// threads to read all heads of their keys, which lie together. Rows of tiles, which processors
  /// with many cores have, take twice as many: threads end closer together. Vectors lose 2 % on a
  /// single core by it, where a split's first lines are asked for by nobody.
  static constexpr std::int64_t most = 64;
  static constexpr std::int64_t many_keys = 2048;
  static constexpr std::int64_t finer_on_tiles = 2;

  /// No sequence of at most `k_len` keys has more splits than this.
  [[gnu::always_inline]] static constexpr std::int64_t room_for(std::int64_t k_len,
                                                                bool tiles) noexcept {
    const std::int64_t finer = tiles ? finer_on_tiles : 1;
    if (k_len > few * many_keys / finer) {
      const std::int64_t wanted = ceil_div(k_len, many_keys / finer);
      return wanted < most * finer ? wanted : most * finer;
    }
    const std::int64_t wanted = ceil_div(k_len, least_keys);
    return wanted < 1 ? 1 : wanted < few ? wanted : few;
  }

  [[gnu::always_inline]] static constexpr key_splits of(std::int64_t k_len, bool tiles) noexcept {
    if (k_len <= 0) return {1, least_keys};
    // Whole cache lines of keys, and no split left empty by the rounding.
    constexpr std::int64_t line = 64;
    const std::int64_t keys = ceil_div(ceil_div(k_len, room_for(k_len, tiles)), line) * line;
    return {ceil_div(k_len, keys), keys};
  }
};

/// Whether decode reads keys and values as operands of tiles where they lie: so many query rows a
/// key, seen by all of them.
[[gnu::always_inline]] constexpr bool reads_in_place(const attention_config& config,
                                                     std::int64_t rows) noexcept {
  constexpr int columns = 32;  // of keys in a tile; of values two tiles go together
  return has_tile_products(config.target) && config.head_dim > 0 && config.v_head_dim > 0 &&
         config.head_dim % columns == 0 && config.v_head_dim % (2 * columns) == 0 &&
         (rows == 4 || rows == 8);
}

/// Work items of a decode launch: up to block_q rows of the folded axis of `heads` key/value heads
/// of one entry against one split of the keys.
struct decode_schedule {
  static constexpr std::int64_t most_heads = 32;
  /// Of the heads of an item: what lies together is read together, a page at most.
  static constexpr std::int64_t most_bytes_of_key = 4096;
  /// Scratch memory of an item stays in the second-level cache.
  static constexpr std::size_t most_item_bytes = std::size_t{256} * 1024;

  int block_q = 1;
  int rows = 1;   ///< most of the folded axis, per head of an item
  int heads = 1;  ///< the last item of a split may have fewer
  int head_groups = 0;
  std::int64_t splits = 1;  ///< room for each row: key_splits::room_for
  std::int64_t entries = 0;
  std::int64_t group = 0;
  std::size_t head_bytes = 0;  ///< scratch memory of one head of an item

  [[gnu::always_inline]] constexpr std::int64_t blocks(std::int64_t q_len) const noexcept {
    return ceil_div(q_len * group, block_q);
  }
  [[gnu::always_inline]] constexpr std::int64_t items(std::int64_t q_len) const noexcept {
    return entries * blocks(q_len) * splits * head_groups;
  }
  [[gnu::always_inline]] constexpr std::size_t item_bytes() const noexcept {
    return static_cast<std::size_t>(heads) * head_bytes;
  }

  /// `config` is resolved.
  template <class Unit = void>
  static constexpr decode_schedule of(const attention_config& config, const call_sizes& sizes,
                                      int threads) noexcept {
    decode_schedule cut;
    cut.block_q = config.block_q;
    cut.entries = sizes.entries;
    cut.group = sizes.group;
    cut.splits = key_splits::room_for(sizes.most_kv_len, has_tile_products(config.target));
    const std::int64_t rows = sizes.most_q_len * sizes.group;
    cut.rows = static_cast<int>(rows < 1 ? 1 : rows < config.block_q ? rows : config.block_q);
    // Tiles of rows are of one size.
    if (has_tile_products(config.target) && cut.rows > max_decode_rows) {
      cut.rows = round_up(cut.rows, max_decode_rows);
    }
    cut.head_bytes = bytes_of_head(config, cut.rows, sizes.v_head_dim);
    const std::int64_t heads = heads_of_item<Unit>(config, sizes, cut, threads);
    cut.heads = static_cast<int>(heads);
    cut.head_groups = static_cast<int>(ceil_div(sizes.kv_heads, heads));
    return cut;
  }

  /// Words of Q, scores, sums, and three numbers of each row.
  [[gnu::always_inline]] static constexpr std::size_t bytes_of_head(const attention_config& config,
                                                                    int rows,
                                                                    int v_head_dim) noexcept {
    const int floats = rows * (strides::q(config) + strides::scores(config) +
                               strides::sums(config, v_head_dim) + 3);
    return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
  }

 private:
  template <class Unit = void>
  static constexpr std::int64_t heads_of_item(const attention_config& config,
                                              const call_sizes& sizes, const decode_schedule& cut,
                                              int threads) noexcept {
    const auto fitting = static_cast<std::int64_t>(most_item_bytes / cut.head_bytes);
    const std::int64_t key_bytes =
        (sizes.head_dim > 0 ? sizes.head_dim : 1) * static_cast<std::int64_t>(size_of(config.type));
    // Tiles read a head after the other anyway; many rows of one head stay in the first level.
    const bool alone =
        has_tile_products(config.target) && sizes.q_len * sizes.group >= max_decode_rows;
    const std::int64_t of_page = alone ? 1 : most_bytes_of_key / key_bytes;
    const std::int64_t bound = fitting < of_page ? fitting : of_page;
    const std::int64_t most = bound < 1 ? 1 : bound < most_heads ? bound : most_heads;
    // Where there are no rows there is nothing to share.
    const std::int64_t items =
        (sizes.entries > 0 ? sizes.entries : 1) * cut.blocks(sizes.most_q_len) * cut.splits;
    const std::int64_t wanted_groups =
        threads > 1 && items > 0 ? ceil_div(items_per_thread * threads, items) : 1;
    const std::int64_t heads = ceil_div(sizes.kv_heads, wanted_groups);
    return heads < 1 ? 1 : heads > most ? most : heads;
  }
};

/// Work items of a launch, all sequences `q_len` long.
template <class Unit = void>
constexpr std::int64_t items_of(const attention_config& config, const call_sizes& sizes,
                                int threads) noexcept {
  return config.phase == attention_phase::decode
             ? decode_schedule::of<Unit>(config, sizes, threads).items(sizes.q_len)
             : prefill_schedule::of<Unit>(config, sizes, threads).items(sizes.q_len);
}

}  // namespace tessera::schedule_cpu
