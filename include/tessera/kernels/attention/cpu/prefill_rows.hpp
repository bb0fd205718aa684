// The query rows of one prefill item against one packed block of keys, one register tile of rows
// after the other: scores, softmax, values. Packing and the order of blocks are in prefill.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention/cpu/finish.hpp>
#include <tessera/kernels/attention/cpu/row_block.hpp>
#include <tessera/kernels/attention/cpu/scores.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/line_queue.hpp>
#include <tessera/prim/cpu/pack.hpp>
#include <tessera/prim/cpu/register_tile.hpp>

namespace tessera::kernels::attention::cpu {

/// Keys [key0, key0 + count) of a sequence and their panels (prim/cpu/pack.hpp).
struct key_block {
  std::int64_t key0 = 0;
  int count = 0;
  float* k = nullptr;         ///< [keys / columns][words][columns]
  float* v = nullptr;         ///< [columns][keys / per_word][...]
  bool* nonfinite = nullptr;  ///< [block_kv]: keys whose values are kept out of the panels
  bool finite = true;         ///< no key is kept out
  prim::tile_visibility seen = prim::tile_visibility::skip;  ///< by the rows of the item
};

/// Scratch memory of one thread: the rows of an item, one register tile of scores, two blocks of
/// keys: one in use, one being packed.
template <class Row>
struct prefill_buffers {
  using shape = traits<Row>;

  float* q;            ///< [rows][q_stride] words
  float* out;          ///< [rows][out_stride]
  float* scores;       ///< [tile_rows][score_stride]
  float* correction;   ///< [tile_rows]
  softmax_rows state;  ///< [rows] each
  float* k[2];
  float* v[2];
  bool* nonfinite[2];

  static constexpr int out_stride(int v_head_dim) {
    return round_up(v_head_dim, shape::width) + shape::padding;
  }

  /// Cuts a 64-byte aligned slice into buffers for `rows` rows. With a null slice only counts its
  /// bytes.
  static std::size_t carve(std::byte* slice, int rows, int head_dim, int v_head_dim,
                           prefill_buffers* buffers) {
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, int count, int stride) {
      *pointer = reinterpret_cast<Element*>(slice + offset);
      const auto elements = static_cast<std::size_t>(count) * static_cast<std::size_t>(stride);
      offset += (elements * sizeof(Element) + 63) / 64 * 64;
    };
    prefill_buffers ignored{};
    prefill_buffers& b = buffers != nullptr ? *buffers : ignored;
    take(&b.q, rows, shape::q_stride);
    take(&b.out, rows, out_stride(v_head_dim));
    take(&b.scores, shape::tile_rows, shape::score_stride);
    take(&b.correction, shape::tile_rows, 1);
    take(&b.state.maximum, rows, 1);
    take(&b.state.denominator, rows, 1);
    for (int i = 0; i < 2; ++i) {
      take(&b.k[i], shape::block_kv, prim::words_for<typename shape::words>(head_dim));
      take(&b.v[i], shape::block_kv, round_up(v_head_dim, shape::width));
      take(&b.nonfinite[i], shape::block_kv, 1);
    }
    return offset;
  }
};

/// Rows [first_row, first_row + rows) of the folded axis.
template <class Row, class Hooks>
class prefill_rows : row_block<Row, Hooks> {
  using base = row_block<Row, Hooks>;
  using base::args_, base::hooks_, base::seq_, base::units_, base::group_, base::first_row_,
      base::rows_;
  using base::head_of, base::keys_of, base::query_of;
  using typename base::element;
  using typename base::isa_type;
  using typename base::modifiers;
  using typename base::shape;
  using typename base::words;
  using buffers = prefill_buffers<Row>;
  static constexpr int width = shape::width;

 public:
  prefill_rows(const attention_kernel_args& args, const Hooks& hooks, const buffers& scratch,
               std::int64_t entry, int kv_head, std::int64_t first_row, int rows)
      : base(args, hooks, entry, kv_head, first_row, rows), scratch_(scratch), most_rows_(rows) {}

  using base::keys_of_all, base::visibility_of, base::all_see, base::rows_from;
  int count() const { return rows_; }
  const prim::sequence& sequence() const { return seq_; }

  /// Rows that the sequence does not use.
  void clear_unused() {
    const bool packed = args_.cu_seqlens_q != nullptr;
    const std::int64_t all = (packed ? seq_.q_len : args_.q_len) * group_ - first_row_;
    for (int r = rows_; r < most_rows_ && r < all; ++r) finish(r, {}, nullptr);
  }

  /// Loads the queries of rows [first, end) and sets their sums to zero.
  void start(int first, int end) {
    for (int r = first; r < end; ++r) {
      base::load_query(r, query_row(r));
      scratch_.state.maximum[r] = prim::minus_infinity;
      scratch_.state.denominator[r] = 0.0f;
      std::memset(out_row(r), 0, static_cast<std::size_t>(out_stride()) * sizeof(float));
    }
  }

  /// Writes rows [first, end).
  void finish(int first, int end) {
    for (int r = first; r < end; ++r) finish(r, result_of(r), out_row(r));
  }

  /// Queues what `start` reads and what `finish` writes.
  void queue_queries(int first, int end, prim::line_queue* lines) const {
    for (int r = first; r < end && r < rows_; ++r) {
      lines->add(base::query(r), shape::head_dim(args_) * std::int64_t{sizeof(element)});
    }
  }
  void queue_outputs(int first, int end, prim::line_queue* lines) const {
    for (int r = first; r < end && r < rows_; ++r) {
      lines->add(base::output(r), shape::v_head_dim(args_) * std::int64_t{sizeof(element)});
    }
  }

  /// Products of one register tile of rows with a whole block.
  int products() const {
    const int value_registers = round_up(shape::v_head_dim(args_), width) / width;
    return shape::block_kv / shape::tile_columns +
           (value_registers + shape::tile_vectors - 1) / shape::tile_vectors;
  }

  /// All rows against the block, one register tile of them after the other. Calls
  /// `work.before(first, end)` and `work.after(first, end)` around each; `lines` has a step for
  /// every product.
  template <class Work>
  void attend(const key_block& block, prim::line_queue& lines, const Work& work) {
    prim::for_each_row_tile<shape::tile_rows>(rows_, [&]<int Rows>(int first) {
      work.before(first, first + Rows);
      prim::tile_visibility seen = block.seen;
      const key_columns columns = columns_of<Rows>(block, first, &seen);
      if (seen != prim::tile_visibility::skip) {
        fetch_rows(first + Rows);
        multiply_keys<Rows>(block, first, columns, lines);
        modify<Rows>(first, columns, seen);
        softmax_tile<Row, Rows>(
            args_, units_, scratch_.scores, columns,
            [&](int r) { return base::position_of(first + r); },
            softmax_rows{scratch_.state.maximum + first, scratch_.state.denominator + first},
            scratch_.correction);
        multiply_values<Rows>(block, first, columns, lines);
        if (!block.finite) add_nonfinite_values<Rows>(block, first, columns);
      }
      work.after(first, first + Rows);
    });
  }

  /// Second sweep, behind the last block of the first: the block's scores again, and
  /// exp(s - row maximum) / denominator straight to memory.
  void write_weights(const key_block& block) {
    prim::for_each_row_tile<shape::tile_rows>(rows_, [&]<int Rows>(int first) {
      prim::tile_visibility seen = block.seen;
      const key_columns columns = columns_of<Rows>(block, first, &seen);
      if (seen == prim::tile_visibility::skip) return;
      prim::line_queue nothing;
      multiply_keys<Rows>(block, first, columns, nothing);
      modify<Rows>(first, columns, seen);
      for (int r = first; r < first + Rows; ++r) {
        store_weights<Row>(args_, base::scores_of(r, score_row(r - first), columns), result_of(r));
      }
    });
  }

 private:
  TESSERA_INLINE int out_stride() const { return buffers::out_stride(shape::v_head_dim(args_)); }
  TESSERA_INLINE float* query_row(int r) const {
    return scratch_.q + std::int64_t{r} * shape::q_stride;
  }
  TESSERA_INLINE float* out_row(int r) const {
    return scratch_.out + std::int64_t{r} * out_stride();
  }
  TESSERA_INLINE float* score_row(int r) const { return scratch_.scores + r * shape::score_stride; }

  /// The columns of the block that some row of the tile sees. `seen`, of the whole item at first,
  /// becomes that of the tile.
  template <int Rows>
  key_columns columns_of(const key_block& block, int first, prim::tile_visibility* seen) const {
    key_columns columns = base::columns_of(first, Rows, block.key0, block.count);
    if (*seen == prim::tile_visibility::partial && columns.begin < columns.end) {
      *seen = base::narrow(first, Rows, &columns);
    }
    if (columns.begin >= columns.end) *seen = prim::tile_visibility::skip;
    columns.low = columns.begin / width * width;
    columns.high = round_up(columns.end, width);
    return columns;
  }

  /// The next tile's queries and sums, on their way from beyond the second-level cache.
  void fetch_rows(int first) const {
    if (first + shape::tile_rows > rows_) return;
    const int q_words = prim::words_for<words>(shape::head_dim(args_));
    for (int r = first; r < first + shape::tile_rows; ++r) {
      for (int i = 0; i < q_words; i += 16) TESSERA_PREFETCH_L2(query_row(r) + i);
      for (int i = 0; i < shape::v_head_dim(args_); i += 16) TESSERA_PREFETCH_L2(out_row(r) + i);
    }
  }

  template <int Rows>
  TESSERA_INLINE void multiply_keys(const key_block& block, int first, key_columns columns,
                                    prim::line_queue& lines) {
    const int depth = prim::words_for<words>(shape::head_dim(args_));
    const int chain = prim::even_chain(depth, shape::score_chain);
    const auto product = [&]<int Vectors>(int column) {
      lines.step();
      const float* panel =
          block.k + std::int64_t{column / shape::tile_columns * shape::tile_columns} * depth +
          column % shape::tile_columns;
      using tile = prim::register_tile<isa_type, words, Rows, Vectors>;
      tile::template product<shape::q_stride, shape::tile_columns>(
          query_row(first), panel, depth, chain, scratch_.scores + column, shape::score_stride);
    };
    int column = columns.low;
    if (column % shape::tile_columns != 0) {
      product.template operator()<1>(column);
      column += width;
    }
    for (; column + shape::tile_columns <= columns.high; column += shape::tile_columns) {
      product.template operator()<shape::tile_vectors>(column);
    }
    if (column < columns.high) product.template operator()<1>(column);
  }

  /// Logits from scores, where anything is to be done about them.
  template <int Rows>
  TESSERA_INLINE void modify(int first, key_columns columns, prim::tile_visibility seen) {
    const bool hides = seen != prim::tile_visibility::full;
    // Whole registers may hold more columns than some row sees.
    const bool whole = !hides && columns.low == columns.begin && columns.high == columns.end &&
                       keys_of(first).end >= columns.key0 + columns.end &&
                       keys_of(first + Rows - 1).begin <= columns.key0 + columns.begin;
    if (whole && !modifiers::changes(args_, units_)) return;
    for (int r = 0; r < Rows; ++r) {
      modifiers::apply(args_, hooks_, units_, base::scores_of(first + r, score_row(r), columns),
                       hides);
    }
  }

  template <int Rows>
  TESSERA_INLINE void multiply_values(const key_block& block, int first, key_columns columns,
                                      prim::line_queue& lines) {
    const int padded = round_up(block.count, width);
    const int registers = round_up(shape::v_head_dim(args_), width) / width;
    const int low = columns.begin / words::per_word;
    const int high = (columns.end + words::per_word - 1) / words::per_word;
    const auto product = [&]<int Vectors>(int vector) {
      lines.step();
      const float* panel = block.v + std::int64_t{vector} * width * (padded / words::per_word);
      using tile = prim::register_tile<isa_type, words, Rows, Vectors>;
      tile::template update<shape::score_stride>(
          scratch_.scores + low, panel + low * tile::columns, high - low, shape::output_chain,
          scratch_.correction, out_row(first) + vector * width, out_stride());
    };
    const int beside = whole_beside_half(registers);
    const int alone = beside < 0 ? registers : registers - 1 - beside;
    int vector = 0;
    for (; vector + shape::tile_vectors <= alone; vector += shape::tile_vectors) {
      product.template operator()<shape::tile_vectors>(vector);
    }
    if (vector < alone) product.template operator()<1>(vector);
    if constexpr (prim::half_registers<isa_type>::present) {
      const float* values = block.v + std::int64_t{vector} * width * padded;
      if (beside == 0) multiply_last<Rows, 0>(values, padded, first, vector, low, high, lines);
      if (beside == 1) multiply_last<Rows, 1>(values, padded, first, vector, low, high, lines);
      if (beside == 2) multiply_last<Rows, 2>(values, padded, first, vector, low, high, lines);
    }
  }

  /// How many whole registers share a tile with the last one, which is at most half full; -1 where
  /// it is fuller or there are no half registers.
  TESSERA_INLINE int whole_beside_half(int registers) const {
    if constexpr (!prim::half_registers<isa_type>::present) return -1;
    if (shape::v_head_dim(args_) - (registers - 1) * width > width / 2) return -1;
    return registers == 1 ? 0 : registers % shape::tile_vectors == 0 ? 1 : 2;
  }

  /// The last registers of values, `Whole` and a half one, from register `vector` on, at `values`.
  template <int Rows, int Whole>
  TESSERA_INLINE void multiply_last(const float* values, int padded, int first, int vector, int low,
                                    int high, prim::line_queue& lines) {
    static_assert(shape::tile_vectors == 2);
    // Two whole registers fill their panel, and the half one lies in a panel of its own.
    constexpr int stride = Whole == 0 ? width : 2 * width;
    constexpr int rest_stride = Whole == 1 ? 2 * width : width;
    const float* rest = Whole == 1 ? values + width : values + std::int64_t{Whole} * width * padded;
    // Sums, a row of values and a broadcast must fit the 32 registers.
    constexpr int parts = Rows * (Whole + 1) + Whole + 2 <= 32 ? 1 : 2;
    constexpr int rows = Rows / parts;
    static_assert(rows * parts == Rows);
    using tile = prim::register_tile_and_half<isa_type, rows, Whole>;
    for (int r = 0; r < Rows; r += rows) {
      lines.step();
      tile::template update<shape::score_stride, stride, rest_stride>(
          scratch_.scores + r * shape::score_stride + low, values + low * stride,
          rest + low * rest_stride, high - low, shape::output_chain, scratch_.correction + r,
          out_row(first + r) + vector * width, out_stride());
    }
  }

  /// Keys whose values stayed out of the panels: added row by row, where their weight is not zero.
  template <int Rows>
  void add_nonfinite_values(const key_block& block, int first, key_columns columns) {
    const auto values = rows_from(args_.v, args_.v_strides, block.key0);
    for (int key = columns.begin; key < columns.end; ++key) {
      if (!block.nonfinite[key]) continue;
      for (int r = 0; r < Rows; ++r) {
        const float weight = words::weight(score_row(r), key);
        if (weight == 0.0f) continue;
        float* out = out_row(first + r);
        for (int d = 0; d < shape::v_head_dim(args_); ++d) {
          out[d] += weight * static_cast<float>(values.row(key)[d]);
        }
      }
    }
  }

  prim::softmax_result result_of(int r) const {
    const int head = head_of(r);
    const prim::softmax_state state{scratch_.state.maximum[r], scratch_.state.denominator[r]};
    return prim::finish_row(units_.natural(state), args_.sinks + head * args_.sink_head_stride,
                            args_.sink_count, args_.sink_stride, args_.normalize);
  }

  void finish(int r, const prim::softmax_result& result, const float* accumulated) {
    store_row<Row>(args_, seq_, query_of(r), head_of(r), result, accumulated);
  }

  const buffers& scratch_;
  int most_rows_;
};

}  // namespace tessera::kernels::attention::cpu
