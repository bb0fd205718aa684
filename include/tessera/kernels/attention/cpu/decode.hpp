// Decode: few query rows against many keys. Bound by reading K and V once, so nothing is packed:
// scores are dot products over rows as they lie, values are added row by row (on AMX tiles:
// decode_tiles.hpp, decode_in_place.hpp). The keys are cut into splits whose partial results are
// combined afterwards (split-KV).
//
// Memory is read nearly in the order in which it lies; key_order.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/split_kv.hpp>
#include <tessera/kernels/attention/cpu/decode_in_place.hpp>
#include <tessera/kernels/attention/cpu/decode_rows.hpp>
#include <tessera/kernels/attention/cpu/epilogue.hpp>
#include <tessera/kernels/attention/cpu/key_order.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::cpu {

using schedule_cpu::decode_schedule;
using schedule_cpu::key_splits;

/// The rows of a work item: up to block_q rows of the folded axis from `first_row` on, of the heads
/// of group `head_group`, and how it reads their keys.
template <class Kernel, class Hooks, class Source>
class decode_item {
  using shape = traits<Kernel>;
  using stored = typename decltype(Source::k)::stored;
  using rows_type = decode_rows<Kernel, Hooks>;

 public:
  decode_item(const attention_kernel_args& args, const Hooks& hooks, const Source& keys_and_values,
              std::byte* scratch, const decode_schedule& schedule,
              const decode_entry<Kernel>& entry, std::int64_t first_row, int head_group)
      : source(keys_and_values), first_key_(entry.first_key), first_part_(entry.first_part) {
    heads_.begin = head_group * schedule.heads;
    heads_.all = args.kv_heads;
    heads_.count = args.kv_heads - heads_.begin < schedule.heads ? args.kv_heads - heads_.begin
                                                                 : schedule.heads;
    const int v_head_dim = shape::v_head_dim(args);
    for (int h = 0; h < heads_.count; ++h) {
      scratch_[h] = decode_scratch<Kernel>::at(
          scratch + static_cast<std::size_t>(h) * schedule.head_bytes, schedule.rows, v_head_dim);
      rows_[h].emplace(args, hooks, scratch_[h], entry, heads_.begin + h, first_row);
    }
    splits_ = key_splits::of(rows_[0]->queries().sequence().k_len, shape::tiles);
    const auto key_bytes = static_cast<std::int64_t>(heads_.count * shape::head_dim(args)) *
                           std::int64_t{sizeof(stored)};
    keys_ahead_ = keys_ahead(splits_.keys, key_bytes);
    constexpr int most_sums = most_hot_bytes / static_cast<int>(sizeof(float));
    crowded_ = schedule.rows > rows_type::mr ||
               heads_.count * schedule.rows * strides::sums(shape::config, v_head_dim) > most_sums;
    streaming_ = !shape::tiles && streams_pay(args, schedule.rows);
  }

  const Source& source;

  int heads() const { return heads_.count; }
  const head_range& range_of_heads() const { return heads_; }
  const rows_type& rows(int h) const { return *rows_[h]; }
  /// For rows of a head.
  int room() const { return scratch_[0].rows; }
  bool empty() const { return rows(0).queries().count() == 0; }
  /// More sums than a step of few keys is worth.
  bool crowded() const { return crowded_; }

  /// The keys of a split that some row sees.
  prim::key_interval keys_of_split(std::int64_t split) const {
    if (split >= splits_.count) return {};
    const prim::key_interval keys = prim::intersection(
        rows(0).queries().keys_of_all().some, {split * splits_.keys, (split + 1) * splits_.keys});
    return {keys.begin > first_key_ ? keys.begin : first_key_, keys.end};
  }
  bool has_split(std::int64_t split) const { return split < splits_.count; }
  std::int64_t first_part() const { return first_part_; }

  template <int Rows>
  in_place_tiles<Kernel, Rows> in_place(int h) const {
    return {scratch_[h], decode_tiles<Kernel>(scratch_[h], Rows).q_stride()};
  }
  /// The first of these keys, whole steps, that all rows see and nothing but the softmax looks at.
  prim::key_interval keys_seen_by_all(prim::key_interval keys, int step) const {
    const prim::key_interval all = rows(0).queries().keys_of_all().all;
    if (all.begin > keys.begin) return {};
    const std::int64_t end = all.end < keys.end ? all.end : keys.end;
    if (end < keys.begin + step) return {};
    keys.end = keys.begin + (end - keys.begin) / step * step;
    return rows(0).frees_order_of(keys) ? keys : prim::key_interval{};
  }
  template <int Keys>
  memory_order<Keys> order_of(prim::key_interval keys) const {
    return {heads_, keys.end, keys_ahead_};
  }
  /// Streams through the first of these keys, as many as are in whole tiles; maybe none. No functor
  /// looks at scores whose order is free, so that one head answers for all.
  stream_order streams_of(prim::key_interval keys) const {
    if (!streaming_ || keys.empty()) return {};
    std::int64_t count = keys.end - keys.begin;
    count = count < stream_order::most_keys ? count : stream_order::most_keys;
    count = count / shape::block_kv * shape::block_kv;
    const bool straight = source.k.contiguous_run(keys.begin) >= count &&
                          source.v.contiguous_run(keys.begin) >= count;
    if (count == 0 || !straight || !rows(0).frees_order_of({keys.begin, keys.begin + count})) {
      return {};
    }
    return {heads_, keys.begin, count, keys.end, keys_ahead_};
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
  bool streams_pay(const attention_kernel_args& args, int rows) const {
    constexpr std::int64_t least_row_bytes = 1024;
    const int head_dim = shape::head_dim(args);
    const int v_head_dim = shape::v_head_dim(args);
    const auto straight = [&](const auto& tokens, int dim) {
      const std::int64_t row = static_cast<std::int64_t>(args.kv_heads) * dim;
      const auto bytes = row * static_cast<std::int64_t>(sizeof(stored));
      return tokens.stride() == row && tokens.head_stride() == dim && bytes >= least_row_bytes &&
             bytes <= decode_schedule::most_bytes_of_key;
    };
    const int hot =
        prim::words_for<typename shape::words>(head_dim) + strides::sums(shape::config, v_head_dim);
    return rows <= rows_type::mr / 2 && straight(source.k, head_dim) &&
           straight(source.v, v_head_dim) &&
           static_cast<std::int64_t>(args.kv_heads) * rows * hot *
                   static_cast<std::int64_t>(sizeof(float)) <=
               most_hot_bytes;
  }

  head_range heads_;
  key_splits splits_;
  std::int64_t first_key_;
  std::int64_t first_part_;
  int keys_ahead_;  ///< distance of requests
  bool crowded_;
  bool streaming_;  ///< streams_pay
  decode_scratch<Kernel> scratch_[decode_schedule::most_heads];
  std::optional<rows_type> rows_[decode_schedule::most_heads];
};

/// The rows of head `h` of an item against a tile of keys that lies in place, a step of the order.
template <class Order, class Kernel, class Hooks, class Source>
void attend_columns(const decode_item<Kernel, Hooks, Source>& item, const Order& order,
                    prim::key_interval tile, int h) {
  const Source& source = item.source;
  const auto count = static_cast<int>(tile.end - tile.begin);
  typename Order::template sweep<decltype(source.k)> k(order, source.k, tile.begin, count);
  typename Order::template sweep<decltype(source.v)> v(order, source.v, tile.begin, count);
  k.start(0);
  v.start(0);
  k.step(h, [&](const auto& keys) {
    v.step(h, [&](const auto& values) { item.rows(h).attend_columns(keys, values); });
  });
}

/// The rows of an item against the keys of an interval, in a given order.
template <class Order, class Kernel, class Hooks, class Source>
void attend(const decode_item<Kernel, Hooks, Source>& item, prim::key_interval keys,
            const Order& order) {
  using shape = traits<Kernel>;
  constexpr int step_keys = Order::keys_of_step;
  const int heads = item.heads();
  const Source& source = item.source;
  prim::tile_visibility seen[decode_schedule::most_heads];
  for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
    const prim::key_interval tile = prim::intersection(keys, {key0, key0 + shape::block_kv});
    const auto count = static_cast<int>(tile.end - tile.begin);
    bool any = false;
    for (int h = 0; h < heads; ++h) {
      seen[h] = Order::all_seen ? prim::tile_visibility::full
                                : item.rows(h).queries().visibility_of_keys(tile);
      if constexpr (Order::one_head) {
        if (h != order.head) seen[h] = prim::tile_visibility::skip;
      }
      if constexpr (shape::tiles && Source::in_place) {
        if (item.rows(h).keeps_columns(tile, seen[h])) {
          attend_columns(item, order, tile, h);
          seen[h] = prim::tile_visibility::skip;
        }
      }
      any = any || seen[h] != prim::tile_visibility::skip;
    }
    if (!any) continue;

    typename Order::template sweep<decltype(source.k)> k(order, source.k, key0, count);
    for (int column = 0; column < count; column += step_keys) {
      k.start(column);
      for (int h = 0; h < heads; ++h) {
        k.step(h, [&](const auto& step) {
          if (seen[h] == prim::tile_visibility::skip) return;
          item.rows(h).template gemm_qk<step_keys>(step);
        });
      }
    }
    for (int h = 0; h < heads; ++h) {
      if (seen[h] == prim::tile_visibility::skip) continue;
      item.rows(h).apply_score_mod(tile, seen[h]);
      item.rows(h).softmax(tile);
      item.rows(h).rescale_sums();
      if (item.rows(h).hides_nonfinite(source.v, tile, seen[h])) {
        item.rows(h).add_seen_values(source.v, tile);
        seen[h] = prim::tile_visibility::skip;
      }
    }
    typename Order::template sweep<decltype(source.v)> v(order, source.v, key0, count);
    for (int column = 0; column < count; column += step_keys) {
      v.start(column);
      for (int h = 0; h < heads; ++h) {
        v.step(h, [&](const auto& step) {
          if (seen[h] == prim::tile_visibility::skip) return;
          item.rows(h).template gemm_pv<step_keys>(step);
        });
      }
    }
  }
}

/// The same in the orders in which products of vectors read: streams first, where they pay.
template <class Kernel, class Hooks, class Source>
void attend_rows(const decode_item<Kernel, Hooks, Source>& item, prim::key_interval keys) {
  using rows_type = decode_rows<Kernel, Hooks>;
  if constexpr (Source::in_place) {
    const stream_order streams = item.streams_of(keys);
    if (streams.keys > 0) {
      attend(item, {keys.begin, keys.begin + streams.keys}, streams);
      keys.begin += streams.keys;
    }
  }
  if (rows_type::few_keys != rows_type::many_keys && item.crowded()) {
    attend(item, keys, item.template order_of<rows_type::many_keys>(keys));
  } else {
    attend(item, keys, item.template order_of<rows_type::few_keys>(keys));
  }
}

/// The first keys of an interval, on tiles of so many rows that read them in place; returns where
/// the others begin.
template <int Rows, class Kernel, class Hooks, class Source>
std::int64_t attend_in_place(const decode_item<Kernel, Hooks, Source>& item,
                             prim::key_interval keys) {
  using rows_type = decode_rows<Kernel, Hooks>;
  using tiles_type = in_place_tiles<Kernel, Rows>;
  using tiles_of_step = tile_pair<typename traits<Kernel>::element>;
  constexpr int step = tiles_type::keys_of_step;
  const Source& source = item.source;
  const prim::key_interval seen = item.keys_seen_by_all(keys, step);
  if (seen.empty()) return keys.begin;
  prim::tiles::begin(tiles_type::shapes());
  tiles_type rows[decode_schedule::most_heads];
  for (int h = 0; h < item.heads(); ++h) rows[h] = item.template in_place<Rows>(h);
  const head_range& heads = item.range_of_heads();
  std::int64_t key = seen.begin;
  for (; key < seen.end; key += step) {
    const auto k = tiles_of_step::of(source.k, key, heads.begin);
    const auto v = tiles_of_step::of(source.v, key, heads.begin);
    if (!k.straight || !v.straight) break;
    const std::int64_t asked = key + 2 * step < keys.end ? key + 2 * step : keys.end;
    row_requests<decltype(source.k), tiles_type::key_lines> next_keys(source.k, heads, key + step,
                                                                      asked);
    row_requests<decltype(source.v), tiles_type::value_lines> next_values(source.v, heads,
                                                                          key + step, asked);
    for (int h = 0; h < heads.count; ++h) {
      rows[h].attend(item.rows(h).queries().units(), k.behind(h * source.k.head_stride()),
                     v.behind(h * source.v.head_stride()), next_keys, next_values);
    }
  }
  prim::tiles::begin(decode_tiles<Kernel>::shapes(item.room()));
  for (int h = 0; h < item.heads(); ++h) {
    rows[h].finish();
    rows[h].make_anew([&] {
      constexpr int keys_of_tile = rows_type::template tile_keys<Source>;
      const head_order<keys_of_tile> order{item.template order_of<keys_of_tile>(keys), h};
      item.rows(h).load_q();
      attend(item, {seen.begin, key}, order);
    });
  }
  return key;
}

/// The rows of an item on tiles, in place where that is possible.
template <class Kernel, class Hooks, class Source>
void attend_tiles(const decode_item<Kernel, Hooks, Source>& item, prim::key_interval keys) {
  using rows_type = decode_rows<Kernel, Hooks>;
  const auto order = item.template order_of<rows_type::template tile_keys<Source>>(keys);
  if constexpr (Source::in_place && schedule_cpu::reads_in_place(traits<Kernel>::config, 4)) {
    const int rows = item.rows(0).queries().count();
    if (rows == 4) keys.begin = attend_in_place<4>(item, keys);
    if (rows == 8) keys.begin = attend_in_place<8>(item, keys);
  }
  attend(item, keys, order);
}

/// One work item on one thread: leaves the partial results of a split.
template <class Kernel, class Hooks, class Source>
void decode(const decode_item<Kernel, Hooks, Source>& item, std::int64_t split,
            const partial_results& partial) {
  if (item.empty() || !item.has_split(split)) return;
  for (int h = 0; h < item.heads(); ++h) item.rows(h).load_q();
  const prim::key_interval keys = item.keys_of_split(split);
  if constexpr (traits<Kernel>::tiles) {
    attend_tiles(item, keys);
  } else {
    attend_rows(item, keys);
  }
  for (int h = 0; h < item.heads(); ++h) {
    item.rows(h).store_partial(item.first_part() + split, partial);
  }
}

/// Sums whose columns lie in the order of interleaved words, in place back to memory order.
template <class Words>
void restore_columns(float* sums, int count) {
  constexpr int period = Words::interleave_period;
  if constexpr (period > 1) {
    for (int first = 0; first < count; first += period) {
      float block[period];
      for (int d = 0; d < period; ++d) block[d] = sums[first + Words::interleaved_column(d)];
      std::memcpy(sums + first, block, sizeof block);
    }
  }
}

/// Combines the splits of one row and writes it. `accumulator` has room for partial.stride floats.
template <class Kernel>
void combine_row(const attention_kernel_args& args, const prim::sequence& seq, std::int64_t query,
                 int head, const partial_results& partial, float* accumulator) {
  using shape = traits<Kernel>;
  const std::int64_t first = partial.first_part(args, seq, query, head);
  part_range shared;
  if (reads_prefixes_once(args)) {
    const std::int64_t prefix = prefix_of_sequence(args, seq.index);
    const std::int64_t keys = prefix < 0 ? 0 : keys_of_prefix(args, prefix);
    shared.begin = first + partial.splits / 2;
    shared.end = shared.begin + (keys > 0 ? key_splits::of(keys, shape::tiles).count : 0);
  }
  const prim::softmax_state state = combine<typename shape::isa_type>(
      partial, {first, first + key_splits::of(seq.k_len, shape::tiles).count}, shared, accumulator);
  restore_columns<typename shape::words>(accumulator, partial.stride);
  const auto result = prim::finish_row(state, args.sinks + head * args.sink_head_stride,
                                       args.sink_count, args.sink_stride, args.normalize);
  store_row<Kernel>(args, seq, query, head, result, accumulator);
}

}  // namespace tessera::kernels::attention::cpu
