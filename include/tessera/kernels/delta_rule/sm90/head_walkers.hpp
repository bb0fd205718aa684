// The warpgroups that have the columns of states, 64 each, where a head's channels decay alike. Of
// a chunk, with rows as they come and a factor for each token,
//
//   u = v - front_k (k S)      d = M beta u
//   out = front_q (q S) + P d  S <- whole S + k^T (rest d)
//
// with the state, u, d and rest d, rounded, as operands in registers. Without the correction d is
// v.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/head_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/state_columns.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class head_walker : state_columns<Element, head_memory<Shape>> {
  using memory = head_memory<Shape>;
  using base = state_columns<Element, memory>;
  using words = prim::cuda::half_words<Element>;
  using base::lane_;
  using base::shared_;
  using base::steps;
  using typename base::state_sums;

 public:
  __device__ __forceinline__ head_walker(const delta_rule_kernel_args& args, memory& shared,
                                         std::int64_t column)
      : base(args, shared, column) {}

  __device__ __forceinline__ void walk(const sequence& all, std::int64_t head,
                                       const back_scan& back) {
    if constexpr (Shape::returns) {
      base::with_scan(all, head, back, [&](state_sums& state) { return go_through(state); });
    } else {
      base::with_state(all, head, [&](state_sums& state) { go_through(state); });
    }
  }

 private:
  /// The state goes through all chunks; answers are stored. What it decays by behind them, of
  /// scans that return.
  __device__ __forceinline__ float go_through(state_sums& state) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(barriers);
      const head_facts& facts = shared_.facts[ring.stage()];
      const item_tokens tokens = facts.tokens;
      if (tokens.end == 0) return Shape::returns ? facts.whole : 1.0f;
      lane_ = found_anew(lane_);
      base::warp_ = found_anew(base::warp_);
      head_item<Shape>& item = shared_.items[ring.stage()];
      float answers[32];
      take(state, item, facts, tokens, answers);
      if constexpr (Shape::returns) {
        base::store_gradients(item.v, tokens, 1.0f, answers);
      } else {
        base::store(item.v, tokens, 1.0f, answers);
      }
      ring.release(barriers);
    }
  }

  __device__ __forceinline__ void take(state_sums& state, head_item<Shape>& item,
                                       const head_facts& facts, const item_tokens& tokens,
                                       float (&answers)[32]) {
    bool finite = true;
    float written[32];
    base::read_state(state, item.k, item.q, false, written, answers);
    prim::cuda::warpgroup_a values[steps];
    if constexpr (Shape::corrects) {
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(written);
      base::load_values(item.v, values);
      take_away(values, written, facts.front_k);
      finite = base::remove_not_finite(values, tokens.end);
      base::begin_inverse(written, values, item.inverse);
      prim::cuda::wait_products<1>();
    } else {
      base::load_values(item.v, values);
      finite = base::remove_not_finite(values, tokens.end);
      prim::cuda::wait_products<0>();
    }
    prim::cuda::keep_in_place(answers);
    base::multiply_columns(answers, facts.front_q);
    base::multiply_all(state, facts.whole);
    prim::cuda::warpgroup_a left[steps];
    if constexpr (Shape::corrects) {
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(written);
#pragma unroll
      for (int i = 0; i < steps; ++i) values[i] = operand_of<Element>(written, i);
      finite = base::remove_not_finite(values, tokens.end) && finite;
      base::multiply_columns(written, facts.rest);
#pragma unroll
      for (int i = 0; i < steps; ++i) left[i] = operand_of<Element>(written, i);
      if (!finite) remove(left);
    } else {
      multiply_values(left, values, facts.rest);
    }
    base::add_tokens(state, answers, item, tokens, values, left, finite);
  }

  static __device__ __forceinline__ float2 numbers_of(std::uint32_t word) {
    return make_float2(words::unpack(static_cast<std::uint16_t>(word)),
                       words::unpack(static_cast<std::uint16_t>(word >> 16)));
  }
  /// values -= factors held.
  __device__ __forceinline__ void take_away(prim::cuda::warpgroup_a (&values)[steps],
                                            const float (&held)[32], const float* factors) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 factor = base::pair_of(factors, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t& word = values[i / 2].word[i % 2 * 2 + half];
        const float2 x = numbers_of(word);
        word = words::pack(fmaf(-factor.x, held[4 * i + 2 * half], x.x),
                           fmaf(-factor.y, held[4 * i + 2 * half + 1], x.y));
      }
    }
  }
  __device__ __forceinline__ void multiply_values(prim::cuda::warpgroup_a (&to)[steps],
                                                  const prim::cuda::warpgroup_a (&values)[steps],
                                                  const float* factors) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 factor = base::pair_of(factors, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 x = numbers_of(values[i / 2].word[i % 2 * 2 + half]);
        to[i / 2].word[i % 2 * 2 + half] = words::pack(factor.x * x.x, factor.y * x.y);
      }
    }
  }
  static __device__ __forceinline__ void remove(prim::cuda::warpgroup_a (&values)[steps]) {
#pragma unroll
    for (auto& of_step : values) {
#pragma unroll
      for (std::uint32_t& word : of_step.word) word = prim::cuda::finite_only<Element>(word);
    }
  }
};

}  // namespace tessera::kernels::delta_rule::sm90
