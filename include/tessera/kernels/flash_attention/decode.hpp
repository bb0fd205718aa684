// Flash attention forward on the CPU, decode: few query rows against many keys. Bound by reading K
// and V once, so nothing is packed: scores are dot products over rows as they lie, values are added
// row by row. The keys are cut into splits of fixed length, one work item each, whose partial
// softmax states are merged afterwards ("Flash-Decoding", T. Dao et al., 2023). The split length
// does not depend on threads or batch, so neither do the bits of a result.
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

/// How the keys of one sequence are cut: at least 512 keys a split, at most 32 splits.
struct key_splits {
  std::int64_t count = 1;
  std::int64_t keys = 0;  ///< of each split but the last

  static constexpr std::int64_t most = 32;
  static constexpr std::int64_t least_keys = 512;

  /// No sequence of at most `k_len` keys has more splits than this.
  static constexpr std::int64_t room_for(std::int64_t k_len) {
    const std::int64_t wanted = (k_len + least_keys - 1) / least_keys;
    return wanted < 1 ? 1 : wanted > most ? most : wanted;
  }

  static constexpr key_splits of(std::int64_t k_len) {
    if (k_len == 0) return {1, least_keys};
    const std::int64_t count = room_for(k_len);
    // Whole cache lines of keys, and no split left empty by the rounding.
    const std::int64_t keys = ((k_len + count - 1) / count + 63) / 64 * 64;
    return {(k_len + keys - 1) / keys, keys};
  }
};

/// Scratch memory of one thread in the decode loop.
template <class Row>
struct decode_buffers {
  using shape = traits<Row>;
  float* q;       ///< [block_q][q_stride] words
  float* scores;  ///< [block_q][score_stride]

  static constexpr std::size_t bytes =
      (static_cast<std::size_t>(shape::block_q * (shape::q_stride + shape::score_stride)) *
           sizeof(float) +
       63) /
      64 * 64;

  static decode_buffers at(std::byte* slice) {
    auto* q = reinterpret_cast<float*>(slice);
    return {q, q + shape::block_q * shape::q_stride};
  }
};

/// What the splits leave for the merge: per token, query head and split a sum of `stride` floats
/// and a state. Tokens of packed tensors count through all sequences, those of dense ones through
/// the entries.
struct split_results {
  float* sums = nullptr;
  prim::softmax_state* states = nullptr;
  std::int64_t splits = 0;  ///< room for each row
  int q_heads = 0;
  int stride = 0;

  std::int64_t index(std::int64_t token, int head, std::int64_t split) const {
    return (token * q_heads + head) * splits + split;
  }
  float* sum(std::int64_t i) const { return sums + i * stride; }
  prim::softmax_state& state(std::int64_t i) const { return states[i]; }
};

/// Position of a row among the tokens of a launch.
TESSERA_INLINE std::int64_t token_of(const flash_kernel_args& args, const prim::sequence& seq,
                                     std::int64_t query) {
  return args.cu_seqlens_q != nullptr ? seq.q_begin + query : seq.index * args.q_len + query;
}

/// One work item on one thread: rows [first_row, first_row + block_q) of the folded axis against
/// one split of the keys.
template <class Row, class Hooks>
class decode_item : row_block<Row, Hooks> {
  using base = row_block<Row, Hooks>;
  using base::args_, base::hooks_, base::seq_, base::rows_;
  using base::head_of, base::keys_in_tile, base::query_of, base::rows_from;
  using typename base::element;
  using typename base::isa_type;
  using typename base::modifiers;
  using typename base::shape;
  using typename base::words;
  using reader = prim::word_reader<words>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  static constexpr int width = shape::width;
  /// Query rows and value registers of a register tile. Rows times keys of a score tile make one
  /// register of sums.
  static constexpr int most_rows = width / 4;
  static constexpr int value_vectors = 4;

 public:
  decode_item(const flash_kernel_args& args, const Hooks& hooks, const decode_buffers<Row>& scratch,
              std::int64_t entry, int kv_head, std::int64_t first_row)
      : base(args, hooks, entry, kv_head, first_row), scratch_(scratch) {}

  void run(std::int64_t split, const split_results& results) {
    if (rows_ == 0) return;
    const key_splits splits = key_splits::of(seq_.k_len);
    if (split >= splits.count) return;
    for (int r = 0; r < rows_; ++r) {
      const std::int64_t i = results.index(token_of(args_, seq_, query_of(r)), head_of(r), split);
      sum_[r] = results.sum(i);
      state_[r] = &results.state(i);
      *state_[r] = {};
      std::memset(sum_[r], 0, static_cast<std::size_t>(results.stride) * sizeof(float));
    }
    const prim::key_interval keys =
        prim::intersection(base::keys_of_all(), {split * splits.keys, (split + 1) * splits.keys});
    if (keys.empty()) return;
    for (int r = 0; r < rows_; ++r) base::load_query(r, scratch_.q + r * shape::q_stride);
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
      const int count = keys_in_tile(key0, keys.end);
      const int next = keys_in_tile(key0 + count, keys.end);
      attend(key0, count, next, results.stride);
    }
  }

 private:
  TESSERA_INLINE float* score_row(int r) const { return scratch_.scores + r * shape::score_stride; }

  /// Keys [key0, key0 + count); the `next` keys behind them follow.
  void attend(std::int64_t key0, int count, int next, int stride) {
    const prim::tile_visibility seen = base::visibility_of(key0, count);
    if (seen == prim::tile_visibility::skip) return;
    const auto keys = rows_from(args_.k, args_.k_strides, key0);
    const auto values = rows_from(args_.v, args_.v_strides, key0);
    prim::for_each_row_tile<most_rows>(
        rows_, [&]<int Rows>(int first) { multiply_keys<Rows>(keys, values, count, first); });

    for (int r = 0; r < rows_; ++r) {
      const row_of_scores row =
          base::scores_of(r, score_row(r), key0, count, 0, round_up(count, width));
      modifiers::apply(args_, hooks_, row);
      const float correction = softmax_row<Row>(args_, row, *state_[r]);
      if (correction == 1.0f) continue;
      for (int d = 0; d < stride; d += width) {
        vec::store(sum_[r] + d, vec::mul(vec::load(sum_[r] + d), vec::broadcast(correction)));
      }
    }
    if (!base::all_see(seen, key0, count) && holds_nonfinite(values, count)) {
      add_seen_values(values, count);
      return;
    }
    prim::for_each_row_tile<most_rows>(
        rows_, [&]<int Rows>(int first) { add_values<Rows>(values, keys, count, next, first); });
  }

  /// Scores of rows [first, first + Rows): Rows x (width / Rows) dot products at a time. Meanwhile
  /// the values of the same keys are fetched.
  template <int Rows>
  TESSERA_INLINE void multiply_keys(prim::row_source<element> keys,
                                    prim::row_source<element> values, int count, int first) {
    constexpr int at_once = width / Rows;
    const int head_dim = shape::head_dim(args_);
    const float* q = scratch_.q + first * shape::q_stride;
    const float scale = args_.softmax_scale;
    for (int key = 0; key < count; key += at_once) {
      const element* row[at_once];
      TESSERA_UNROLL
      for (int k = 0; k < at_once; ++k) {
        row[k] = keys.row(key + k < count ? key + k : count - 1);
        if (first == 0 && key + k < count) values.prefetch(key + k, shape::v_head_dim(args_));
      }
      reg acc[width];
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) acc[i] = vec::zero();
      // One key after the other: memory is read in the order in which it lies.
      TESSERA_UNROLL
      for (int k = 0; k < at_once; ++k) {
        const auto step = [&](int d, reg x) {
          TESSERA_UNROLL
          for (int r = 0; r < Rows; ++r) {
            const reg query = vec::load(q + r * shape::q_stride + d / words::per_word);
            acc[r * at_once + k] = words::multiply_add(query, x, acc[r * at_once + k]);
          }
        };
        int d = 0;
        for (; d + reader::elements <= head_dim; d += reader::elements) {
          step(d, reader::read(row[k] + d));
        }
        if (d < head_dim) step(d, reader::read(row[k] + d, head_dim - d));
      }
      float sums[width];
      vec::store(sums, vec::mul(vec::sums(acc), vec::broadcast(scale)));
      for (int r = 0; r < Rows; ++r) {
        std::memcpy(score_row(first + r) + key, sums + r * at_once, at_once * sizeof(float));
      }
    }
  }

  /// sum[r] += sum over keys of weight[r, key] * value[key], four registers of columns at a time.
  /// Meanwhile the `next` keys behind the tile are fetched.
  template <int Rows>
  TESSERA_INLINE void add_values(prim::row_source<element> values, prim::row_source<element> keys,
                                 int count, int next, int first) {
    const int v_head_dim = shape::v_head_dim(args_);
    const auto fetched = [&](int d) { return first == 0 && d == 0 ? next : 0; };
    int d = 0;
    for (; d + value_vectors * width <= v_head_dim; d += value_vectors * width) {
      add_columns<Rows, value_vectors>(values, keys, count, fetched(d), first, d,
                                       value_vectors * width);
    }
    for (; d < v_head_dim; d += width) {
      add_columns<Rows, 1>(values, keys, count, fetched(d), first, d, v_head_dim - d);
    }
  }

  template <int Rows, int Vectors>
  TESSERA_INLINE void add_columns(prim::row_source<element> values, prim::row_source<element> keys,
                                  int count, int next, int first, int d, int columns) {
    reg acc[Rows][Vectors];
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::load(sum_[first + r] + d + v * width);
    }
    for (int key = 0; key < count; ++key) {
      if (key < next) keys.prefetch(count + key, shape::head_dim(args_));
      const element* row = values.row(key) + d;
      reg x[Vectors];
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        x[v] = Vectors * width <= columns ? vec::load_as(row + v * width)
                                          : vec::load_as_n(row + v * width, columns - v * width);
      }
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const reg weight = vec::broadcast(words::weight(score_row(first + r), key));
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::fma(weight, x[v], acc[r][v]);
      }
    }
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) vec::store(sum_[first + r] + d + v * width, acc[r][v]);
    }
  }

  bool holds_nonfinite(prim::row_source<element> values, int count) const {
    const int v_head_dim = shape::v_head_dim(args_);
    reg sum = vec::zero();
    for (int key = 0; key < count; ++key) {
      for (int d = 0; d < v_head_dim; d += width) {
        const reg x = v_head_dim - d >= width ? vec::load_as(values.row(key) + d)
                                              : vec::load_as_n(values.row(key) + d, v_head_dim - d);
        sum = vec::fma(x, vec::zero(), sum);
      }
    }
    return vec::sum(sum) != 0.0f;
  }

  /// The same sums, leaving out keys of weight zero, so that NaN in hidden values stays there.
  void add_seen_values(prim::row_source<element> values, int count) {
    for (int r = 0; r < rows_; ++r) {
      for (int key = 0; key < count; ++key) {
        const float weight = words::weight(score_row(r), key);
        if (weight == 0.0f) continue;
        for (int d = 0; d < shape::v_head_dim(args_); ++d) {
          sum_[r][d] += weight * static_cast<float>(values.row(key)[d]);
        }
      }
    }
  }

  const decode_buffers<Row>& scratch_;
  float* sum_[shape::block_q];  ///< of this split, one per row
  prim::softmax_state* state_[shape::block_q];
};

/// Merges the splits of one row and writes it. `accumulated` has room for results.stride floats.
template <class Row>
void merge_splits(const flash_kernel_args& args, const prim::sequence& seq, std::int64_t query,
                  int head, const split_results& results, float* accumulated) {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  const std::int64_t first = results.index(token_of(args, seq, query), head, 0);
  const std::int64_t end = first + key_splits::of(seq.k_len).count;
  prim::softmax_state merged;
  for (std::int64_t i = first; i < end; ++i) {
    const float maximum = results.state(i).maximum;
    merged.maximum = maximum > merged.maximum || maximum != maximum ? maximum : merged.maximum;
  }
  const float shift = prim::finite_maximum(merged.maximum);
  std::memset(accumulated, 0, static_cast<std::size_t>(results.stride) * sizeof(float));
  for (std::int64_t i = first; i < end; ++i) {
    const prim::softmax_state& part = results.state(i);
    if (part.maximum == prim::minus_infinity && part.denominator == 0.0f) continue;
    const float factor = part.maximum == merged.maximum
                             ? 1.0f
                             : prim::exp_of<typename shape::isa_type>(part.maximum - shift);
    merged.denominator += factor * part.denominator;
    for (int d = 0; d < results.stride; d += shape::width) {
      const auto sum = vec::fma(vec::broadcast(factor), vec::load(results.sum(i) + d),
                                vec::load(accumulated + d));
      vec::store(accumulated + d, sum);
    }
  }
  const auto result = prim::finish_row(merged, args.sinks + head * args.sink_head_stride,
                                       args.sink_count, args.sink_stride, args.normalize);
  store_row<Row>(args, seq, query, head, result, accumulated);
}

}  // namespace tessera::flash
