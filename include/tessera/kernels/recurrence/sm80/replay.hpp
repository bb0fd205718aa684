// The way back through a recurrence whose states are not kept: how sequences are cut, where states
// lie meanwhile, and the visits of a block.
//
// A block goes back a leaf of tokens at a time. The states in front of a leaf's tokens are computed
// again from the one in front of the leaf, those of the leaves of a segment from the one in front
// of the segment, which is kept from a first pass: with as many leaves a segment as there are
// segments, of n leaves 2 sqrt(n) states are in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// How a launch is cut.
struct replay_cut {
  int tiles = 0;  ///< of columns
  std::int64_t tile_floats = 0;
  std::int64_t leaf = 0;      ///< tokens
  std::int64_t leaves = 0;    ///< of a segment
  std::int64_t segments = 0;  ///< of the longest sequence
  std::int64_t blocks = 0;

  /// States of a tile: in front of segments, of a segment's leaves, where a pass stands, the
  /// gradient.
  TESSERA_HD std::int64_t states_of_tile() const { return segments + leaves + 2; }
  /// And those in front of a leaf's tokens, of the tile at hand.
  TESSERA_HD std::int64_t floats_of_block() const {
    return (tiles * states_of_tile() + leaf) * tile_floats;
  }
};

/// For sequences of at most so many tokens and values of so many columns. As many blocks as there
/// are items, as the device runs at a time, and as have room in a GiB of memory.
template <class Shape>
replay_cut cut_of(std::int64_t tokens, std::int64_t value_dim, int leaf, std::int64_t items,
                  int multiprocessors) {
  replay_cut cut;
  cut.tiles = static_cast<int>((value_dim + Shape::columns - 1) / Shape::columns);
  cut.tile_floats = Shape::floats;
  cut.leaf = leaf;
  const std::int64_t all = std::max<std::int64_t>(1, (tokens + leaf - 1) / leaf);
  cut.leaves = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(all))));
  cut.segments = (all + cut.leaves - 1) / cut.leaves;
  const double block_bytes = static_cast<double>(cut.floats_of_block()) * sizeof(float);
  const auto with_room = static_cast<std::int64_t>(std::max(0x1p30 / block_bytes, 1.0));
  cut.blocks = std::min<std::int64_t>(
      {2 * std::max(multiprocessors, 1), with_room, std::max<std::int64_t>(items, 1)});
  return cut;
}

/// What the tokens of a leaf get, in shared memory: rows of sums over columns, which each warp has
/// of its own columns first. `Rows` names the rows of a token.
template <class Shape, class Rows, int Tokens>
struct leaf_rows {
  float of_tokens[Tokens][Rows::count][Shape::keys];
  float of_warps[Shape::warps][Rows::count][Shape::keys];

  __device__ __forceinline__ Rows of_token(int i) {
    return Rows::at(&of_tokens[i][0][0], Shape::keys);
  }
  __device__ __forceinline__ Rows of_warp() {
    return Rows::at(&of_warps[threadIdx.x / 32][0][0], Shape::keys);
  }
  __device__ __forceinline__ void clear() {
    float* const rows = &of_tokens[0][0][0];
    constexpr int floats = Tokens * Rows::count * Shape::keys;
    for (int at = static_cast<int>(threadIdx.x); at < floats; at += Shape::threads) {
      rows[at] = 0.0f;
    }
  }
  /// The first `Used` rows of all warps to those of a token. The barriers are the caller's.
  template <int Used>
  __device__ __forceinline__ void add_warps(int i) {
    float* const to = &of_tokens[i][0][0];
    for (int at = static_cast<int>(threadIdx.x); at < Used * Shape::keys; at += Shape::threads) {
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < Shape::warps; ++warp) sum += (&of_warps[warp][0][0])[at];
      to[at] += sum;
    }
  }
};

/// Where the states of a block lie.
struct block_states {
  const replay_cut& cut;
  float* memory;

  __device__ float* of_tile(int tile, std::int64_t state) const {
    return memory + (tile * cut.states_of_tile() + state) * cut.tile_floats;
  }
  __device__ float* of_segment(int tile, std::int64_t segment) const {
    return of_tile(tile, segment);
  }
  __device__ float* of_leaf(int tile, std::int64_t leaf) const {
    return of_tile(tile, cut.segments + leaf);
  }
  __device__ float* current(int tile) const { return of_leaf(tile, cut.leaves); }
  __device__ float* gradient(int tile) const { return of_leaf(tile, cut.leaves + 1); }
  __device__ float* before(int step) const { return of_tile(cut.tiles, step); }
};

/// The visits of a block to the leaves of one sequence and head. `Steps` says what there is to do,
/// with `first` the leaf's first step and `column` the tile's first column:
///
/// | function | what it does |
/// |---|---|
/// | `load_states(column, state, gradient)` | to memory: before the first step, behind the last |
/// | `load_rows(first, count, returns)` | operands of a leaf to shared memory |
/// | `load_columns(first, count, column, returns)` | the same of a tile |
/// | `begins(i, state)` | false: step i leaves the state alone |
/// | `step(i, state)` | to the state behind step i |
/// | `step_back(i, first, column, before, gradient)` | gradients; `before` is in memory |
/// | `store_leaf(first, count)` | gradients of the leaf's tokens, of all tiles |
/// | `store_gradient(column, gradient)` | that of the state in front of the first step |
template <class Shape, class Steps>
class replay {
 public:
  __device__ replay(const block_states& states, std::int64_t length, const Steps& steps)
      : states_(states), cut_(states.cut), steps_(steps), length_(length) {}

  /// Leaves are visited to step to the next one, first all of them to find the states in front of
  /// segments, then those of each segment, the last first; and behind those of a segment, in
  /// reverse, to go back.
  __device__ void run() const {
    const std::int64_t leaves = (length_ + cut_.leaf - 1) / cut_.leaf;
    const std::int64_t segments = (leaves + cut_.leaves - 1) / cut_.leaves;
    for (int tile = 0; tile < cut_.tiles; ++tile) {
      steps_.load_states(column_of(tile), states_.of_segment(tile, 0), states_.gradient(tile));
      copy(states_.of_segment(tile, 0), states_.current(tile));
    }
    for (std::int64_t segment = segments; segment >= 0; --segment) {
      const bool finds = segment == segments;
      const std::int64_t begin = finds ? 0 : segment * cut_.leaves;
      const std::int64_t end = finds ? leaves : min(begin + cut_.leaves, leaves);
      const std::int64_t ahead = end - 1 - begin;
      for (int tile = 0; !finds && tile < cut_.tiles; ++tile) {
        copy(states_.of_segment(tile, segment), states_.current(tile));
        copy(states_.of_segment(tile, segment), states_.of_leaf(tile, 0));
      }
      for (std::int64_t visit = 0; visit < (finds ? ahead : 2 * ahead + 1); ++visit) {
        const bool returns = visit >= ahead;
        const std::int64_t place = returns ? 2 * ahead - visit : visit;  // in the segment
        std::int64_t keeps = cut_.segments + place + 1;
        if (finds) keeps = (place + 1) % cut_.leaves == 0 ? (place + 1) / cut_.leaves : -1;
        visit_leaf((begin + place) * cut_.leaf, place, returns, keeps);
      }
    }
    for (int tile = 0; tile < cut_.tiles; ++tile) {
      steps_.store_gradient(column_of(tile), states_.gradient(tile));
    }
  }

 private:
  __device__ std::int64_t column_of(int tile) const {
    return static_cast<std::int64_t>(tile) * Shape::columns;
  }
  /// Every thread reads what it wrote.
  static __device__ void copy(const float* from, float* to) {
    for (int at = static_cast<int>(threadIdx.x); at < Shape::floats; at += Shape::threads) {
      to[at] = from[at];
    }
  }

  /// Steps through the leaf at step `first`, `place` in its segment: to the state behind it, which
  /// goes to state `keeps` of the tile too, if that is not negative; or, if it `returns`, to go
  /// back.
  __device__ void visit_leaf(std::int64_t first, std::int64_t place, bool returns,
                             std::int64_t keeps) const {
    const int count = static_cast<int>(min(cut_.leaf, length_ - first));
    __syncthreads();
    steps_.load_rows(first, count, returns);
    for (int tile = 0; tile < cut_.tiles; ++tile) {
      const std::int64_t column = column_of(tile);
      __syncthreads();
      steps_.load_columns(first, count, column, returns);
      __syncthreads();
      state_tile<Shape> state;
      state.load(returns ? states_.of_leaf(tile, place) : states_.current(tile));
      for (int i = 0; i < count; ++i) {
        if (!steps_.begins(i, state)) continue;
        if (returns) state.store(states_.before(i));
        steps_.step(i, state);
      }
      if (!returns) {
        state.store(states_.current(tile));
        if (keeps >= 0) state.store(states_.of_tile(tile, keeps));
        continue;
      }
      __syncwarp();
      state_tile<Shape> gradient;
      gradient.load(states_.gradient(tile));
      for (int i = count - 1; i >= 0; --i) {
        steps_.step_back(i, first, column, states_.before(i), gradient);
      }
      gradient.store(states_.gradient(tile));
    }
    if (returns) steps_.store_leaf(first, count);
  }

  const block_states& states_;
  const replay_cut& cut_;
  const Steps& steps_;
  std::int64_t length_;
};

}  // namespace tessera::kernels::recurrence::sm80
