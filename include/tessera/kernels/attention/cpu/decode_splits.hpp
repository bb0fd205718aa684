// The splits of the keys of a decode problem: how they are cut, what each leaves, and their merge
// ("Flash-Decoding", T. Dao et al., 2023).
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention/cpu/finish.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::attention::cpu {

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

/// Keys [begin, begin + keys) of a split, read as `count` straight lines of keys side by side. A
/// tile of scores holds the next few keys of each: column c is key first(key0, c) of stream
/// c % count, so that neighbouring columns are `distance()` keys apart.
struct key_streams {
  static constexpr int count = 4;
  static constexpr std::int64_t most_keys = 1 << 20;
  std::int64_t begin = 0;
  std::int64_t keys = 0;  ///< whole tiles

  bool hold(std::int64_t key0) const { return key0 < begin + keys; }
  std::int64_t distance() const { return keys / count; }
  /// The key of column `column`, a multiple of count, of the tile that starts at key0.
  std::int64_t first(std::int64_t key0, int column) const {
    return begin + (key0 - begin + column) / count;
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
TESSERA_INLINE std::int64_t token_of(const attention_kernel_args& args, const prim::sequence& seq,
                                     std::int64_t query) {
  return args.cu_seqlens_q != nullptr ? seq.q_begin + query : seq.index * args.q_len + query;
}

/// Sums whose columns lie in the order of the words' values, in place back to memory order.
template <class Words>
void restore_columns(float* sums, int count) {
  constexpr int period = Words::value_period;
  if constexpr (period > 1) {
    for (int first = 0; first < count; first += period) {
      float block[period];
      for (int d = 0; d < period; ++d) block[d] = sums[first + Words::value_column(d)];
      std::memcpy(sums + first, block, sizeof block);
    }
  }
}

/// Merges the splits of one row and writes it. `accumulated` has room for results.stride floats.
template <class Row>
void merge_splits(const attention_kernel_args& args, const prim::sequence& seq, std::int64_t query,
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
  restore_columns<typename shape::words>(accumulated, results.stride);
  const auto result = prim::finish_row(merged, args.sinks + head * args.sink_head_stride,
                                       args.sink_count, args.sink_stride, args.normalize);
  store_row<Row>(args, seq, query, head, result, accumulated);
}

}  // namespace tessera::kernels::attention::cpu
