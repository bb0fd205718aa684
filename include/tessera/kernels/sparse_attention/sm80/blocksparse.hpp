// The launches of blocksparse attention of any type: workspace, kernels and their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse_backward.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse_forward.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Places bounds of positions and segments, where they lie in memory.
inline void place_bounds(visible_pairs& pairs, std::int64_t batch, cuda::workspace_parts& parts) {
  if (!pairs.needs_bounds()) return;
  parts.take(pairs.rows, batch * pairs.row_steps());
  parts.take(pairs.keys, batch * pairs.key_steps());
}
/// Makes them.
template <class Kernel>
void queue_bounds(kernel_queue& queue, const visible_pairs& pairs, std::int64_t batch) {
  if (!pairs.needs_bounds()) return;
  const std::int64_t items = batch * (pairs.row_steps() + pairs.key_steps());
  queue.run(&make_bounds<Kernel>, (items + bounds_threads - 1) / bounds_threads, bounds_threads, 0,
            pairs, batch, pairs.row_steps(), pairs.key_steps());
}

template <class Kernel, class Mask>
class blocksparse_forward_row {
 public:
  blocksparse_forward_row(const blocksparse_kernel_args& call, const Mask& mask,
                          int /*multiprocessors*/, std::byte* workspace)
      : launch_{.call = call, .pairs = pairs_with(call, mask)}, parts_(workspace) {
    place_bounds(launch_.pairs, call.batch, parts_);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    return std::array{cuda::entry_of(&make_bounds<Kernel>),
                      cuda::entry_of(&blocksparse_attend<Kernel, Mask>,
                                     attend_bytes(most_head_dim, most_head_dim))};
  }
  status launch(const launch_context& context) const {
    const blocksparse_kernel_args& call = launch_.call;
    kernel_queue queue(context);
    queue_bounds<Kernel>(queue, launch_.pairs, call.batch);
    queue.run_items(&blocksparse_attend<Kernel, Mask>,
                    call.batch * call.q_heads * launch_.row_tiles(), threads,
                    attend_bytes(call.head_dim, call.v_head_dim), launch_);
    return queue.ended();
  }

 private:
  blocksparse_launch<Mask> launch_;
  cuda::workspace_parts parts_;
};

template <class Kernel, class Mask>
class blocksparse_backward_row {
 public:
  blocksparse_backward_row(const blocksparse_kernel_args& call, const Mask& mask,
                           int /*multiprocessors*/, std::byte* workspace)
      : launch_{.call = call, .pairs = pairs_with(call, mask)}, parts_(workspace) {
    place_bounds(launch_.pairs, call.batch, parts_);
    parts_.take(launch_.corrections, call.batch * call.q_heads * call.q_len);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    const int most = gradient_bytes(most_head_dim, most_head_dim);
    return std::array{cuda::entry_of(&make_bounds<Kernel>),
                      cuda::entry_of(&blocksparse_corrections<Kernel, Mask>),
                      cuda::entry_of(&blocksparse_query_gradients<Kernel, Mask>, most),
                      cuda::entry_of(&blocksparse_key_gradients<Kernel, Mask>, most),
                      cuda::entry_of(&blocksparse_sink_gradients<Kernel, Mask>)};
  }
  status launch(const launch_context& context) const {
    const blocksparse_kernel_args& call = launch_.call;
    const int shared = gradient_bytes(call.head_dim, call.v_head_dim);
    const std::int64_t row_items = call.batch * call.q_heads * launch_.row_tiles();
    kernel_queue queue(context);
    queue_bounds<Kernel>(queue, launch_.pairs, call.batch);
    queue.run_items(&blocksparse_corrections<Kernel, Mask>, row_items, threads, 0, launch_);
    queue.run_items(&blocksparse_query_gradients<Kernel, Mask>, row_items, threads, shared,
                    launch_);
    queue.run_items(&blocksparse_key_gradients<Kernel, Mask>,
                    call.batch * call.kv_heads * launch_.key_tiles(), threads, shared, launch_);
    if (call.d_sinks.data != nullptr) {
      queue.run(&blocksparse_sink_gradients<Kernel, Mask>, call.sink_rows * call.sink_count,
                threads, 0, launch_);
    }
    return queue.ended();
  }

 private:
  blocksparse_launch<Mask> launch_;
  cuda::workspace_parts parts_;
};

}  // namespace tessera::kernels::sparse_attention::sm80
