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
#include <tessera/kernels/flash_attention/row_block.hpp>
#include <tessera/kernels/flash_attention/scores.hpp>
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
class prefill_item : row_block<Row, Hooks> {
  using base = row_block<Row, Hooks>;
  using base::args_, base::hooks_, base::seq_, base::group_, base::kv_head_, base::first_row_,
      base::rows_;
  using base::head_of, base::keys_in_tile, base::keys_of, base::rows_from;
  using typename base::element;
  using typename base::isa_type;
  using typename base::modifiers;
  using typename base::shape;
  using typename base::words;
  using buffers = prefill_buffers<Row>;

 public:
  prefill_item(const flash_kernel_args& args, const Hooks& hooks, const buffers& scratch,
               std::int64_t entry, int kv_head, std::int64_t first_row)
      : base(args, hooks, entry, kv_head, first_row), scratch_(scratch) {}

  /// Computes rows [first_row, first_row + block_q) of the folded (query, head-in-group) axis.
  void run() {
    const bool packed = args_.cu_seqlens_q != nullptr;
    const std::int64_t all = (packed ? seq_.q_len : args_.q_len) * group_ - first_row_;
    for (int r = rows_; r < shape::block_q && r < all; ++r) finish(r, {}, nullptr);
    if (rows_ == 0) return;

    load_queries();
    const prim::key_interval keys = base::keys_of_all();
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
  TESSERA_INLINE float* score_row(int r) const {
    return scratch_.scores + static_cast<std::int64_t>(r) * shape::score_stride;
  }
  TESSERA_INLINE float* out_row(int r) const {
    return scratch_.out +
           static_cast<std::int64_t>(r) * buffers::out_stride(shape::v_head_dim(args_));
  }

  void load_queries() {
    const int out_stride = buffers::out_stride(shape::v_head_dim(args_));
    for (int r = 0; r < rows_; ++r) {
      base::load_query(r, scratch_.q + static_cast<std::int64_t>(r) * shape::q_stride);
      scratch_.state[r] = {};
    }
    std::memset(scratch_.out, 0, static_cast<std::size_t>(rows_ * out_stride) * sizeof(float));
  }

  /// One key block: keys [key0, key0 + count). No hardware prefetcher follows rows that are pages
  /// apart, so each product fetches what the next step packs: the values of this block, then the
  /// `next` keys behind it. No more than that is in flight, because rows a power of two apart share
  /// few cache sets.
  void attend(std::int64_t key0, int count, int next) {
    const prim::tile_visibility seen = base::visibility_of(key0, count);
    if (seen == prim::tile_visibility::skip) return;
    set_ranges(key0, count);
    pack_keys(key0, count);
    multiply_keys(count, rows_from(args_.v, args_.v_strides, key0), count);
    const bool finite = pack_values(key0, count, base::all_see(seen, key0, count));
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
    return base::scores_of(r, score_row(r), key0, count, scratch_.low[r], scratch_.high[r]);
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
    finish(r, result, out_row(r));
    return result;
  }

  void finish(int r, const prim::softmax_result& result, const float* accumulated) {
    store_row<Row>(args_, seq_, base::query_of(r), head_of(r), result, accumulated);
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

  const buffers& scratch_;
};

}  // namespace tessera::flash
