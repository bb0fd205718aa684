// Flash attention forward on the CPU, prefill: a block of query rows against all its key blocks.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles instead of warps. One work item
// is (block of rows, batch entry, key/value head). The query heads of a group are rows of the same
// block: row r of an item is query r / group of head r % group, so that K and V are packed once for
// the whole group. Per key block:
//
//   pack      K [keys, D] -> panels [D][columns],  V [keys, Dv] -> panels [keys][columns]
//   scores    S[rows, keys] = Q K^T            register tiles, skipped outside the visible interval
//   softmax   S -> weights in place            modifiers, running maximum and denominator
//   values    O = correction * O + weights V   register tiles over the visible keys only
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/flash_attention/finish.hpp>
#include <tessera/kernels/flash_attention/scores.hpp>
#include <tessera/kernels/flash_attention/tiles.hpp>
#include <tessera/kernels/flash_attention/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/pack.hpp>
#include <tessera/prim/cpu/register_tile.hpp>

namespace tessera::flash {

/// Scratch memory of one thread.
template <class Row>
struct prefill_buffers {
  using shape = traits<Row>;
  static constexpr int rows = shape::block_q;

  float* q;                    ///< [rows][q_stride] words
  float* k;                    ///< panels, [keys / columns][words][columns]
  float* v;                    ///< panels, [columns][keys / per_word][...]
  float* scores;               ///< [rows][score_stride]
  float* out;                  ///< [rows][out_stride]
  float* correction;           ///< [rows]
  prim::softmax_state* state;  ///< [rows]
  int* low;  ///< [rows]: columns of the tile that the row's register tile computes
  int* high;
  bool* nonfinite;  ///< [block_kv]: keys whose values are kept out of the register tiles

  static constexpr int out_stride(int v_head_dim) {
    return round_up(v_head_dim, shape::width) + shape::padding;
  }

  /// Cuts a 64-byte aligned slice into buffers. With a null slice only counts its bytes.
  static std::size_t carve(std::byte* slice, int head_dim, int v_head_dim,
                           prefill_buffers* buffers) {
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, std::size_t count) {
      *pointer = reinterpret_cast<Element*>(slice + offset);
      offset += (count * sizeof(Element) + 63) / 64 * 64;
    };
    prefill_buffers ignored{};
    prefill_buffers& b = buffers != nullptr ? *buffers : ignored;
    const auto size = [](int a, int c) {
      return static_cast<std::size_t>(a) * static_cast<std::size_t>(c);
    };
    take(&b.q, size(rows, shape::q_stride));
    take(&b.k, size(shape::block_kv, prim::words_for<typename shape::words>(head_dim)));
    take(&b.v, size(shape::block_kv, round_up(v_head_dim, shape::width)));
    take(&b.scores, size(rows, shape::score_stride));
    take(&b.out, size(rows, out_stride(v_head_dim)));
    take(&b.correction, size(rows, 1));
    take(&b.state, size(rows, 1));
    take(&b.low, size(rows, 1));
    take(&b.high, size(rows, 1));
    take(&b.nonfinite, size(shape::block_kv, 1));
    return offset;
  }
};

/// One work item on one thread.
template <class Row, class Hooks>
class prefill_item {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using element = typename shape::element;
  using vec = typename shape::vec;
  using modifiers = score_modifiers<Row, Hooks>;
  using buffers = prefill_buffers<Row>;
  static constexpr mask_mode mask = shape::config.mask;

 public:
  prefill_item(const flash_kernel_args& args, const Hooks& hooks, const buffers& scratch,
               std::int64_t entry, int kv_head, std::int64_t first_row)
      : args_(args),
        hooks_(hooks),
        scratch_(scratch),
        seq_(prim::sequence_of(args, entry)),
        visible_(prim::row_visibility<mask>::of(args, seq_)),
        group_(group_of(args)),
        kv_head_(kv_head),
        first_row_(first_row) {}

  /// Computes rows [first_row, first_row + block_q) of the folded (query, head-in-group) axis.
  void run() {
    const bool packed = args_.cu_seqlens_q != nullptr;
    const std::int64_t all = (packed ? seq_.q_len : args_.q_len) * group_;
    const std::int64_t used = seq_.q_len * group_;
    const std::int64_t end = first_row_ + shape::block_q < all ? first_row_ + shape::block_q : all;
    const std::int64_t first_unused = used > first_row_ ? used : first_row_;
    for (std::int64_t row = first_unused; row < end; ++row) finish({}, row, nullptr);
    rows_ = static_cast<int>((end < used ? end : used) - first_row_);
    if (rows_ <= 0) return;

    load_queries();
    const prim::key_interval keys{keys_of(0).begin, keys_of(rows_ - 1).end};
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
      const int count = keys_in_tile(key0, keys.end);
      attend(key0, count, keys_in_tile(key0 + count, keys.end));
    }
    prim::softmax_result results[shape::block_q];
    for (int r = 0; r < rows_; ++r) results[r] = finish_row(r);
    if constexpr (shape::has(flash_feature::weights)) {
      if (args_.weights != nullptr) write_weights(keys, results);
    }
  }

 private:
  static TESSERA_INLINE int keys_in_tile(std::int64_t key0, std::int64_t end) {
    return end - key0 < shape::block_kv ? static_cast<int>(end - key0) : shape::block_kv;
  }
  TESSERA_INLINE std::int64_t query_of(int r) const { return (first_row_ + r) / group_; }
  TESSERA_INLINE int head_of(int r) const {
    return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_);
  }
  TESSERA_INLINE prim::key_interval keys_of(int r) const { return visible_.keys_of(query_of(r)); }
  TESSERA_INLINE float* score_row(int r) const {
    return scratch_.scores + static_cast<std::int64_t>(r) * shape::score_stride;
  }
  TESSERA_INLINE float* out_row(int r) const {
    return scratch_.out +
           static_cast<std::int64_t>(r) * buffers::out_stride(shape::v_head_dim(args_));
  }

  void load_queries() {
    const int head_dim = shape::head_dim(args_);
    const int out_stride = buffers::out_stride(shape::v_head_dim(args_));
    for (int r = 0; r < rows_; ++r) {
      const auto* row = token_row<const element>(args_.q, args_.q_strides, seq_.index,
                                                 seq_.q_begin + query_of(r), head_of(r));
      prim::pack_query<isa_type, words>(
          row, head_dim, scratch_.q + static_cast<std::int64_t>(r) * shape::q_stride);
      scratch_.state[r] = {};
    }
    std::memset(scratch_.out, 0, static_cast<std::size_t>(rows_ * out_stride) * sizeof(float));
  }

  /// One key block: keys [key0, key0 + count). No hardware prefetcher follows rows that are pages
  /// apart, so each product fetches what the next step packs: the values of this block, then the
  /// `next` keys behind it. No more than that is in flight, because rows a power of two apart share
  /// few cache sets.
  void attend(std::int64_t key0, int count, int next) {
    const auto tile =
        prim::score_tile{seq_.index,  kv_head_ * group_,       (kv_head_ + 1) * group_,
                         query_of(0), query_of(rows_ - 1) + 1, key0,
                         key0 + count};
    const prim::tile_visibility seen = classify<Row>(args_, hooks_, tile);
    if (seen == prim::tile_visibility::skip) return;
    set_ranges(key0, count);
    pack_keys(key0, count);
    multiply_keys(count, rows_from(args_.v, args_.v_strides, key0), count);
    const bool whole = seen == prim::tile_visibility::full && keys_of(0).end >= key0 + count &&
                       keys_of(rows_ - 1).begin <= key0 && !modifiers::may_hide(args_);
    const bool finite = pack_values(key0, count, whole);
    softmax(key0, count);
    multiply_values(count, rows_from(args_.k, args_.k_strides, key0 + count), next);
    if (!finite) add_nonfinite_values(key0, count);
  }

  /// For every register tile of rows, the columns that one of its rows sees, in whole registers.
  void set_ranges(std::int64_t key0, int count) {
    prim::for_each_row_tile<shape::tile_rows>(rows_, [&]<int Rows>(int first) {
      std::int64_t low = keys_of(first).begin - key0;
      std::int64_t high = keys_of(first + Rows - 1).end - key0;
      low = low < 0 ? 0 : low > count ? count : low;
      high = high > count ? count : high < low ? low : high;
      for (int r = first; r < first + Rows; ++r) {
        scratch_.low[r] = static_cast<int>(low) / shape::width * shape::width;
        scratch_.high[r] =
            high == low ? scratch_.low[r] : round_up(static_cast<int>(high), shape::width);
      }
    });
  }

  prim::row_source<element> rows_from(const void* data, const row_strides& strides,
                                      std::int64_t key0) const {
    return {token_row<const element>(data, strides, seq_.index, seq_.k_begin + key0, kv_head_),
            strides.row};
  }

  void pack_keys(std::int64_t key0, int count) {
    prim::pack_keys<isa_type, words, shape::tile_vectors>(
        rows_from(args_.k, args_.k_strides, key0), count, shape::head_dim(args_), scratch_.k);
  }

  /// Packs the values; returns false if some key's values had to be left out because they are not
  /// finite and a row of the block may not see them (0 * NaN would reach it).
  bool pack_values(std::int64_t key0, int count, bool whole) {
    const auto source = rows_from(args_.v, args_.v_strides, key0);
    const int v_head_dim = shape::v_head_dim(args_);
    const int padded = round_up(count, shape::width);
    const auto pack = [&](const bool* skip) {
      return prim::pack_values<isa_type, words, shape::tile_vectors>(source, count, padded,
                                                                     v_head_dim, skip, scratch_.v);
    };
    if (pack(nullptr) || whole) return true;
    prim::find_nonfinite<isa_type>(source, count, v_head_dim, scratch_.nonfinite);
    static_cast<void>(pack(scratch_.nonfinite));
    return false;
  }

  void multiply_keys(int count, prim::row_source<element> ahead, int next) {
    const int panels = (count + shape::tile_columns - 1) / shape::tile_columns;
    const int depth = prim::words_for<words>(shape::head_dim(args_));
    const float scale = args_.softmax_scale;
    for (int column = 0; column < count; column += shape::tile_columns) {
      const float* panel = scratch_.k + static_cast<std::int64_t>(column) * depth;
      prim::for_each_row_tile<shape::tile_rows>(rows_, [&]<int Rows>(int first) {
        if (column >= scratch_.high[first] || column + shape::tile_columns <= scratch_.low[first]) {
          return;
        }
        const int part = column / shape::tile_columns * rows_ + first;
        ahead.prefetch_parts(next, shape::v_head_dim(args_), part, part + Rows, panels * rows_);
        using tile = prim::register_tile<isa_type, words, Rows, shape::tile_vectors>;
        tile::template product<shape::q_stride>(
            scratch_.q + static_cast<std::int64_t>(first) * shape::q_stride, panel, depth, scale,
            score_row(first) + column, shape::score_stride);
      });
    }
  }

  row_of_scores scores_of(int r, std::int64_t key0, int count) const {
    row_of_scores row;
    row.scores = score_row(r);
    row.at = {seq_.index, head_of(r), query_of(r), 0, query_of(r) + visible_.offset};
    row.key0 = key0;
    row.columns = count;
    row.low = scratch_.low[r];
    row.high = scratch_.high[r];
    const prim::key_interval keys = prim::intersection(
        keys_of(r), {key0 + row.low, key0 + (row.high < count ? row.high : count)});
    row.begin = keys.empty() ? row.high : static_cast<int>(keys.begin - key0);
    row.end = keys.empty() ? row.high : static_cast<int>(keys.end - key0);
    return row;
  }

  void softmax(std::int64_t key0, int count) {
    for (int r = 0; r < rows_; ++r) {
      if (scratch_.high[r] == scratch_.low[r]) continue;
      const row_of_scores row = scores_of(r, key0, count);
      modifiers::apply(args_, hooks_, row);
      scratch_.correction[r] = softmax_row<Row>(args_, row, scratch_.state[r]);
    }
  }

  void multiply_values(int count, prim::row_source<element> ahead, int next) {
    const int out_stride = buffers::out_stride(shape::v_head_dim(args_));
    const int padded = round_up(count, shape::width);
    const int registers = round_up(shape::v_head_dim(args_), shape::width) / shape::width;
    const auto panel_product = [&]<int Vectors>(int vector) {
      const float* panel = scratch_.v + static_cast<std::int64_t>(vector) * shape::width *
                                            (padded / words::per_word);
      prim::for_each_row_tile<shape::tile_rows>(rows_, [&]<int Rows>(int first) {
        const int low = scratch_.low[first] / words::per_word;
        const int high = scratch_.high[first] / words::per_word;
        if (low == high) return;
        const int part = vector * rows_ + first * Vectors;
        ahead.prefetch_parts(next, shape::head_dim(args_), part, part + Rows * Vectors,
                             registers * rows_);
        using tile = prim::register_tile<isa_type, words, Rows, Vectors>;
        tile::template update<shape::score_stride>(
            score_row(first) + low, panel + low * tile::columns, high - low,
            scratch_.correction + first, out_row(first) + vector * shape::width, out_stride);
      });
    };
    int vector = 0;
    for (; vector + shape::tile_vectors <= registers; vector += shape::tile_vectors) {
      panel_product.template operator()<shape::tile_vectors>(vector);
    }
    if (vector < registers) panel_product.template operator()<1>(vector);
  }

  /// Keys kept out by `pack_values`: added row by row, where their weight is not zero.
  void add_nonfinite_values(std::int64_t key0, int count) {
    const auto source = rows_from(args_.v, args_.v_strides, key0);
    for (int key = 0; key < count; ++key) {
      if (!scratch_.nonfinite[key]) continue;
      for (int r = 0; r < rows_; ++r) {
        if (key < scratch_.low[r] || key >= scratch_.high[r]) continue;
        const float weight = words::weight(score_row(r), key);
        if (weight == 0.0f) continue;
        float* out = out_row(r);
        for (int d = 0; d < shape::v_head_dim(args_); ++d) {
          out[d] += weight * static_cast<float>(source.row(key)[d]);
        }
      }
    }
  }

  prim::softmax_result finish_row(int r) {
    const int head = head_of(r);
    const prim::softmax_result result =
        prim::finish_row(scratch_.state[r], args_.sinks + head * args_.sink_head_stride,
                         args_.sink_count, args_.sink_stride, args_.normalize);
    finish(result, first_row_ + r, out_row(r));
    return result;
  }

  void finish(const prim::softmax_result& result, std::int64_t row, const float* accumulated) {
    store_row<Row>(args_, seq_, row / group_, kv_head_ * group_ + static_cast<int>(row % group_),
                   result, accumulated);
  }

  /// Second sweep: scores again, weights exp(s - row maximum) / denominator straight to memory.
  void write_weights(prim::key_interval keys, const prim::softmax_result* results) {
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
      const int count = keys_in_tile(key0, keys.end);
      set_ranges(key0, count);
      pack_keys(key0, count);
      multiply_keys(count, {}, 0);
      for (int r = 0; r < rows_; ++r) {
        const row_of_scores row = scores_of(r, key0, count);
        modifiers::apply(args_, hooks_, row);
        store_weights<Row>(args_, row, results[r]);
      }
    }
  }

  const flash_kernel_args& args_;
  const Hooks& hooks_;
  const buffers& scratch_;
  prim::sequence seq_;
  prim::row_visibility<mask> visible_;
  int group_;
  int kv_head_;
  std::int64_t first_row_;
  int rows_ = 0;
};

}  // namespace tessera::flash
