// What blocksparse attention by the dense kernels for the matrix unit is on every back end: the
// call that those kernels get, and launches of one call or of each head of its groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/pair_scores.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Head `number` of each group, of which there are `group`; of a tensor that is absent, nothing.
template <class Tensor>
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

inline row_strides dense_strides(const sparse_rows& of) {
  return {.batch = of.entry, .row = of.token, .head = of.head};
}

/// Without positions, causality and windows are intervals of keys, which the dense kernels know.
inline void leave_to_dense_kernels(const blocksparse_kernel_args& call, visible_pairs& pairs) {
  if (call.q_positions.data != nullptr) return;
  pairs.causal = false;
  pairs.window_left = pairs.window_right = visible_pairs::far;
}

/// The dense call without what the mask of pairs says.
inline attention_kernel_args dense_call(const blocksparse_kernel_args& call) {
  const auto reach = [](std::int64_t window) {
    return window == blocksparse_kernel_args::far ? unbounded : window;
  };
  attention_kernel_args dense;
  dense.q = call.q.data;
  dense.k = call.k.data;
  dense.v = call.v.data;
  dense.out = call.out.data;
  dense.q_strides = dense_strides(call.q);
  dense.k_strides = dense_strides(call.k);
  dense.v_strides = dense_strides(call.v);
  dense.out_strides = dense_strides(call.out);
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

/// What both directions have besides the dense kernels: who sees whom, with the bounds of positions
/// and segments that a kernel makes first, and the workspace of the dense launch.
template <class Kernel, class Mask>
class dense_launch {
 public:
  std::size_t bytes() const { return parts_.bytes(); }

 protected:
  using pairs_type = pairs_of<Mask>;
  using hooks_type = blocksparse_hooks<pairs_type>;

  dense_launch(const blocksparse_kernel_args& call, const Mask& mask, std::size_t dense_bytes,
               std::byte* workspace)
      : pairs_(pairs_with(call, mask)),
        batch_(call.batch),
        dense_bytes_(dense_bytes),
        parts_(workspace) {
    place_bounds(pairs_, batch_, parts_);
    parts_.take(dense_workspace_, static_cast<std::int64_t>(dense_bytes_));
  }
  template <class Entries>
  static Entries with_bounds(Entries dense) {
    dense.push_back(cuda::entry_of(&make_bounds<Kernel>));
    return dense;
  }
  /// Queues the bounds, and what `run(context)` queues with the dense launch's workspace.
  template <class Run>
  status run_behind_bounds(launch_context context, const Run& run) const {
    kernel_queue queue(context);
    queue_bounds<Kernel>(queue, pairs_, batch_);
    if (status done = queue.ended(); !done) return done;
    context.workspace = dense_workspace_;
    context.workspace_bytes = dense_bytes_;
    return run(context);
  }

  pairs_type pairs_;

 private:
  std::int64_t batch_ = 0;
  std::size_t dense_bytes_ = 0;
  std::byte* dense_workspace_ = nullptr;
  cuda::workspace_parts parts_;
};

/// A row of blocksparse attention that stands on `Dense`: bytes_of(call), entries() and
/// launch(call, hooks, context), each with the type of the hooks.
template <class Kernel, class Mask, class Dense>
class dense_blocksparse_row : public dense_launch<Kernel, Mask> {
  using base = dense_launch<Kernel, Mask>;
  using typename base::hooks_type, typename base::pairs_type;

 public:
  dense_blocksparse_row(const blocksparse_kernel_args& call, const Mask& mask, int multiprocessors,
                        std::byte* workspace)
      : base(call, mask,
             Dense::template workspace_bytes<hooks_type>(dense_call(part_of(call, 0)),
                                                         multiprocessors),
             workspace),
        call_(call) {}

  static auto entries() { return base::with_bounds(Dense::template entries<hooks_type>()); }
  status launch(const launch_context& context) const {
    return base::run_behind_bounds(
        context, [this](const launch_context& dense) { return launch_parts(dense); });
  }

 private:
  /// Heads of a group are rows of the same tile, unless they have masks of their own: then each
  /// has launches of its own.
  static std::int64_t parts_in(const blocksparse_kernel_args& call) {
    const auto has_heads = [](const sparse_mask& mask) {
      return mask.data != nullptr && mask.head != 0;
    };
    const std::int64_t group = call.q_heads / call.kv_heads;
    return has_heads(call.mask) || has_heads(call.block_mask) ? group : 1;
  }
  /// Head `number` of each group.
  static blocksparse_kernel_args part_of(const blocksparse_kernel_args& call, std::int64_t number) {
    const std::int64_t group = parts_in(call);
    blocksparse_kernel_args part = call;
    if (group == 1) return part;
    part.q_heads = call.kv_heads;
    part.q = heads_of(call.q, number, group);
    part.out = heads_of(call.out, number, group);
    part.lse = heads_of(call.lse, number, group);
    part.mask = heads_of(call.mask, number, group);
    part.block_mask = heads_of(call.block_mask, number, group);
    part.sinks = heads_of(call.sinks, number, group);
    return part;
  }

  status launch_parts(const launch_context& context) const {
    const std::int64_t parts = parts_in(call_);
    for (std::int64_t number = 0; number < parts; ++number) {
      const blocksparse_kernel_args call = part_of(call_, number);
      pairs_type pairs = this->pairs_;
      pairs.mask = call.mask;
      pairs.block_mask = call.block_mask;
      leave_to_dense_kernels(call, pairs);
      if constexpr (is_functor<Mask>) {
        pairs.first_head = static_cast<int>(number);
        pairs.head_step = static_cast<int>(parts);
      }
      const status done = Dense::launch(dense_call(call), hooks_type({}, pairs), context);
      if (!done) return done;
    }
    return {};
  }

  blocksparse_kernel_args call_;
};

}  // namespace tessera::kernels::sparse_attention::sm80
