// The query rows of one key/value head in the decode loop: scores and values of a few keys at a
// time, as they lie in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/kernels/attention/cpu/decode_splits.hpp>
#include <tessera/kernels/attention/cpu/row_block.hpp>
#include <tessera/kernels/attention/cpu/scores.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/pack.hpp>
#include <tessera/prim/cpu/register_tile.hpp>

namespace tessera::kernels::attention::cpu {

/// Scratch memory of one head of a decode item.
template <class Row>
struct decode_buffers {
  using shape = traits<Row>;
  float* q;            ///< [rows][q_stride] words
  float* scores;       ///< [rows][score_stride]
  float* sums;         ///< [rows][sum_stride], columns in the order of the words' values
  float* correction;   ///< [rows]
  softmax_rows state;  ///< [rows] each

  static constexpr int sum_stride(int v_head_dim) {
    return round_up(v_head_dim, shape::words::per_word * shape::width);
  }
  static constexpr std::size_t bytes(int rows, int v_head_dim) {
    const int floats = rows * (shape::q_stride + shape::score_stride + sum_stride(v_head_dim) + 3);
    return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
  }
  static decode_buffers at(std::byte* slice, int rows, int v_head_dim) {
    decode_buffers b;
    b.q = reinterpret_cast<float*>(slice);
    b.scores = b.q + rows * shape::q_stride;
    b.sums = b.scores + rows * shape::score_stride;
    b.correction = b.sums + rows * sum_stride(v_head_dim);
    b.state = {b.correction + rows, b.correction + 2 * rows};
    return b;
  }
};

/// Columns [column, column + count) of a tile of scores. Column column + i is key
/// first + i * distance.
template <class Element>
struct decode_step {
  std::int64_t first = 0;
  std::int64_t distance = 1;
  int column = 0;
  int count = 0;
  const Element* const* ahead = nullptr;  ///< for each key a row to ask for meanwhile; or null
};

template <class Row, class Hooks>
class decode_head : row_block<Row, Hooks> {
  using base = row_block<Row, Hooks>;
  using base::args_, base::hooks_, base::seq_, base::units_, base::rows_;
  using base::head_of, base::query_of;
  using typename base::element;
  using typename base::isa_type;
  using typename base::modifiers;
  using typename base::shape;
  using typename base::words;
  using reader = prim::word_reader<words>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  static constexpr int width = shape::width;

 public:
  /// Keys of one head that are multiplied before the next head's. Few of them keep to the order of
  /// memory. Many spare the sums, which are read and written once a step, where the sums of all
  /// heads crowd the first-level cache.
  static constexpr int few_keys = sizeof(element) == 4 ? 8 : 4;
  static constexpr int many_keys = words::per_word == 1 ? 8 : 16;
  static constexpr int most_rows = width / 4;  ///< of a register tile
  using step = decode_step<element>;

  decode_head(const attention_kernel_args& args, const Hooks& hooks,
              const decode_buffers<Row>& scratch, std::int64_t entry, int kv_head,
              std::int64_t first_row)
      : base(args, hooks, entry, kv_head, first_row, shape::block_q), scratch_(scratch) {}

  using base::keys_of_all, base::visibility_of, base::rows_from;
  int rows() const { return rows_; }
  const prim::sequence& sequence() const { return seq_; }

  /// True if every row sees keys [begin, begin + count) and nothing but the softmax looks at their
  /// scores, so that their order is free.
  bool frees_order_of(std::int64_t begin, int count) const {
    if (modifiers::changes(args_, units_) || modifiers::may_hide(args_)) return false;
    if (shape::has(attention_feature::dropout) && args_.dropout) return false;
    return base::all_see(base::visibility_of(begin, count), begin, count);
  }

  void start() {
    for (int r = 0; r < rows_; ++r) {
      base::load_query(r, scratch_.q + r * shape::q_stride);
      scratch_.state.maximum[r] = prim::minus_infinity;
      scratch_.state.denominator[r] = 0.0f;
    }
    std::memset(scratch_.sums, 0, static_cast<std::size_t>(rows_ * sum_stride()) * sizeof(float));
  }

  /// Leaves the rows' sums and states as results of split `split`.
  void finish(std::int64_t split, const split_results& results) const {
    for (int r = 0; r < rows_; ++r) {
      const std::int64_t i = results.index(token_of(args_, seq_, query_of(r)), head_of(r), split);
      std::memcpy(results.sum(i), sum_row(r),
                  static_cast<std::size_t>(results.stride) * sizeof(float));
      results.state(i) = units_.natural({scratch_.state.maximum[r], scratch_.state.denominator[r]});
    }
  }

  /// Scores of a step of at most `Keys` keys.
  template <int Keys>
  void multiply_keys(const step& at) const {
    const auto keys = rows_of(args_.k, args_.k_strides, at);
    if (at.count == Keys) {
      all_keys<Keys>(keys, at, std::integral_constant<int, Keys>{});
    } else {
      all_keys<Keys>(keys, at, at.count);
    }
  }

  /// Scores of keys [key0, key0 + count) become weights.
  void softmax(std::int64_t key0, int count, prim::tile_visibility seen) const {
    const key_columns columns{key0, count, 0, count, 0, round_up(count, width)};
    const bool whole = seen == prim::tile_visibility::full && count % width == 0 &&
                       base::all_see(seen, key0, count) && !modifiers::changes(args_, units_);
    prim::for_each_row_tile<softmax_row_count>(rows_, [&]<int Rows>(int first) {
      for (int r = first; r < first + Rows && !whole; ++r) {
        modifiers::apply(args_, hooks_, units_, base::scores_of(r, score_row(r), columns),
                         seen != prim::tile_visibility::full);
      }
      softmax_tile<Row, Rows>(
          args_, units_, score_row(first), columns,
          [&](int r) { return base::position_of(first + r); },
          softmax_rows{scratch_.state.maximum + first, scratch_.state.denominator + first},
          scratch_.correction + first);
    });
    for (int r = 0; r < rows_; ++r) {
      if (scratch_.correction[r] == 1.0f) continue;
      const reg factor = vec::broadcast(scratch_.correction[r]);
      float* sum = sum_row(r);
      for (int d = 0; d < sum_stride(); d += width) {
        vec::store(sum + d, vec::mul(vec::load(sum + d), factor));
      }
    }
  }

  /// Sums of a step of at most `Keys` keys.
  template <int Keys>
  void multiply_values(const step& at) const {
    const auto values = rows_of(args_.v, args_.v_strides, at);
    prim::for_each_row_tile<most_rows>(rows_, [&]<int Rows>(int first) {
      if (at.count == Keys) {
        tile_values<Rows, Keys>(values, at.ahead, Keys, first, at.column);
        return;
      }
      for (int k = 0; k < at.count; k += words::per_word) {
        tile_values<Rows, words::per_word>({values.row(k), values.stride}, at.ahead + k,
                                           at.count - k, first, at.column + k);
      }
    });
  }

  /// True if a hidden key's weight of 0 would meet a value that is not finite.
  bool hides_nonfinite(std::int64_t key0, int count, prim::tile_visibility seen) const {
    if (base::all_see(seen, key0, count)) return false;
    const auto values = base::rows_from(args_.v, args_.v_strides, key0);
    const int v_head_dim = shape::v_head_dim(args_);
    reg bits = vec::zero();
    for (int key = 0; key < count; ++key) {
      for (int d = 0; d < v_head_dim; d += width) {
        const reg x = v_head_dim - d >= width ? vec::load_as(values.row(key) + d)
                                              : vec::load_as_n(values.row(key) + d, v_head_dim - d);
        bits = vec::bit_or(bits, vec::mul(x, vec::zero()));
      }
    }
    return vec::sum(bits) != 0.0f;
  }

  /// The sums of a whole tile, leaving out keys of weight zero.
  void add_seen_values(std::int64_t key0, int count) const {
    const auto values = base::rows_from(args_.v, args_.v_strides, key0);
    for (int r = 0; r < rows_; ++r) {
      for (int key = 0; key < count; ++key) {
        const float weight = words::weight(score_row(r), key);
        if (weight == 0.0f) continue;
        float* sum = sum_row(r);
        for (int d = 0; d < shape::v_head_dim(args_); ++d) {
          sum[words::value_column(d)] += weight * static_cast<float>(values.row(key)[d]);
        }
      }
    }
  }

 private:
  static constexpr int elements_of_line = 64 / static_cast<int>(sizeof(element));
  static constexpr int softmax_row_count = width < 8 ? width : 8;

  TESSERA_INLINE int sum_stride() const {
    return decode_buffers<Row>::sum_stride(shape::v_head_dim(args_));
  }
  TESSERA_INLINE prim::row_source<element> rows_of(const void* data, const row_strides& strides,
                                                   const step& at) const {
    const prim::row_source<element> rows = base::rows_from(data, strides, at.first);
    return {rows.data, rows.stride * at.distance};
  }
  TESSERA_INLINE float* score_row(int r) const { return scratch_.scores + r * shape::score_stride; }
  TESSERA_INLINE float* sum_row(int r) const { return scratch_.sums + r * sum_stride(); }

  static constexpr int most_keys_of_tile(int keys) { return keys < few_keys ? keys : few_keys; }
  /// Rows times keys of a score tile make at most one register of sums.
  template <int Rows, int Keys>
  static constexpr int keys_of_tile = width / Rows < most_keys_of_tile(Keys)
                                          ? width / Rows
                                          : most_keys_of_tile(Keys);
  /// Steps of streams alone come without requests: the others are spared the question, which costs
  /// their loops registers.
  template <int Keys>
  static constexpr bool always_asks = Keys != key_streams::count;

  /// `count` is an int or, for whole steps, an integral_constant.
  template <int Keys, class Count>
  TESSERA_INLINE void all_keys(prim::row_source<element> keys, const step& at, Count count) const {
    prim::for_each_row_tile<most_rows>(rows_, [&]<int Rows>(int first) {
      const float* q = scratch_.q + first * shape::q_stride;
      float* scores = score_row(first) + at.column;
      constexpr int keys_at_once = keys_of_tile<Rows, Keys>;
      const element* row[keys_at_once];
      for (int key = 0; key < count; key += keys_at_once) {
        TESSERA_UNROLL
        for (int k = 0; k < keys_at_once; ++k) {
          row[k] = keys.row(count % keys_at_once == 0 || key + k < count ? key + k : count - 1);
        }
        const element* const* ahead =
            always_asks<Keys> || at.ahead != nullptr ? at.ahead + key : nullptr;
        tile_keys<Rows, keys_at_once, Keys>(row, ahead, q, scores + key);
      }
    });
  }

  /// scores[r, k] = q[r] . key[k].
  template <int Rows, int Keys, int KeysOfStep>
  TESSERA_INLINE void tile_keys(const element* const (&row)[Keys], const element* const* ahead,
                                const float* q, float* scores) const {
    const int head_dim = shape::head_dim(args_);
    reg acc[width];
    TESSERA_UNROLL
    for (int i = 0; i < width; ++i) acc[i] = vec::zero();
    const auto slice = [&](int d, const auto& load) {
      reg query[Rows];
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        query[r] = vec::load(q + r * shape::q_stride + d / words::per_word);
      }
      TESSERA_UNROLL
      for (int k = 0; k < Keys; ++k) {
        if (d % elements_of_line == 0 && (always_asks<KeysOfStep> || ahead != nullptr)) {
          TESSERA_PREFETCH_L2(ahead[k] + d);
        }
        const reg x = load(row[k] + d);
        TESSERA_UNROLL
        for (int r = 0; r < Rows; ++r) {
          acc[r * Keys + k] = words::multiply_add(query[r], x, acc[r * Keys + k]);
        }
      }
    };
    int d = 0;
    for (; d + elements_of_line <= head_dim; d += elements_of_line) {
      TESSERA_UNROLL
      for (int e = 0; e < elements_of_line; e += reader::elements) {
        slice(d + e, [](const element* p) { return reader::read(p); });
      }
    }
    for (; d < head_dim; d += reader::elements) {
      slice(d, [&](const element* p) { return reader::read(p, head_dim - d); });
    }
    float sums[width];
    vec::store(sums, vec::sums(acc));
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      std::memcpy(scores + r * shape::score_stride, sums + r * Keys, Keys * sizeof(float));
    }
  }

  /// The weights of a step's words, broadcast: as many as registers are free, else from memory.
  template <int Rows, int Words>
  struct step_weights {
    static constexpr int most = width < 16 ? 4 : 16;
    static constexpr int kept_words = most / Rows < Words ? most / Rows : Words;
    const float* weights;  ///< [Rows][score_stride]
    reg kept[Rows][kept_words];

    explicit TESSERA_INLINE step_weights(const float* memory) : weights(memory) {
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        TESSERA_UNROLL
        for (int k = 0; k < kept_words; ++k) kept[r][k] = from_memory(r, k);
      }
    }
    TESSERA_INLINE reg from_memory(int r, int k) const {
      return vec::broadcast(weights[r * shape::score_stride + k]);
    }
    TESSERA_INLINE reg of(int r, int k) const {
      return k < kept_words ? kept[r][k] : from_memory(r, k);
    }
  };

  /// sum[r] += sum over keys [key, key + count) of weight[r, key] * value[key], where `count` is
  /// at most Keys and less only if Keys is a word's.
  template <int Rows, int Keys>
  TESSERA_INLINE void tile_values(prim::row_source<element> values, const element* const* ahead,
                                  int count, int first, int key) const {
    constexpr int words_of_step = Keys / words::per_word;
    const step_weights<Rows, words_of_step> weight(score_row(first) + key / words::per_word);
    const int columns = shape::v_head_dim(args_);
    int d = 0;
    for (; d + elements_of_line <= columns; d += elements_of_line) {
      add_line<Rows, elements_of_line / width>(values, ahead, count, weight, first, d,
                                               elements_of_line);
    }
    for (; d < columns; d += words::per_word * width) {
      add_line<Rows, words::per_word>(values, ahead, count, weight, first, d, columns - d);
    }
  }

  /// The same for `columns` columns from d on, at most `Registers` registers.
  template <int Rows, int Registers, int Words>
  TESSERA_INLINE void add_line(prim::row_source<element> values, const element* const* ahead,
                               int count, const step_weights<Rows, Words>& weight, int first, int d,
                               int columns) const {
    float* sums = sum_row(first) + d;
    const int stride = sum_stride();
    reg acc[Rows][Registers];
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Registers; ++v) acc[r][v] = vec::load(sums + r * stride + v * width);
    }
    TESSERA_UNROLL
    for (int k = 0; k < Words; ++k) {
      const element* row[words::per_word];
      TESSERA_UNROLL
      for (int i = 0; i < words::per_word; ++i) {
        const int key = k * words::per_word + i;
        row[i] = key < count ? values.row(key) + d : nullptr;
        if (key < count && (always_asks<Words * words::per_word> || ahead != nullptr)) {
          TESSERA_PREFETCH_L2(ahead[key] + d);
        }
      }
      reg x[Registers];
      reader::template read_value_words<Registers>(row, columns, x);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const reg factor = weight.of(r, k);
        TESSERA_UNROLL
        for (int v = 0; v < Registers; ++v) {
          acc[r][v] = words::multiply_add(factor, x[v], acc[r][v]);
        }
      }
    }
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Registers; ++v) vec::store(sums + r * stride + v * width, acc[r][v]);
    }
  }

  const decode_buffers<Row>& scratch_;
};

}  // namespace tessera::kernels::attention::cpu
