// What blocksparse attention by the dense kernels for the matrix unit is on every back end:
// launches of one call or of each head of its groups (common/dense_call.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/common/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/pair_scores.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

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
