// The query rows of one key/value head in the decode loop: scores and values of a few keys at a
// time, as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/kernels/attention/common/prefix.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/common/split_kv.hpp>
#include <tessera/kernels/attention/cpu/coded_source.hpp>
#include <tessera/kernels/attention/cpu/decode_entry.hpp>
#include <tessera/kernels/attention/cpu/decode_tiles.hpp>
#include <tessera/kernels/attention/cpu/key_order.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>

namespace tessera::kernels::attention::cpu {

template <class Kernel, class Hooks>
class decode_rows {
  using shape = traits<Kernel>;
  using element = typename shape::element;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using mods = score_mod<Kernel, Hooks>;
  using reader = prim::word_reader<words>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  static constexpr int width = shape::width;

 public:
  /// Keys of one head that are multiplied before the next head's. Few of them keep to the order of
  /// memory. Many spare the sums, which are read and written once a step, where the sums of all
  /// heads crowd the first-level cache.
  static constexpr int few_keys = sizeof(element) == 4 ? 8 : 4;
  static constexpr int many_keys = words::k_pack == 1 ? 8 : 16;
  static constexpr int mr = width / 4;  ///< rows of a register tile
  /// Keys of a head that tiles take together: what the weights are made of, or a buffer holds.
  template <class Source>
  static constexpr int tile_keys = Source::in_place ? shape::block_kv : most_buffered_rows;

  decode_rows(const attention_kernel_args& args, const Hooks& hooks,
              const decode_scratch<Kernel>& scratch, const decode_entry<Kernel>& entry, int kv_head,
              std::int64_t first_row)
      : queries_(args, hooks, entry.seq, entry.visible, kv_head, first_row, shape::block_q),
        scratch_(scratch) {}

  const query_rows<Kernel, Hooks>& queries() const { return queries_; }

  /// True if every row sees these keys and nothing but the softmax looks at their scores, so that
  /// their order is free.
  bool frees_order_of(prim::key_interval keys) const {
    const attention_kernel_args& args = queries_.args();
    if (mods::changes(args, queries_.units()) || mods::may_hide(args)) return false;
    if (shape::has(attention_feature::dropout) && args.dropout) return false;
    return queries_.all_see(keys, queries_.visibility_of_keys(keys));
  }

  /// True if scores of these keys are to lie key by row: nothing but the softmax looks at them.
  bool keeps_columns(prim::key_interval keys, prim::tile_visibility seen) const {
    if constexpr (shape::tiles) {
      return tiles().keeps_columns(static_cast<int>(keys.end - keys.begin)) &&
             queries_.all_see(keys, seen) && !mods::changes(queries_.args(), queries_.units());
    }
    return false;
  }

  /// Loads the queries and starts their softmax and sums.
  void load_q() const {
    element room[max_head_dim];
    const int head_dim = shape::head_dim(queries_.args());
    for (int r = 0; r < queries_.count(); ++r) {
      if constexpr (!shape::tiles) {
        prim::pack_a<isa_type, words>(queries_.operand(r, room), head_dim,
                                      scratch_.q + r * shape::q_stride);
      }
    }
    int rows = queries_.count();
    if constexpr (shape::tiles) {
      tiles().pack_q([&](int r) { return queries_.operand(r, room); });
      rows = tiles().rows_with_tail();
    }
    for (int r = 0; r < rows; ++r) scratch_.softmax.clear(r);
    std::memset(scratch_.sums, 0, static_cast<std::size_t>(rows * sum_stride()) * sizeof(float));
  }

  /// Leaves the rows' sums and states as parts of split `split`.
  void store_partial(std::int64_t split, const partial_results& partial) const {
    for (int r = 0; r < queries_.count(); ++r) {
      const std::int64_t part = partial.first_part(queries_.args(), queries_.sequence(),
                                                   queries_.query_of(r), queries_.head_of(r)) +
                                split;
      std::memcpy(partial.sum(part), sum_row(r),
                  static_cast<std::size_t>(partial.stride) * sizeof(float));
      partial.state(part) = queries_.units().natural(scratch_.softmax.state(r));
    }
  }

  /// All there is to do with a tile of keys of which keeps_columns is true.
  template <class KeyRows, class ValueRows>
  void attend_columns(const key_step<KeyRows>& k, const key_step<ValueRows>& v) const {
    tiles().attend_columns(queries_.units(), k, v);
  }

  /// Scores of a step of at most `Keys` keys.
  template <int Keys, class Rows>
  void gemm_qk(const key_step<Rows>& at) const {
    if constexpr (shape::tiles) {
      tiles().gemm_qk(at);
    } else if (at.count == Keys) {
      gemm_qk_of<Keys>(at, std::integral_constant<int, Keys>{});
    } else {
      gemm_qk_of<Keys>(at, at.count);
    }
  }

  /// Scores of the keys become logits, where anything is to be done about them.
  void apply_score_mod(prim::key_interval keys, prim::tile_visibility seen) const {
    const key_columns columns = columns_of(keys);
    if (seen == prim::tile_visibility::full && columns.count % shape::key_step == 0 &&
        queries_.all_see(keys, seen) && !mods::changes(queries_.args(), queries_.units())) {
      return;
    }
    for (int r = 0; r < queries_.count(); ++r) {
      mods::apply(queries_.args(), queries_.hooks(), queries_.units(),
                  queries_.scores_of_row(r, scratch_.score_row(r), columns),
                  seen != prim::tile_visibility::full);
    }
  }

  /// Logits become P.
  void softmax(prim::key_interval keys) const {
    constexpr int rows_at_once = width < 8 ? width : 8;
    prim::for_each_row_tile<rows_at_once>(queries_.count(), [&]<int Rows>(int first) {
      softmax_tile<Kernel, Rows>(
          queries_.args(), queries_.units(), scratch_.score_row(first), columns_of(keys),
          [&](int r) { return queries_.position_of(first + r); }, scratch_.softmax.from(first),
          scratch_.rescale + first);
    });
  }

  void rescale_sums() const { scratch_.rescale_sums(0, queries_.count(), sum_stride()); }

  /// Sums of a step of at most `Keys` keys.
  template <int Keys, class Rows>
  void gemm_pv(const key_step<Rows>& at) const {
    if constexpr (shape::tiles) {
      tiles().gemm_pv(at);
    } else {
      prim::for_each_row_tile<mr>(queries_.count(), [&]<int QRows>(int first) {
        if (at.count == Keys) {
          add_values<QRows, Keys>(at, 0, Keys, first);
          return;
        }
        for (int k = 0; k < at.count; k += words::k_pack) {
          add_values<QRows, words::k_pack>(at, k, at.count - k, first);
        }
      });
    }
  }

  /// True if a hidden key's weight of 0 would meet a value that is not finite.
  template <class Tokens>
  bool hides_nonfinite(const Tokens& values, prim::key_interval keys,
                       prim::tile_visibility seen) const {
    if (queries_.all_see(keys, seen)) return false;
    const auto rows = values.rows(keys.begin, queries_.kv_head());
    const int v_head_dim = shape::v_head_dim(queries_.args());
    reg bits = vec::zero();
    for (std::int64_t key = 0; key < keys.end - keys.begin; ++key) {
      const element* const value = rows.row(key);
      for (int d = 0; d < v_head_dim; d += width) {
        const reg x = v_head_dim - d >= width ? vec::load_as(value + d)
                                              : vec::load_as_n(value + d, v_head_dim - d);
        bits = vec::bit_or(bits, vec::mul(x, vec::zero()));
      }
    }
    return vec::sum(bits) != 0.0f;
  }

  /// The sums of a whole tile, each row leaving out the keys that it has no use for.
  template <class Tokens>
  void add_seen_values(const Tokens& values, prim::key_interval keys) const {
    const auto rows = values.rows(keys.begin, queries_.kv_head());
    for (int key = 0; key < keys.end - keys.begin; ++key) {
      const element* const value = rows.row(key);
      for (int r = 0; r < queries_.count(); ++r) {
        const float weight = words::element(scratch_.score_row(r), key);
        if (weight == 0.0f && !queries_.uses(r, keys.begin + key)) continue;
        float* sum = sum_row(r);
        for (int d = 0; d < shape::v_head_dim(queries_.args()); ++d) {
          sum[words::interleaved_column(d)] += weight * static_cast<float>(value[d]);
        }
      }
    }
  }

 private:
  static constexpr int elements_of_line = 64 / static_cast<int>(sizeof(element));

  decode_tiles<Kernel> tiles() const { return {scratch_, queries_.count()}; }
  TESSERA_INLINE int sum_stride() const {
    return strides::sums(shape::config, shape::v_head_dim(queries_.args()));
  }
  TESSERA_INLINE float* sum_row(int r) const { return scratch_.sums + r * sum_stride(); }
  static TESSERA_INLINE key_columns columns_of(prim::key_interval keys) {
    const auto count = static_cast<int>(keys.end - keys.begin);
    return {keys.begin, count, 0, count, 0, round_up(count, shape::key_step)};
  }

  static constexpr int most_keys_of_tile(int keys) { return keys < few_keys ? keys : few_keys; }
  /// Rows times keys of a score tile make at most one register of sums.
  template <int Rows, int Keys>
  static constexpr int keys_of_tile = width / Rows < most_keys_of_tile(Keys)
                                          ? width / Rows
                                          : most_keys_of_tile(Keys);
  /// Whether the rows of a step come with rows to ask for meanwhile. Buffered ones do not; of the
  /// others those of streams may lack them: the rest is spared the question, which costs its loops
  /// registers.
  enum class requests { none, some, always };
  template <class Rows, int Keys>
  static constexpr requests requests_of =
      std::is_same_v<Rows, buffered_rows<element>> ? requests::none
      : Keys != stream_order::count                ? requests::always
                                                   : requests::some;
  template <requests Asks>
  static TESSERA_INLINE const element* const* ahead_at(const element* const* ahead, int key) {
    if constexpr (Asks == requests::none) return nullptr;
    return Asks == requests::always || ahead != nullptr ? ahead + key : nullptr;
  }
  template <requests Asks>
  static TESSERA_INLINE bool asks(const element* const* ahead) {
    return Asks == requests::always || (Asks == requests::some && ahead != nullptr);
  }

  /// `count` is an int or, for whole steps, an integral_constant.
  template <int Keys, class Rows, class Count>
  TESSERA_INLINE void gemm_qk_of(const key_step<Rows>& at, Count count) const {
    prim::for_each_row_tile<mr>(queries_.count(), [&]<int QRows>(int first) {
      const float* q = scratch_.q + first * shape::q_stride;
      float* scores = scratch_.score_row(first) + at.column;
      constexpr int keys_at_once = keys_of_tile<QRows, Keys>;
      const element* row[keys_at_once];
      for (int key = 0; key < count; key += keys_at_once) {
        TESSERA_UNROLL
        for (int k = 0; k < keys_at_once; ++k) {
          row[k] = at.rows.row(count % keys_at_once == 0 || key + k < count ? key + k : count - 1);
        }
        constexpr requests asking = requests_of<Rows, Keys>;
        dot_products<QRows, keys_at_once, asking>(row, ahead_at<asking>(at.ahead, key), q,
                                                  scores + key);
      }
    });
  }

  /// scores[r, k] = q[r] . key[k].
  template <int Rows, int Keys, requests Asks>
  TESSERA_INLINE void dot_products(const element* const (&row)[Keys], const element* const* ahead,
                                   const float* q, float* scores) const {
    const int head_dim = shape::head_dim(queries_.args());
    reg acc[width];
    TESSERA_UNROLL
    for (int i = 0; i < width; ++i) acc[i] = vec::zero();
    const auto slice = [&](int d, const auto& load) {
      reg query[Rows];
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        query[r] = vec::load(q + r * shape::q_stride + d / words::k_pack);
      }
      TESSERA_UNROLL
      for (int k = 0; k < Keys; ++k) {
        if (d % elements_of_line == 0 && asks<Asks>(ahead)) {
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

  /// sum[r] += sum over keys k of [begin, begin + count) of the step of weight[r, k] * value[k],
  /// where `count` is at most Keys and less only if Keys is a word's.
  template <int QRows, int Keys, class Rows>
  TESSERA_INLINE void add_values(const key_step<Rows>& at, int begin, int count, int first) const {
    constexpr int words_of_step = Keys / words::k_pack;
    const step_weights<QRows, words_of_step> weight(scratch_.score_row(first) +
                                                    (at.column + begin) / words::k_pack);
    const int columns = shape::v_head_dim(queries_.args());
    int d = 0;
    for (; d + elements_of_line <= columns; d += elements_of_line) {
      // Of portable rows hides from GCC how d grows: it else computes columns of several lines side
      // by side, which takes sixteen times the code, most of it shuffles.
      if constexpr (width == 4) __asm__("" : "+r"(d));
      add_line<QRows, elements_of_line / width>(at, begin, count, weight, first, d,
                                                elements_of_line);
    }
    for (; d < columns; d += words::k_pack * width) {
      add_line<QRows, words::k_pack>(at, begin, count, weight, first, d, columns - d);
    }
  }

  /// The same for `columns` columns from d on, at most `Registers` registers.
  template <int QRows, int Registers, int Words, class Rows>
  TESSERA_INLINE void add_line(const key_step<Rows>& at, int begin, int count,
                               const step_weights<QRows, Words>& weight, int first, int d,
                               int columns) const {
    float* sums = sum_row(first) + d;
    const int stride = sum_stride();
    constexpr requests asking = requests_of<Rows, Words * words::k_pack>;
    const element* const* ahead = ahead_at<asking>(at.ahead, begin);
    reg acc[QRows][Registers];
    TESSERA_UNROLL
    for (int r = 0; r < QRows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Registers; ++v) acc[r][v] = vec::load(sums + r * stride + v * width);
    }
    TESSERA_UNROLL
    for (int k = 0; k < Words; ++k) {
      const element* row[words::k_pack];
      TESSERA_UNROLL
      for (int i = 0; i < words::k_pack; ++i) {
        const int key = k * words::k_pack + i;
        row[i] = key < count ? at.rows.row(begin + key) + d : nullptr;
        if (key < count && asks<asking>(ahead)) {
          TESSERA_PREFETCH_L2(ahead[key] + d);
        }
      }
      reg x[Registers];
      reader::template read_interleaved<Registers>(row, columns, x);
      TESSERA_UNROLL
      for (int r = 0; r < QRows; ++r) {
        const reg factor = weight.of(r, k);
        TESSERA_UNROLL
        for (int v = 0; v < Registers; ++v) {
          acc[r][v] = words::multiply_add(factor, x[v], acc[r][v]);
        }
      }
    }
    TESSERA_UNROLL
    for (int r = 0; r < QRows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Registers; ++v) vec::store(sums + r * stride + v * width, acc[r][v]);
    }
  }

  query_rows<Kernel, Hooks> queries_;
  const decode_scratch<Kernel>& scratch_;
};

}  // namespace tessera::kernels::attention::cpu
