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

template <class Kernel, class Mask>
class dense_blocksparse_backward_row : public dense_launch<Kernel, Mask> {
  using base = dense_launch<Kernel, Mask>;
  using typename base::hooks_type;
  using row = dense_gradient_row<Kernel>;

 public:
  dense_blocksparse_backward_row(const blocksparse_kernel_args& call, const Mask& mask,
                                 int multiprocessors, std::byte* workspace)
      : base(call, mask,
             attention_backward::sm80::workspace_bytes<row>(dense_gradient_call(call),
                                                            multiprocessors),
             workspace),
        call_(call) {}

  static auto entries() {
    return base::with_bounds(attention_backward::sm80::row_kernels<row, hooks_type>::entries());
  }
  status launch(const launch_context& context) const {
    auto pairs = this->pairs_;
    leave_to_dense_kernels(call_, pairs);
    return base::run_behind_bounds(context, [&](const launch_context& dense) {
      return attention_backward::sm80::launch_with<row>(dense_gradient_call(call_),
                                                        hooks_type({}, pairs), dense);
    });
  }

 private:
  blocksparse_kernel_args call_;
};

}  // namespace tessera::kernels::sparse_attention::sm80
