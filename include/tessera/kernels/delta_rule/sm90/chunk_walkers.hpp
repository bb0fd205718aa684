// The warpgroups that have the columns of states, 64 each, transposed: in registers from the first
// token to the last. Of an item
//
//   d = M beta v - (M beta k) S      out = q S + P d      S <- S + k^T d
//
// with the state and d, rounded, as operands in registers.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/state_columns.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class state_walker : state_columns<Element, walk_memory<Shape>> {
  using base = state_columns<Element, walk_memory<Shape>>;
  using memory = walk_memory<Shape>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  using base::shared_;
  using base::steps;

 public:
  __device__ __forceinline__ state_walker(const delta_rule_kernel_args& args, memory& shared,
                                          std::int64_t column)
      : base(args, shared, column) {}

  __device__ __forceinline__ void walk(const sequence& all, std::int64_t head) {
    base::with_state(all, head, [&](float(&state)[Shape::keys / 2]) { go_through(state); });
  }

 private:
  /// The state goes through all items; answers are stored.
  __device__ __forceinline__ void go_through(float (&state)[Shape::keys / 2]) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(barriers);
      const item_facts<Shape>& facts = shared_.facts[ring.stage()];
      multiply_channels(state, facts.factors);
      const item_tokens tokens = facts.tokens;
      if (tokens.end == 0) break;
      walk_item<Shape>& item = shared_.items[ring.stage()];
      float answers[32];
      take_item(state, item, tokens, answers);
      base::store(item.v, tokens, base::args_.scale, answers);
      ring.release(barriers);
    }
  }

  __device__ __forceinline__ void multiply_channels(float (&state)[Shape::keys / 2],
                                                    const float* factors) const {
#pragma unroll
    for (int n = 0; n < Shape::keys / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + base::lane_ % 4 * 2);
      state[4 * n] *= factor.x;
      state[4 * n + 1] *= factor.y;
      state[4 * n + 2] *= factor.x;
      state[4 * n + 3] *= factor.y;
    }
  }

  __device__ __forceinline__ void take_item(float (&state)[Shape::keys / 2], walk_item<Shape>& item,
                                            const item_tokens& tokens, float (&answers)[32]) {
    prim::cuda::warpgroup_a added[steps];
    bool finite = true;
    if constexpr (Shape::corrects) {
      float written[32];
      finite = add_values(item, tokens.end, written);
      read_state(state, item, written, answers);
#pragma unroll
      for (int i = 0; i < steps; ++i) added[i] = operand_of<Element>(written, i);
      finite = base::remove_not_finite(added, tokens.end) && finite;
    } else {
      float not_written[32];
      read_state(state, item, not_written, answers);
      finite = load_values(item, tokens.end, added);
    }
    const std::uint64_t k = describe_rows<key_rows>(item.k),
                        weights = describe_rows<weight_rows>(item.weights);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(answers, added[i], weight_rows::along(weights, i), true);
    }
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      prim::cuda::warpgroup_product<Element, Shape::keys>::sums_of(state, added[i],
                                                                   key_rows::across(k, i));
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(answers);
    prim::cuda::keep_in_place(state);
    finite = finite && tokens.poison >= Shape::tokens;
    if (!finite) base::mark_not_finite(state, answers, tokens.poison);
  }

  /// M beta v; whether all values of tokens before `end` are finite.
  __device__ __forceinline__ bool add_values(const walk_item<Shape>& item, int end,
                                             float (&written)[32]) const {
    const std::uint64_t inverse = describe_rows<weight_rows>(item.inverse);
    prim::cuda::warpgroup_a values[steps];
    const bool finite = load_values(item, end, values);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(written, values[i], weight_rows::along(inverse, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(written);
    return finite;
  }
  /// What the state holds for the tokens is taken away from `written`; queries read it, which may
  /// be under way behind the call.
  __device__ __forceinline__ void read_state(const float (&state)[Shape::keys / 2],
                                             const walk_item<Shape>& item, float (&written)[32],
                                             float (&answers)[32]) const {
    const std::uint64_t q = describe_rows<key_rows>(item.q),
                        held = describe_rows<key_rows>(item.held);
    // Packing between products would make them wait for each other.
    prim::cuda::warpgroup_a read[Shape::keys / 16];
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) read[i] = operand_of<Element>(state, i);
    prim::cuda::begin_products();
    if constexpr (Shape::corrects) {
#pragma unroll
      for (int i = 0; i < Shape::keys / 16; ++i) {
        rows_product(written, read[i], key_rows::along(held, i), true);
      }
      prim::cuda::commit_products();
    }
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) {
      rows_product(answers, read[i], key_rows::along(q, i), i > 0);
    }
    prim::cuda::commit_products();
    if constexpr (Shape::corrects) {
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(written);
    }
  }

  /// Values of the warp's columns, transposed; whether all of the tokens before `end` are finite.
  __device__ __forceinline__ bool load_values(const walk_item<Shape>& item, int end,
                                              prim::cuda::warpgroup_a (&values)[steps]) const {
    base::load_values(item.v, values);
    return base::remove_not_finite(values, end);
  }
};

}  // namespace tessera::kernels::delta_rule::sm90
