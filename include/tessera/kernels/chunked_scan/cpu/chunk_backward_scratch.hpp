// Memory of a launch backward by chunks: of each thread
//
// | part | floats |
// |---|---|
// | kept | [segments][heads] states [V][keys]: in front of each segment of chunks, or of the last |
// | states | [chunks of a segment] states [V][keys], in front of each |
// | gradient | [heads] of the state behind the tokens given back so far: [K][values] |
// | turned | the same as [V][keys] |
// | staged | [tensors of tokens][heads][tokens of a segment][keys or values]: see staged_rows.hpp |
// | rows | of each chunk of a segment: see chunk_rows |
// | d_k, d_v | [tokens of a segment][keys], [values]: sums over the heads of a group |
//
// Heads are those that read the heads of k and v of a work item: `kv_heads_together`.
// Keys and values are a multiple of the register width. States lie in tiles of columns: a tile is
// all rows by at most `tile_columns` columns, side by side.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/carve.hpp>
#include <tessera/kernels/recurrence/cpu/staged_rows.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::chunked_scan::cpu {

using recurrence::chunk_tokens;

/// Gradients of log decays are wanted, which need states on the way back.
inline bool wants_decays(const chunked_scan_kernel_args& args) noexcept {
  return args.d_g.data != nullptr || args.d_gk.data != nullptr;
}

/// Extents of the parts.
template <class Kernel>
struct chunk_extents {
  using shape = traits<Kernel>;
  static constexpr std::int64_t segment = 4;  ///< chunks; their states stay in the nearer caches
  static constexpr std::int64_t segment_tokens = segment * chunk_tokens;
  static constexpr std::int64_t tile_columns = 4 * std::int64_t{shape::width};

  chunk_extents(const chunked_scan_kernel_args& args, int threads) noexcept
      : keys(rounded_up(args.keys, shape::width)),
        values(rounded_up(args.values, shape::width)),
        state(args.keys * values),
        turned_state(args.values * keys),
        group(args.heads / args.kv_heads),
        kept_states(wants_decays(args) ? (args.tokens + segment_tokens - 1) / segment_tokens : 1),
        together(kv_heads_together(args, threads)),
        heads(together * group) {
    const double rows = static_cast<double>(args.tokens * args.sequences) *
                        static_cast<double>(args.heads * 2 * (args.keys + args.values));
    streams = rows > most_cached_floats;
  }

  /// Heads of k and v that a work item has: rows of neighbours lie in the same pages, whose
  /// addresses cost more to find than their numbers to read. Every thread has an item, and kept
  /// states have a bound.
  std::int64_t kv_heads_together(const chunked_scan_kernel_args& args, int threads) const noexcept {
    constexpr double most_floats = 1 << 23;
    const double of_head = static_cast<double>(kept_states) * static_cast<double>(group) *
                           static_cast<double>(turned_state);
    const double fit = std::min(most_floats / std::max(of_head, 1.0),
                                recurrence::heads_of_page(std::max(keys, values)));
    const std::int64_t items = args.sequences * args.kv_heads / threads;
    return std::clamp<std::int64_t>(std::min(items, static_cast<std::int64_t>(fit)), 1,
                                    std::max<std::int64_t>(args.kv_heads, 1));
  }

  static constexpr double most_cached_floats = 1 << 20;  ///< of gradients that caches may hold
  std::int64_t keys, values, state, turned_state, group, kept_states, together, heads;
  bool streams = false;  ///< gradients go past the caches
};

/// Rows of a chunk: of its tokens [chunk][keys] or [values], turned round [channels][chunk].
struct chunk_rows {
  float *q, *k, *decay;     ///< decay: factors
  float *found_q, *left_k;  ///< as of the state in front of the chunk and behind it
  float* turned_q;          ///< found_q
  float *d_q, *d_k;
  float *v, *d_out, *turned_v, *turned_d_out;
  float *weights, *d_weights;         ///< [chunk][chunk]: of pairs of tokens
  float *whole_decay, *passed_decay;  ///< [keys]: of all tokens; scratch
  float* crossing;  ///< [keys]: what the state in front has to do with what follows
};

/// The parts of a thread; null: these are only counted.
template <class Kernel>
struct chunk_scratch {
  using extents = chunk_extents<Kernel>;

  chunk_scratch(const extents& extent, std::byte* memory) : size(extent) {
    prim::float_carver carver(memory);
    kept_ = carver.take(size.kept_states * size.heads * size.turned_state);
    states_ = carver.take(extents::segment * size.turned_state);
    gradients_ = carver.take(size.heads * size.state);
    turned_gradients_ = carver.take(size.heads * size.turned_state);
    d_k = carver.take(extents::segment_tokens * size.keys);
    d_v = carver.take(extents::segment_tokens * size.values);
    of_keys = carver.take(chunk_tokens * size.keys);
    of_pairs = carver.take(chunk_tokens * std::int64_t{traits<Kernel>::width});
    u = carver.take(size.keys);
    staged.take(carver, 5, extents::segment_tokens, size.heads, std::max(size.keys, size.values));
    for (chunk_rows& of : rows) {
      recurrence::carve(carver, chunk_tokens * size.keys, of.q, of.k, of.decay, of.found_q,
                        of.left_k, of.turned_q, of.d_q, of.d_k);
      recurrence::carve(carver, chunk_tokens * size.values, of.v, of.d_out, of.turned_v,
                        of.turned_d_out);
      recurrence::carve(carver, std::int64_t{chunk_tokens} * chunk_tokens, of.weights,
                        of.d_weights);
      recurrence::carve(carver, size.keys, of.whole_decay, of.passed_decay, of.crossing);
    }
    bytes = carver.bytes();
  }

  /// Of all segments the same memory, if states are not kept.
  float* kept(std::int64_t segment, std::int64_t member) const {
    const std::int64_t place = size.kept_states > 1 ? segment : 0;
    return kept_ + (place * size.heads + member) * size.turned_state;
  }
  float* state(std::int64_t chunk) const { return states_ + chunk * size.turned_state; }
  float* gradient(std::int64_t member) const { return gradients_ + member * size.state; }
  float* turned_gradient(std::int64_t member) const {
    return turned_gradients_ + member * size.turned_state;
  }

  extents size;
  std::size_t bytes;
  recurrence::staged_memory staged;
  chunk_rows rows[extents::segment];
  float *d_k, *d_v;
  float* of_keys;   ///< [chunk][keys]: gradients of log decays
  float* of_pairs;  ///< [chunk][a register]
  float* u;         ///< bonus of a head

 private:
  float *kept_, *states_, *gradients_, *turned_gradients_;
};

}  // namespace tessera::kernels::chunked_scan::cpu
