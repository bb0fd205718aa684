// Flash attention forward on the CPU, decode: few query rows against many keys. Bound by reading K
// and V once, so nothing is packed: scores are dot products over rows as they lie, values are added
// row by row. The keys are cut into splits of fixed length whose partial softmax states are merged
// afterwards (decode_splits.hpp). The split length depends neither on threads nor on batch, so
// neither do the bits of a result.
//
// Memory is read nearly in the order in which it lies, so that the hardware's prefetcher follows: a
// few keys of all heads of an item, then the next few. Requests to the second-level cache go up to
// 32 KiB ahead in exactly that order. They lie between the products, which follow head by head, a
// step of keys at a time. With one or two query rows a key the prefetcher alone is faster, in
// straight lines: the keys of a split are then read as four streams (key_streams).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tessera/kernels/attention/cpu/decode_head.hpp>
#include <tessera/kernels/attention/cpu/decode_splits.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::cpu {

/// Shape of the work items of a decode launch, from sizes alone.
template <class Row>
struct decode_grid {
  using shape = traits<Row>;
  int rows = 1;   ///< of the folded axis, per head of an item
  int heads = 1;  ///< key/value heads of an item; the last item of a split may have fewer
  int head_groups = 1;

  static decode_grid of(const attention_kernel_args& args, int threads) {
    decode_grid grid;
    const std::int64_t rows = args.q_len * group_of(args);
    grid.rows = static_cast<int>(rows < 1 ? 1 : rows < shape::block_q ? rows : shape::block_q);
    // Scratch memory of an item stays in the second-level cache.
    constexpr std::size_t most_bytes = 256 * 1024;
    const std::size_t fitting =
        most_bytes / decode_buffers<Row>::bytes(grid.rows, shape::v_head_dim(args));
    const auto page =
        static_cast<std::size_t>(most_bytes_of_key) /
        (static_cast<std::size_t>(shape::head_dim(args)) * sizeof(typename shape::element));
    const std::size_t bound = fitting < page ? fitting : page;
    const std::int64_t most = bound < 1            ? 1
                              : bound < most_heads ? static_cast<std::int64_t>(bound)
                                                   : most_heads;
    constexpr std::int64_t items_per_thread = 4;
    // A launch without rows or entries has no item; what it would ask for is that of one.
    const std::int64_t items = at_least_one(args.batch) *
                               at_least_one((rows + shape::block_q - 1) / shape::block_q) *
                               key_splits::room_for(args.kv_len);
    const std::int64_t wanted_groups =
        threads > 1 ? (items_per_thread * threads + items - 1) / items : 1;
    std::int64_t heads = (args.kv_heads + wanted_groups - 1) / wanted_groups;
    heads = at_least_one(heads > most ? most : heads);
    grid.heads = static_cast<int>(heads);
    grid.head_groups = static_cast<int>((args.kv_heads + heads - 1) / heads);
    return grid;
  }
  std::size_t bytes(const attention_kernel_args& args) const {
    return static_cast<std::size_t>(heads) *
           decode_buffers<Row>::bytes(rows, shape::v_head_dim(args));
  }

  static constexpr std::int64_t at_least_one(std::int64_t count) { return count < 1 ? 1 : count; }
  static constexpr std::int64_t most_heads = 32;
  /// Of the heads of an item: what lies together is read together, a page at most.
  static constexpr int most_bytes_of_key = 4096;
};

/// One work item on one thread: rows [first_row, first_row + block_q) of the folded axis of heads
/// [head_begin, head_end) against one split of the keys.
template <class Row, class Hooks>
class decode_item {
  using shape = traits<Row>;
  using element = typename shape::element;
  using head_type = decode_head<Row, Hooks>;
  using step = typename head_type::step;

 public:
  decode_item(const attention_kernel_args& args, const Hooks& hooks, std::byte* scratch,
              const decode_grid<Row>& grid, std::int64_t entry, std::int64_t first_row,
              int head_group)
      : args_(args),
        head_begin_(head_group * grid.heads),
        heads_(args.kv_heads - head_begin_ < grid.heads ? args.kv_heads - head_begin_
                                                        : grid.heads) {
    const int v_head_dim = shape::v_head_dim(args);
    const std::size_t slice = decode_buffers<Row>::bytes(grid.rows, v_head_dim);
    for (int h = 0; h < heads_; ++h) {
      scratch_[h] = decode_buffers<Row>::at(scratch + static_cast<std::size_t>(h) * slice,
                                            grid.rows, v_head_dim);
      head_[h].emplace(args, hooks, scratch_[h], entry, head_begin_ + h, first_row);
    }
    const auto key_bytes =
        static_cast<std::int64_t>(heads_ * shape::head_dim(args)) * std::int64_t{sizeof(element)};
    ahead_ = keys_ahead(key_splits::of(head_[0]->sequence().k_len).keys, key_bytes);
    constexpr int most_sums = most_hot_bytes / static_cast<int>(sizeof(float));
    crowded_ = grid.rows > head_type::most_rows ||
               heads_ * grid.rows * decode_buffers<Row>::sum_stride(v_head_dim) > most_sums;
    streaming_ = streams_pay(args, grid.rows);
  }

  void run(std::int64_t split, const split_results& results) {
    const head_type& any = *head_[0];
    if (any.rows() == 0) return;
    const key_splits splits = key_splits::of(any.sequence().k_len);
    if (split >= splits.count) return;
    const prim::key_interval keys =
        prim::intersection(any.keys_of_all(), {split * splits.keys, (split + 1) * splits.keys});
    streams_ = streams_of(keys);
    for (int h = 0; h < heads_; ++h) head_[h]->start();
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
      const std::int64_t left = keys.end - key0;
      const int count = left < shape::block_kv ? static_cast<int>(left) : shape::block_kv;
      if (streams_.hold(key0)) {
        attend<key_streams::count>(key0, count, keys.end);
      } else if (head_type::few_keys != head_type::many_keys && crowded_) {
        attend<head_type::many_keys>(key0, count, keys.end);
      } else {
        attend<head_type::few_keys>(key0, count, keys.end);
      }
    }
    for (int h = 0; h < heads_; ++h) head_[h]->finish(split, results);
  }

 private:
  /// Half of a first-level cache of 32 KiB is left to the lines that pass through.
  static constexpr int most_hot_bytes = 16 * 1024;

  /// Distance of requests: 32 KiB, and in small splits, whose first lines nobody asks for, less.
  static int keys_ahead(std::int64_t split_keys, std::int64_t key_bytes) {
    constexpr std::int64_t least_bytes = 8 * 1024;
    constexpr std::int64_t most_bytes = 32 * 1024;
    const std::int64_t part = split_keys * key_bytes / 16;
    const std::int64_t bytes = part < least_bytes  ? least_bytes
                               : part < most_bytes ? part
                                                   : most_bytes;
    return static_cast<int>((bytes + key_bytes - 1) / key_bytes);
  }

  /// True if the loops should read several straight lines of keys and leave the requests to the
  /// hardware: few multiply-adds a key, whole rows of the tensors without gaps, and what is read
  /// again with every key stays in the first-level cache. Like `key_splits`, the answer follows
  /// from the problem alone: neither threads nor batch may change the order of additions.
  static bool streams_pay(const attention_kernel_args& args, int rows) {
    constexpr std::int64_t least_row_bytes = 1024;
    const int head_dim = shape::head_dim(args);
    const int v_head_dim = shape::v_head_dim(args);
    const auto straight = [&](const row_strides& strides, int dim) {
      const std::int64_t row = static_cast<std::int64_t>(args.kv_heads) * dim;
      const auto bytes = row * static_cast<std::int64_t>(sizeof(element));
      return strides.row == row && strides.head == dim && bytes >= least_row_bytes &&
             bytes <= decode_grid<Row>::most_bytes_of_key;
    };
    const int hot = prim::words_for<typename shape::words>(head_dim) +
                    decode_buffers<Row>::sum_stride(v_head_dim);
    return rows <= head_type::most_rows / 2 && straight(args.k_strides, head_dim) &&
           straight(args.v_strides, v_head_dim) &&
           static_cast<std::int64_t>(args.kv_heads) * rows * hot *
                   static_cast<std::int64_t>(sizeof(float)) <=
               most_hot_bytes;
  }

  /// No functor looks at scores whose order is free, so that one head answers for all.
  key_streams streams_of(prim::key_interval keys) const {
    if (!streaming_ || keys.empty()) return {};
    std::int64_t count = keys.end - keys.begin;
    count = count < key_streams::most_keys ? count : key_streams::most_keys;
    count = count / shape::block_kv * shape::block_kv;
    if (count == 0 || !head_[0]->frees_order_of(keys.begin, static_cast<int>(count))) return {};
    return {keys.begin, count};
  }

  /// Keys [key0, key0 + count) of a split that ends at `end`, or as many of its streams, `Keys` at
  /// a time.
  template <int Keys>
  void attend(std::int64_t key0, int count, std::int64_t end) const {
    prim::tile_visibility seen[decode_grid<Row>::most_heads];
    bool any = false;
    for (int h = 0; h < heads_; ++h) {
      seen[h] =
          streams_.hold(key0) ? prim::tile_visibility::full : head_[h]->visibility_of(key0, count);
      any = any || seen[h] != prim::tile_visibility::skip;
    }
    if (!any) return;
    const fetched keys{args_.k, args_.k_strides, end};
    for_each_step<Keys>(key0, count, keys, seen, [](const head_type& one, const step& at) {
      one.template multiply_keys<Keys>(at);
    });
    for (int h = 0; h < heads_; ++h) {
      if (seen[h] == prim::tile_visibility::skip) continue;
      const head_type& one = *head_[h];
      one.softmax(key0, count, seen[h]);
      if (!one.hides_nonfinite(key0, count, seen[h])) continue;
      one.add_seen_values(key0, count);
      seen[h] = prim::tile_visibility::skip;
    }
    const fetched values{args_.v, args_.v_strides, end};
    for_each_step<Keys>(key0, count, values, seen, [](const head_type& one, const step& at) {
      one.template multiply_values<Keys>(at);
    });
  }

  /// The tensor that a sweep reads, up to key `end`.
  struct fetched {
    const void* data;
    const row_strides& strides;
    std::int64_t end;
  };

  /// Rows in the order in which they are asked for: all heads of a key, then those of the next. The
  /// last key stands for those behind it.
  struct row_order {
    const element* key0;  ///< of the item's first head
    const row_strides& strides;
    int heads;
    std::int64_t last;  ///< counted from key0 as `key`
    std::int64_t key;
    const element* row = row_of_key();
    int head = 0;

    TESSERA_INLINE const element* row_of_key() const {
      return key0 + (key < last ? key : last) * strides.row;
    }
    TESSERA_INLINE const element* next() {
      const element* const current = row;
      row += strides.head;
      if (++head == heads) {
        head = 0;
        ++key;
        row = row_of_key();
      }
      return current;
    }
  };

  template <int Keys, class Visit>
  TESSERA_INLINE void for_each_step(std::int64_t key0, int count, const fetched& tensor,
                                    const prim::tile_visibility* seen, const Visit& visit) const {
    const element* first = head_[0]->rows_from(tensor.data, tensor.strides, key0).data;
    const int distance = ahead_ < Keys ? Keys : ahead_;
    const element* ahead[Keys];
    for (int key = 0; key < count; key += Keys) {
      const int left = count - key;
      const step at{key0 + key, 1, key, left < Keys ? left : Keys, ahead};
      row_order order{first, tensor.strides, heads_, tensor.end - key0 - 1, key + distance};
      for (int h = 0; h < heads_; ++h) {
        if constexpr (Keys == key_streams::count) {
          if (streams_.hold(key0)) {
            visit(*head_[h], step_of_streams(h, key0, key, tensor, ahead));
            continue;
          }
        }
        for (int k = 0; k < Keys; ++k) ahead[k] = order.next();
        if (seen[h] != prim::tile_visibility::skip) visit(*head_[h], at);
      }
    }
  }

  /// One key of each stream. The prefetcher needs requests where the item leaves gaps only.
  TESSERA_INLINE step step_of_streams(int h, std::int64_t key0, int column, const fetched& tensor,
                                      const element* (&ahead)[key_streams::count]) const {
    step at{streams_.first(key0, column), streams_.distance(), column, key_streams::count, nullptr};
    if (heads_ == args_.kv_heads) return at;
    const int distance = (ahead_ + key_streams::count - 1) / key_streams::count;
    for (int k = 0; k < key_streams::count; ++k) {
      std::int64_t key = at.first + k * at.distance + distance;
      key = key < tensor.end ? key : tensor.end - 1;
      ahead[k] = head_[h]->rows_from(tensor.data, tensor.strides, key).data;
    }
    at.ahead = ahead;
    return at;
  }

  const attention_kernel_args& args_;
  int head_begin_;
  int heads_;
  int ahead_;            ///< distance of requests, keys
  bool crowded_;         ///< more sums than a step of few keys is worth
  bool streaming_;       ///< streams_pay
  key_streams streams_;  ///< of the split at hand; none where its keys are read in order
  decode_buffers<Row> scratch_[decode_grid<Row>::most_heads];
  std::optional<head_type> head_[decode_grid<Row>::most_heads];
};

}  // namespace tessera::kernels::attention::cpu
