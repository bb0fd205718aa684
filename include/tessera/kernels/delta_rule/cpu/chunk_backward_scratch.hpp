// Memory of gradients by chunks of tokens: of each thread
//
// | part | floats |
// |---|---|
// | kept | [segments + 1][heads] states: in front of each segment of chunks |
// | found | [heads][tokens][values]: what was missing of values, or of low-rank updates held |
// | gradient | [heads] of the state behind the tokens given back so far |
// | tiles | [chunks of a segment][keys][columns]: a tile of the states in front of each |
// | turned_tile, turned_gradient | [columns][keys] |
// | staged | [tensors of tokens][heads][tokens of a segment][keys or values]: see staged_rows.hpp |
// | rows | of each chunk of a segment: see chunk_rows |
// | d_q, d_k | [tokens of a segment][keys]: sums over the value heads of a key head |
// | row, of_pairs | a row of any kind; a register for each token of a chunk |
//
// Heads are the value heads of a work item. Keys are whole lines, values whole registers. States
// [keys][values] lie in tiles of columns: a tile is all keys by at most `columns` values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/carve.hpp>
#include <tessera/kernels/recurrence/cpu/staged_rows.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::delta_rule::cpu {

using recurrence::chunk_tokens;

/// Extents of the parts.
template <class Row>
struct chunk_extents {
  static constexpr std::int64_t segment_tokens = traits<Row>::config.chunk;
  static constexpr std::int64_t segment = segment_tokens / chunk_tokens;
  static constexpr std::int64_t columns = traits<Row>::config.columns;
  /// Whether states are kept so that a launch may go by chunks.
  static constexpr bool has_chunks = segment > 0 && segment_tokens % chunk_tokens == 0;
  /// Tokens of a segment, then.
  static constexpr std::int64_t whole_segment = has_chunks ? segment_tokens : chunk_tokens;

  chunk_extents(const delta_rule_kernel_args& args, int threads) noexcept
      : keys(padded(args.key_dim)),
        values(prim::padded<typename traits<Row>::isa_type>(args.value_dim)),
        state(keys * values),
        tile(keys * columns),
        tokens((args.tokens + chunk_tokens - 1) / chunk_tokens * chunk_tokens),
        kept_states((args.tokens + segment_tokens - 1) / segment_tokens + 1),
        group(args.value_heads / args.key_heads),
        writes(args.update == delta_rule_update::delta ? 1 : 2),
        together(key_heads_together(args, threads)),
        heads(together * group) {}

  /// Key heads that a work item has: rows of neighbours lie in the same pages, whose addresses cost
  /// more to find than their numbers to read. Every thread has an item, and what is kept a bound.
  std::int64_t key_heads_together(const delta_rule_kernel_args& args, int threads) const noexcept {
    constexpr double most_floats = 1 << 23;
    const double fit = std::min(most_floats / std::max(kept_floats_of(group), 1.0),
                                recurrence::heads_of_page(std::max(keys, values)));
    const std::int64_t items = args.sequences * args.key_heads / threads;
    return std::clamp<std::int64_t>(std::min(items, static_cast<std::int64_t>(fit)), 1,
                                    std::max<std::int64_t>(args.key_heads, 1));
  }
  /// What is kept of so many heads.
  double kept_floats_of(std::int64_t count) const noexcept {
    return static_cast<double>(count) *
           (static_cast<double>(kept_states) * static_cast<double>(state) +
            static_cast<double>(tokens) * static_cast<double>(values));
  }

  std::int64_t keys, values, state, tile, tokens, kept_states, group, writes, together, heads;
};

/// Rows of a chunk: of its tokens [chunk][keys] or [values], turned round [keys][chunk]. Of what
/// reads states: queries, and rows that read what is held, which in the delta rule are the keys. Of
/// what writes: keys, and, of low-rank updates, rows that write what is held.
struct chunk_rows {
  float* reads[2];
  float* writes[2];
  float* decay;               ///< factors
  float *found[2], *left[2];  ///< as of the state in front of the chunk and behind it
  float *turned_found[2], *turned_left[2];
  float *d_reads[2], *d_writes[2];
  float* values[2];    ///< that are written
  float* d_values[2];  ///< in the delta rule they become gradients of what was held
  float* d_out;        ///< in the delta rule going forward: v
  float *weights[2][2], *d_weights[2][2];  ///< [chunk][chunk]: of pairs of reads and writes
  float *whole_decay, *passed_decay;       ///< [keys]: of all tokens; scratch
  float* crossing;  ///< [keys]: what the state in front has to do with what follows
  float *beta, *d_beta;
};

/// The parts of a thread; null: these are only counted.
template <class Row>
struct chunk_scratch {
  using extents = chunk_extents<Row>;

  chunk_scratch(const extents& extent, std::byte* memory) : size(extent) {
    prim::float_carver carver(memory);
    kept_ = carver.take(size.heads * size.kept_states * size.state);
    found_ = carver.take(size.heads * size.tokens * size.values);
    gradients_ = carver.take(size.heads * size.state);
    tiles_ = carver.take(extents::segment * size.tile);
    turned_tile = carver.take(size.tile);
    turned_gradient = carver.take(size.tile);
    d_q = carver.take(extents::segment_tokens * size.keys);
    d_k = carver.take(extents::segment_tokens * size.keys);
    row = carver.take(std::max(size.keys, size.values));
    of_keys = carver.take(chunk_tokens * size.keys);
    of_pairs = carver.take(chunk_tokens * std::int64_t{traits<Row>::width});
    staged.take(carver, 7, extents::segment_tokens, size.heads, std::max(size.keys, size.values));
    rows_begin_ = carver.take(0);
    const std::size_t in_front = carver.bytes();
    if constexpr (extents::has_chunks) {
      for (chunk_rows& of : rows) carve(of, carver);
    }
    bytes = carver.bytes();
    rows_floats_ = (bytes - in_front) / sizeof(float);
  }

  /// Zeros behind the channels, which are not written again.
  void clear_rows() const { std::fill_n(rows_begin_, rows_floats_, 0.0f); }

  float* kept(std::int64_t segment, std::int64_t member) const {
    return kept_ + (segment * size.heads + member) * size.state;
  }
  float* found(std::int64_t member, std::int64_t step) const {
    return found_ + (member * size.tokens + step) * size.values;
  }
  float* gradient(std::int64_t member) const { return gradients_ + member * size.state; }
  float* tile(std::int64_t chunk) const { return tiles_ + chunk * size.tile; }

  extents size;
  std::size_t bytes;
  recurrence::staged_memory staged;
  chunk_rows rows[extents::has_chunks ? extents::segment : 1];
  float *turned_tile, *turned_gradient;
  float *d_q, *d_k;
  float* row;
  float* of_keys;   ///< [chunk][keys]: gradients of log decays
  float* of_pairs;  ///< [chunk][a register]

 private:
  void carve(chunk_rows& of, prim::float_carver& carver) const {
    constexpr std::int64_t pairs = std::int64_t{chunk_tokens} * chunk_tokens;
    const std::int64_t keys = chunk_tokens * size.keys, values = chunk_tokens * size.values;
    of.decay = carver.take(keys);
    for (int r = 0; r < 2; ++r) {
      if (r == 0 || size.writes > 1) of.reads[r] = carver.take(keys);
      recurrence::carve(carver, keys, of.found[r], of.turned_found[r], of.d_reads[r]);
    }
    for (int w = 0; w < size.writes; ++w) {
      recurrence::carve(carver, keys, of.writes[w], of.left[w], of.turned_left[w], of.d_writes[w]);
      recurrence::carve(carver, values, of.values[w], of.d_values[w]);
      for (int r = 0; r < 2; ++r)
        recurrence::carve(carver, pairs, of.weights[r][w], of.d_weights[r][w]);
    }
    if (size.writes == 1) of.reads[1] = of.writes[0];
    of.d_out = carver.take(values);
    recurrence::carve(carver, size.keys, of.whole_decay, of.passed_decay, of.crossing);
    recurrence::carve(carver, std::int64_t{chunk_tokens}, of.beta, of.d_beta);
  }

  float *kept_, *found_, *gradients_, *tiles_;
  float* rows_begin_;
  std::size_t rows_floats_;
};

}  // namespace tessera::kernels::delta_rule::cpu
