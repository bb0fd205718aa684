// What blocksparse attention by the dense kernels is on every target: the calls that they get, one
// or one of each head of its groups, and what of the masks is an interval of keys there.
//
// Units with wider instructions compile these functions too: `Unit` tells their copies apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>

namespace tessera::kernels::sparse_attention {

/// Head `number` of each group, of which there are `group`; of a tensor that is absent, nothing.
template <class Unit = void, class Tensor>
Tensor heads_of(Tensor tensor, std::int64_t number, std::int64_t group) {
  if (tensor.data == nullptr) return tensor;
  if constexpr (requires { tensor.type; }) {
    const auto bytes = static_cast<std::int64_t>(size_of(tensor.type));
    tensor.data = static_cast<std::byte*>(tensor.data) + number * tensor.head * bytes;
  } else {
    tensor.data += number * tensor.head;
  }
  tensor.head *= group;
  return tensor;
}

/// Calls that a call is made in. Heads of a group are rows of the same tile, unless they have masks
/// of their own: then each has launches of its own.
template <class Unit = void>
std::int64_t parts_in(const blocksparse_kernel_args& call) {
  const auto has_heads = [](const sparse_mask& mask) {
    return mask.data != nullptr && mask.head != 0;
  };
  const std::int64_t group = call.q_heads / call.kv_heads;
  return has_heads(call.mask) || has_heads(call.block_mask) ? group : 1;
}

/// Head `number` of each group where there are several parts.
template <class Unit = void>
blocksparse_kernel_args part_of(const blocksparse_kernel_args& call, std::int64_t number) {
  const std::int64_t group = parts_in<Unit>(call);
  blocksparse_kernel_args part = call;
  if (group == 1) return part;
  part.q_heads = call.kv_heads;
  part.q = heads_of<Unit>(call.q, number, group);
  part.out = heads_of<Unit>(call.out, number, group);
  part.lse = heads_of<Unit>(call.lse, number, group);
  part.mask = heads_of<Unit>(call.mask, number, group);
  part.block_mask = heads_of<Unit>(call.block_mask, number, group);
  part.sinks = heads_of<Unit>(call.sinks, number, group);
  return part;
}

/// Without positions, causality and windows are intervals of keys, which the dense kernels know:
/// `pairs`, the call or what was made of it, need not.
template <class Unit = void, class Pairs>
void leave_to_dense_kernels(const blocksparse_kernel_args& call, Pairs& pairs) {
  if (call.q_positions.data != nullptr) return;
  pairs.causal = false;
  pairs.window_left = pairs.window_right = blocksparse_kernel_args::far;
}

template <class Unit = void>
row_strides dense_strides(const sparse_rows& of) {
  return {.batch = of.entry, .row = of.token, .head = of.head};
}

/// The dense call without what the mask of pairs says.
template <class Unit = void>
attention_kernel_args dense_call(const blocksparse_kernel_args& call) {
  const auto reach = [](std::int64_t window) {
    return window == blocksparse_kernel_args::far ? unbounded : window;
  };
  attention_kernel_args dense;
  dense.q = call.q.data;
  dense.k = call.k.data;
  dense.v = call.v.data;
  dense.out = call.out.data;
  dense.q_strides = dense_strides<Unit>(call.q);
  dense.k_strides = dense_strides<Unit>(call.k);
  dense.v_strides = dense_strides<Unit>(call.v);
  dense.out_strides = dense_strides<Unit>(call.out);
  dense.lse = {call.lse.data, call.lse.entry, call.lse.head, call.lse.token};
  dense.sinks = call.sinks.data;
  dense.sink_head_stride = call.sinks.head;
  dense.sink_stride = call.sinks.sink;
  dense.sink_count = static_cast<int>(call.sink_count);
  dense.batch = call.batch;
  dense.q_len = call.q_len;
  dense.kv_len = call.kv_len;
  dense.q_heads = static_cast<int>(call.q_heads);
  dense.kv_heads = static_cast<int>(call.kv_heads);
  dense.head_dim = static_cast<int>(call.head_dim);
  dense.v_head_dim = static_cast<int>(call.v_head_dim);
  dense.softmax_scale = call.softmax_scale;
  dense.soft_cap = call.soft_cap;
  dense.top_left = call.first_position == 0;
  if (call.q_positions.data != nullptr) return dense;
  dense.causal = call.causal;
  dense.window_left = reach(call.window_left);
  dense.window_right = reach(call.window_right);
  return dense;
}

/// The same of gradients.
template <class Unit = void>
attention_backward_kernel_args dense_gradient_call(const blocksparse_kernel_args& call) {
  return {.forward = dense_call<Unit>(call),
          .d_out = call.d_out.data,
          .d_out_strides = dense_strides<Unit>(call.d_out),
          .d_lse = {call.d_lse.data, call.d_lse.entry, call.d_lse.head, call.d_lse.token},
          .d_q = call.d_q.data,
          .d_k = call.d_k.data,
          .d_v = call.d_v.data,
          .d_q_strides = dense_strides<Unit>(call.d_q),
          .d_k_strides = dense_strides<Unit>(call.d_k),
          .d_v_strides = dense_strides<Unit>(call.d_v),
          .d_sinks = call.d_sinks.data,
          .d_sink_head_stride = call.d_sinks.head,
          .d_sink_stride = call.d_sinks.sink,
          .d_sink_heads = call.sink_rows};
}

}  // namespace tessera::kernels::sparse_attention
