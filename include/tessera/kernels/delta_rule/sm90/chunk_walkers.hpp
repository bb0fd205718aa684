// The warpgroups that have the columns of states, 64 each, transposed: in registers from the first
// token to the last. Of an item
//
//   d = M beta v - (M beta k) S      out = q S + P d      S <- S + k^T d
//
// and of low-rank updates, with R what reads and W what writes,
//
//   y = M (R k^T) v + (M R) S      out = q S + (q W^T) y + (q k^T) v      S <- S + W^T y + k^T v
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
  using base::shared_;
  using base::steps;
  using typename base::state_sums;

 public:
  __device__ __forceinline__ state_walker(const delta_rule_kernel_args& args, memory& shared,
                                          std::int64_t column)
      : base(args, shared, column) {}

  __device__ __forceinline__ void walk(const sequence& all, std::int64_t head,
                                       const back_scan& back) {
    if constexpr (Shape::returns) {
      base::with_scan(all, head, back, [&](state_sums& state) {
        go_through(state);
        return 1.0f;
      });
    } else {
      base::with_state(all, head, [&](state_sums& state) { go_through(state); });
    }
  }

 private:
  /// The state goes through all items; answers are stored.
  __device__ __forceinline__ void go_through(state_sums& state) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(barriers);
      const item_facts<Shape>& facts = shared_.facts[ring.stage()];
      base::multiply_columns(state, facts.factors);
      const item_tokens tokens = facts.tokens;
      if (tokens.end == 0) break;
      walk_item<Shape>& item = shared_.items[ring.stage()];
      float answers[32];
      take_item(state, item, tokens, answers);
      if constexpr (Shape::low_rank) {
        ring.release(barriers);
        base::store(shared_.answers, tokens, base::args_.scale, answers);
      } else if constexpr (Shape::returns) {
        base::store_gradients(item.v, tokens, base::args_.scale, answers);
        ring.release(barriers);
      } else {
        base::store(item.v, tokens, base::args_.scale, answers);
        ring.release(barriers);
      }
    }
  }

  __device__ __forceinline__ void take_item(state_sums& state, walk_item<Shape>& item,
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
      if constexpr (Shape::low_rank) add_own(state, item, tokens.end, answers);
    } else {
      float not_written[32];
      read_state(state, item, not_written, answers);
      finite = load_values(item, tokens.end, added);
    }
    base::add_tokens(state, answers, item, tokens, added, added, finite);
  }

  /// Starts to add what values add by themselves to state and answers.
  __device__ __forceinline__ void add_own(state_sums& state, const walk_item<Shape>& item, int end,
                                          float (&answers)[32]) const {
    using key_rows = typename Shape::key_rows;
    using weight_rows = typename Shape::weight_rows;
    const std::uint64_t own = describe_rows<key_rows>(item.own),
                        weights = describe_rows<weight_rows>(item.own_weights);
    // What the state was read as makes room for values.
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(answers);
    prim::cuda::warpgroup_a values[steps];
    load_values(item, end, values);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      rows_product(answers, values[i], weight_rows::along(weights, i), true);
      prim::cuda::warpgroup_product<Element, Shape::keys>::sums_of(state, values[i],
                                                                   key_rows::across(own, i));
    }
    prim::cuda::commit_products();
  }

  /// M beta v; whether all values of tokens before `end` are finite.
  __device__ __forceinline__ bool add_values(const walk_item<Shape>& item, int end,
                                             float (&written)[32]) const {
    prim::cuda::warpgroup_a values[steps];
    const bool finite = load_values(item, end, values);
    base::begin_inverse(written, values, item.inverse);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(written);
    return finite;
  }
  /// What the state holds for the tokens is taken away from `written`; queries read it, which may
  /// be under way behind the call.
  __device__ __forceinline__ void read_state(const state_sums& state, const walk_item<Shape>& item,
                                             float (&written)[32], float (&answers)[32]) const {
    base::read_state(state, item.held, item.q, true, written, answers);
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
