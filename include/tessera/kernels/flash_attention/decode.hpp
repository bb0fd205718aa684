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
#include <tessera/kernels/flash_attention/scores.hpp>
#include <tessera/kernels/flash_attention/tiles.hpp>
#include <tessera/kernels/flash_attention/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/pack.hpp>
#include <tessera/prim/cpu/register_tile.hpp>

namespace tessera::flash {

/// Keys of one split.
inline constexpr std::int64_t split_keys = 512;

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

/// What a split leaves for the merge: [rows][out_stride] sums and [rows] states.
struct split_result {
  float* out;
  prim::softmax_state* state;
};

/// One work item on one thread: rows [first_row, first_row + block_q) of the folded axis against
/// one split of the keys.
template <class Row, class Hooks>
class decode_item {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using reader = prim::word_reader<words>;
  using element = typename shape::element;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  using modifiers = score_modifiers<Row, Hooks>;
  static constexpr int width = shape::width;
  static constexpr mask_mode mask = shape::config.mask;
  /// Query rows and value registers of a register tile. Rows times keys of a score tile make one
  /// register of sums.
  static constexpr int most_rows = width / 4;
  static constexpr int value_vectors = 4;

 public:
  decode_item(const flash_kernel_args& args, const Hooks& hooks, const decode_buffers<Row>& scratch,
              std::int64_t entry, int kv_head, std::int64_t first_row)
      : args_(args),
        hooks_(hooks),
        scratch_(scratch),
        seq_(prim::sequence_of(args, entry)),
        visible_(prim::row_visibility<mask>::of(args, seq_)),
        group_(group_of(args)),
        kv_head_(kv_head),
        first_row_(first_row) {
    const std::int64_t used = seq_.q_len * group_ - first_row;
    rows_ = used < shape::block_q ? static_cast<int>(used) : shape::block_q;
  }

  void run(std::int64_t split, const split_result& result, int out_stride) {
    for (int r = 0; r < rows_; ++r) result.state[r] = {};
    if (rows_ <= 0) return;
    const prim::key_interval keys = prim::intersection(
        {keys_of(0).begin, keys_of(rows_ - 1).end}, {split * split_keys, (split + 1) * split_keys});
    if (keys.empty()) return;
    load_queries();
    std::memset(result.out, 0, static_cast<std::size_t>(rows_ * out_stride) * sizeof(float));
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += shape::block_kv) {
      const std::int64_t left = keys.end - key0;
      attend(key0, left < shape::block_kv ? static_cast<int>(left) : shape::block_kv, result,
             out_stride);
    }
  }

 private:
  TESSERA_INLINE std::int64_t query_of(int r) const { return (first_row_ + r) / group_; }
  TESSERA_INLINE int head_of(int r) const {
    return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_);
  }
  TESSERA_INLINE prim::key_interval keys_of(int r) const { return visible_.keys_of(query_of(r)); }
  TESSERA_INLINE float* score_row(int r) const { return scratch_.scores + r * shape::score_stride; }

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      prim::pack_query<isa_type, words>(
          token_row<const element>(args_.q, args_.q_strides, seq_.index, seq_.q_begin + query_of(r),
                                   head_of(r)),
          shape::head_dim(args_), scratch_.q + r * shape::q_stride);
    }
  }

  prim::row_source<element> rows_from(const void* data, const row_strides& strides,
                                      std::int64_t key0) const {
    return {token_row<const element>(data, strides, seq_.index, seq_.k_begin + key0, kv_head_),
            strides.row};
  }

  void attend(std::int64_t key0, int count, const split_result& result, int out_stride) {
    const auto tile =
        prim::score_tile{seq_.index,  kv_head_ * group_,       (kv_head_ + 1) * group_,
                         query_of(0), query_of(rows_ - 1) + 1, key0,
                         key0 + count};
    const prim::tile_visibility seen = classify<Row>(args_, hooks_, tile);
    if (seen == prim::tile_visibility::skip) return;
    const auto keys = rows_from(args_.k, args_.k_strides, key0);
    prim::for_each_row_tile<most_rows>(
        rows_, [&]<int Rows>(int first) { multiply_keys<Rows>(keys, count, first); });

    float correction[shape::block_q];
    for (int r = 0; r < rows_; ++r) {
      const row_of_scores row = scores_of(r, key0, count);
      modifiers::apply(args_, hooks_, row);
      correction[r] = softmax_row<Row>(args_, row, result.state[r]);
      for (int d = 0; d < out_stride && correction[r] != 1.0f; d += width) {
        float* out = result.out + r * out_stride + d;
        vec::store(out, vec::mul(vec::load(out), vec::broadcast(correction[r])));
      }
    }
    const auto values = rows_from(args_.v, args_.v_strides, key0);
    const bool whole = seen == prim::tile_visibility::full && keys_of(0).end >= key0 + count &&
                       keys_of(rows_ - 1).begin <= key0 && !modifiers::may_hide(args_);
    if (!whole && holds_nonfinite(values, count)) {
      add_seen_values(values, count, result.out, out_stride);
      return;
    }
    prim::for_each_row_tile<most_rows>(rows_, [&]<int Rows>(int first) {
      add_values<Rows>(values, count, first, result.out + first * out_stride, out_stride);
    });
  }

  row_of_scores scores_of(int r, std::int64_t key0, int count) const {
    row_of_scores row;
    row.scores = score_row(r);
    row.at = {seq_.index, head_of(r), query_of(r), 0, query_of(r) + visible_.offset};
    row.key0 = key0;
    row.columns = count;
    row.high = round_up(count, width);
    const prim::key_interval keys = prim::intersection(keys_of(r), {key0, key0 + count});
    row.begin = keys.empty() ? row.high : static_cast<int>(keys.begin - key0);
    row.end = keys.empty() ? row.high : static_cast<int>(keys.end - key0);
    return row;
  }

  /// Scores of rows [first, first + Rows): Rows x (width / Rows) dot products at a time.
  template <int Rows>
  TESSERA_INLINE void multiply_keys(prim::row_source<element> keys, int count, int first) {
    constexpr int at_once = width / Rows;
    const int head_dim = shape::head_dim(args_);
    const float* q = scratch_.q + first * shape::q_stride;
    const float scale = modifiers::score_scale(args_);
    for (int key = 0; key < count; key += at_once) {
      const element* row[at_once];
      TESSERA_UNROLL
      for (int k = 0; k < at_once; ++k) {
        row[k] = keys.row(key + k < count ? key + k : count - 1);
      }
      reg acc[width];
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) acc[i] = vec::zero();
      for (int d = 0; d < head_dim; d += reader::elements) {
        reg query[Rows];
        TESSERA_UNROLL
        for (int r = 0; r < Rows; ++r) {
          query[r] = vec::load(q + r * shape::q_stride + d / words::per_word);
        }
        TESSERA_UNROLL
        for (int k = 0; k < at_once; ++k) {
          const reg x = reader::read(row[k] + d, head_dim - d);
          TESSERA_UNROLL
          for (int r = 0; r < Rows; ++r) {
            acc[r * at_once + k] = words::multiply_add(query[r], x, acc[r * at_once + k]);
          }
        }
      }
      float sums[width];
      vec::store(sums, vec::mul(vec::sums(acc), vec::broadcast(scale)));
      for (int r = 0; r < Rows; ++r) {
        std::memcpy(score_row(first + r) + key, sums + r * at_once, at_once * sizeof(float));
      }
    }
  }

  /// out[r] += sum over keys of weight[r, key] * value[key], four registers of columns at a time.
  template <int Rows>
  TESSERA_INLINE void add_values(prim::row_source<element> values, int count, int first, float* out,
                                 int out_stride) {
    const int v_head_dim = shape::v_head_dim(args_);
    int d = 0;
    for (; d + value_vectors * width <= v_head_dim; d += value_vectors * width) {
      add_columns<Rows, value_vectors>(values, count, first, d, value_vectors * width, out,
                                       out_stride);
    }
    for (; d < v_head_dim; d += width) {
      add_columns<Rows, 1>(values, count, first, d, v_head_dim - d, out, out_stride);
    }
  }

  template <int Rows, int Vectors>
  TESSERA_INLINE void add_columns(prim::row_source<element> values, int count, int first, int d,
                                  int columns, float* out, int out_stride) {
    reg acc[Rows][Vectors];
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::load(out + r * out_stride + d + v * width);
    }
    for (int key = 0; key < count; ++key) {
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
      for (int v = 0; v < Vectors; ++v) vec::store(out + r * out_stride + d + v * width, acc[r][v]);
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
  void add_seen_values(prim::row_source<element> values, int count, float* out, int out_stride) {
    for (int r = 0; r < rows_; ++r) {
      for (int key = 0; key < count; ++key) {
        const float weight = words::weight(score_row(r), key);
        if (weight == 0.0f) continue;
        for (int d = 0; d < shape::v_head_dim(args_); ++d) {
          out[r * out_stride + d] += weight * static_cast<float>(values.row(key)[d]);
        }
      }
    }
  }

  const flash_kernel_args& args_;
  const Hooks& hooks_;
  const decode_buffers<Row>& scratch_;
  prim::sequence seq_;
  prim::row_visibility<mask> visible_;
  int group_;
  int kv_head_;
  std::int64_t first_row_;
  int rows_ = 0;
};

/// Merges the splits of one row and writes it. `accumulated` has out_stride floats of scratch.
template <class Row>
void merge_splits(const flash_kernel_args& args, const prim::sequence& seq, std::int64_t query,
                  int head, const split_result& first, std::int64_t splits,
                  std::int64_t split_floats, std::int64_t split_states, int out_stride,
                  float* accumulated) {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  prim::softmax_state merged;
  for (std::int64_t s = 0; s < splits; ++s) {
    const float maximum = first.state[s * split_states].maximum;
    merged.maximum = maximum > merged.maximum || maximum != maximum ? maximum : merged.maximum;
  }
  const float shift = prim::finite_maximum(merged.maximum);
  std::memset(accumulated, 0, static_cast<std::size_t>(out_stride) * sizeof(float));
  for (std::int64_t s = 0; s < splits; ++s) {
    const prim::softmax_state& part = first.state[s * split_states];
    if (part.maximum == prim::minus_infinity && part.denominator == 0.0f) continue;
    const float factor = part.maximum == merged.maximum
                             ? 1.0f
                             : prim::exp2_of<typename shape::isa_type>(part.maximum - shift);
    merged.denominator += factor * part.denominator;
    for (int d = 0; d < out_stride; d += shape::width) {
      const auto sum = vec::fma(vec::broadcast(factor), vec::load(first.out + s * split_floats + d),
                                vec::load(accumulated + d));
      vec::store(accumulated + d, sum);
    }
  }
  const auto result = prim::finish_row(merged, args.sinks + head * args.sink_head_stride,
                                       args.sink_count, args.sink_stride, args.normalize);
  store_row<Row>(args, seq, query, head, result, accumulated);
}

}  // namespace tessera::flash
