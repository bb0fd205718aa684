// The epilogue: writing finished rows, their statistics and attention weights.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::cpu {

/// Calls body with an element of out's type: q's, unless that is f8_e4m3.
template <class Kernel, class Body>
TESSERA_INLINE void with_out_type(const attention_kernel_args& args, const Body& body) {
  if constexpr (traits<Kernel>::config.type != dtype::f8_e4m3) {
    body(typename traits<Kernel>::element{});
  } else if (args.out_type == dtype::f16) {
    body(f16{});
  } else {
    body(bf16{});
  }
}

/// Writes one query row of one head: `accumulated` * scale to `out`, and lse and row_max where
/// wanted. With no accumulator (a row that is not used) writes zeros. Weights start as zeros.
template <class Kernel>
void store_row(const attention_kernel_args& args, const prim::sequence& seq, std::int64_t query,
               int head, const prim::softmax_result& result, const float* accumulated) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using element = typename shape::element;
  const std::int64_t token = seq.q_begin + query;
  float factor = args.out_factor;
  if constexpr (shape::scales_heads) {
    if (args.v_scales != nullptr) factor *= args.v_scales[head / group_of(args)];
  }
  const auto scale = vec::broadcast(result.scale * factor);
  const int v_head_dim = shape::v_head_dim(args);
  with_out_type<Kernel>(args, [&]<class Out>(Out) {
    Out* out = token_row<Out>(args.out, args.out_strides, seq.index, token, head);
    for (int d = 0; d < v_head_dim; d += vec::width) {
      const auto x =
          accumulated != nullptr ? vec::mul(vec::load(accumulated + d), scale) : vec::zero();
      if (v_head_dim - d >= vec::width) {
        vec::store_as(out + d, x);
      } else {
        vec::store_as_n(out + d, x, v_head_dim - d);
      }
    }
  });
  const auto report = [&](const row_statistics& to, float value) {
    if (to.data == nullptr) return;
    to.data[seq.index * to.batch + head * to.head + token * to.row] = value;
  };
  report(args.lse, result.lse);
  report(args.row_max, result.row_max);
  if constexpr (shape::has(attention_feature::weights)) {
    if (args.weights == nullptr) return;
    const std::int64_t offset =
        seq.index * args.weights_batch + head * args.weights_head + query * args.weights_row;
    const auto clear = [&]<class Element>(Element* row) {
      for (std::int64_t j = 0; j < args.kv_len; ++j) row[j] = Element{};
    };
    if (args.weights_type == dtype::f32) {
      clear(static_cast<float*>(args.weights) + offset);
    } else {
      clear(static_cast<element*>(args.weights) + offset);
    }
  }
}

/// Writes the weights of the columns that a row of logits has in use.
template <class Kernel>
void store_weights(const attention_kernel_args& args, const score_row& row,
                   const prim::softmax_result& result) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using element = typename shape::element;
  const std::int64_t offset = row.at.batch * args.weights_batch + row.at.head * args.weights_head +
                              row.at.query * args.weights_row + row.key0;
  const auto shift = vec::broadcast(result.shift);
  const auto scale =
      vec::broadcast(result.weight_scale * (args.dropout ? args.dropout_scale : 1.0f));
  // A row of NaN has zeros where it hides or drops a key.
  const auto lowest = vec::broadcast(std::numeric_limits<float>::lowest());
  kept_weights<vec> kept(args, row.at, row.key0 + row.low);
  for (int c = row.low; c < row.high && c < row.columns; c += vec::width) {
    const auto score = vec::load(row.scores + c);
    auto weight = vec::mul(prim::exp_of<typename shape::isa_type>(vec::sub(score, shift)), scale);
    weight = vec::select_below(score, lowest, vec::zero(), weight);
    if constexpr (shape::has(attention_feature::dropout)) {
      if (args.dropout) weight = vec::select_below(vec::zero(), kept.next(), weight, vec::zero());
    }
    const int count = row.columns - c < vec::width ? row.columns - c : vec::width;
    if (args.weights_type == dtype::f32) {
      vec::store_as_n(static_cast<float*>(args.weights) + offset + c, weight, count);
    } else {
      vec::store_as_n(static_cast<element*>(args.weights) + offset + c, weight, count);
    }
  }
}

}  // namespace tessera::kernels::attention::cpu
