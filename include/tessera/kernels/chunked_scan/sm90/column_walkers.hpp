// The warpgroups that have the columns of states where these decay by themselves: scans of
// gradients of queries and keys. Of an item, with scaled values and P of rows as they come,
//
//   out = factors (q S + P v)      S <- S + k^T v
//
// with the state, rounded, and values as operands in registers.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/kept_states.hpp>
#include <tessera/kernels/chunked_scan/sm90/walk_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/head_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/state_columns.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

template <class Element, class Shape>
class column_walker
    : delta_rule::sm90::state_columns<Element, delta_rule::sm90::walk_memory<Shape>> {
  using memory = delta_rule::sm90::walk_memory<Shape>;
  using base = delta_rule::sm90::state_columns<Element, memory>;
  using facts_of = delta_rule::sm90::item_facts<Shape>;
  using item_of = delta_rule::sm90::walk_item<Shape>;
  using words = prim::cuda::half_words<Element>;
  using base::lane_;
  using base::shared_;
  using base::steps;
  using base::warp_;
  using typename base::state_sums;

 public:
  __device__ __forceinline__ column_walker(const back_launch& launch, memory& shared,
                                           const delta_rule::sequence& all, std::int64_t head,
                                           std::int64_t column)
      : base(launch.scans[blockIdx.y].walk.args, shared, column),
        launch_(launch),
        scan_(launch.scans[blockIdx.y]),
        all_(all),
        head_(head),
        tile_(static_cast<int>(column / 16) + warp_) {}

  __device__ __forceinline__ void walk() {
    base::with_scan(all_, head_, scan_.back, [&](state_sums& state) {
      go_through(state);
      return 1.0f;
    });
  }

 private:
  /// The state goes through all items; answers are stored.
  __device__ __forceinline__ void go_through(state_sums& state) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(barriers);
      lane_ = delta_rule::sm90::found_anew(lane_);
      warp_ = delta_rule::sm90::found_anew(warp_);
      const facts_of& facts = shared_.facts[ring.stage()];
      const delta_rule::sm90::item_tokens tokens = facts.tokens;
      if (scan_.kept != nullptr && tokens.end > 0 && tokens.first == 0) {
        keep(state, facts.left, tokens.token);
      }
      multiply_rows(state, facts.factors);
      if (tokens.end == 0) break;
      item_of& item = shared_.items[ring.stage()];
      float not_written[32], answers[32];
      base::read_state(state, item.k, item.q, false, not_written, answers);
      prim::cuda::warpgroup_a values[steps];
      base::load_values(item.v, values);
      const bool finite = base::remove_not_finite(values, tokens.end);
      base::add_tokens(state, answers, item, tokens, values, values, finite);
      multiply_answers(answers, item);
      base::store_gradients(item.v, tokens, base::args_.scale, answers);
      ring.release(barriers);
    }
  }

  /// The two columns of the warp that the thread has, `half` the second.
  __device__ __forceinline__ int column_of(int half) const {
    return warp_ * 16 + half * 8 + lane_ / 4;
  }
  __device__ __forceinline__ void multiply_rows(state_sums& state, const float* factors) const {
    const float factor[2] = {factors[column_of(0)], factors[column_of(1)]};
#pragma unroll
    for (int i = 0; i < Shape::keys / 2; ++i) state[i] *= factor[i / 2 % 2];
  }
  __device__ __forceinline__ void multiply_answers(float (&answers)[32], item_of& item) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const factors = item.factor_at(lane_ % 4 * 2, column_of(half));
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        // Eight tokens on, columns lie as they do here.
        answers[i / 2 * 4 + 2 * half + i % 2] *= factors[(i / 2 * 8 + i % 2) * Shape::columns];
      }
    }
  }
  /// Keeps the state in front of the chunk of `token`, of which `left` is left.
  __device__ __forceinline__ void keep(const state_sums& state, const float* left,
                                       std::int64_t token) const {
    if (tile_ * 16 >= launch_.call.keys) return;
    const std::int64_t step = scan_.back.returns ? all_.length - token - 1 : token;
    const std::int64_t chunk =
        sm80::first_chunk_of(launch_.states, all_) + step / sm80::chunk_states::tokens;
    const auto to = sm80::kept_tile<Shape::keys>::of(scan_.kept, chunk, launch_.call, head_, tile_);
    const float factor[2] = {left[column_of(0)], left[column_of(1)]};
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) {
      std::uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const x = state + 8 * i + 2 * j;
        word[j] = words::pack(factor[j % 2] * x[0], factor[j % 2] * x[1]);
      }
      to.lane[i * 32] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  const back_launch& launch_;
  const back_launch::scan& scan_;
  const delta_rule::sequence& all_;
  std::int64_t head_;
  int tile_;  ///< of 16 columns, the warp's
};

}  // namespace tessera::kernels::chunked_scan::sm90
