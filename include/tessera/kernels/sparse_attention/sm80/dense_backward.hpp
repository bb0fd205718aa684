// Gradients of blocksparse attention of f16 and bf16 by the dense kernels for the matrix unit that
// always give the same bits: a pass for keys and one for queries, which walk through the tiles that
// are seen (attention_backward/sm80/tile_walk.hpp). With nothing hidden the bits are the dense
// row's. A walk goes head by head, so that masks of single heads need no launches of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/attention_backward/sm80/launch.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/listed_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward::sm80 {

template <kernels::sparse_attention::sm80::says_who_is_seen Pairs>
inline constexpr bool lists_tiles<kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>> = true;

}  // namespace tessera::kernels::attention_backward::sm80

namespace tessera::kernels::sparse_attention::sm80 {

/// The row of gradients of attention that a row of blocksparse attention stands on.
template <class Kernel>
struct dense_gradient_row {
  static constexpr attention_backward_config config{.target = backend::cuda_sm80,
                                                    .type = Kernel::config.type,
                                                    .head_dim = Kernel::config.head_dim};
};

/// The dense call without what the mask of pairs says.
inline attention_backward_kernel_args dense_gradient_call(const blocksparse_kernel_args& call) {
  return {.forward = dense_call(call),
          .d_out = call.d_out.data,
          .d_out_strides = dense_strides(call.d_out),
          .d_lse = {call.d_lse.data, call.d_lse.entry, call.d_lse.head, call.d_lse.token},
          .d_q = call.d_q.data,
          .d_k = call.d_k.data,
          .d_v = call.d_v.data,
          .d_q_strides = dense_strides(call.d_q),
          .d_k_strides = dense_strides(call.d_k),
          .d_v_strides = dense_strides(call.d_v),
          .d_sinks = call.d_sinks.data,
          .d_sink_head_stride = call.d_sinks.head,
          .d_sink_stride = call.d_sinks.sink,
          .d_sink_heads = call.sink_rows};
}

template <class Kernel, class Mask>
class dense_blocksparse_backward_row {
  using row = dense_gradient_row<Kernel>;
  using pairs_type = pairs_of<Mask>;
  using hooks_type = blocksparse_hooks<pairs_type>;

 public:
  dense_blocksparse_backward_row(const blocksparse_kernel_args& call, const Mask& mask,
                                 int multiprocessors, std::byte* workspace)
      : batch_(call.batch),
        dense_(dense_gradient_call(call)),
        pairs_(pairs_with(call, mask)),
        parts_(workspace) {
    place_bounds(pairs_, call.batch, parts_);
    dense_bytes_ = attention_backward::sm80::workspace_bytes<row>(dense_, multiprocessors);
    parts_.take(dense_workspace_, static_cast<std::int64_t>(dense_bytes_));
    leave_to_dense_kernels(call, pairs_);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    auto all = attention_backward::sm80::row_kernels<row, hooks_type>::entries();
    all.push_back(cuda::entry_of(&make_bounds<Kernel>));
    return all;
  }
  status launch(const launch_context& context) const {
    kernel_queue queue(context);
    queue_bounds<Kernel>(queue, pairs_, batch_);
    if (status done = queue.ended(); !done) return done;
    launch_context dense = context;
    dense.workspace = dense_workspace_;
    dense.workspace_bytes = dense_bytes_;
    return attention_backward::sm80::launch_with<row>(dense_, hooks_type({}, pairs_), dense);
  }

 private:
  std::int64_t batch_ = 0;
  attention_backward_kernel_args dense_;
  pairs_type pairs_;
  cuda::workspace_parts parts_;
  std::byte* dense_workspace_ = nullptr;
  std::size_t dense_bytes_ = 0;
};

}  // namespace tessera::kernels::sparse_attention::sm80
