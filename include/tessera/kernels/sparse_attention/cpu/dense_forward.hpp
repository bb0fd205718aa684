// Blocksparse attention by the dense kernels, whose tile iterator goes over the blocks that are
// seen: the same loops, panels that all items of a head share, and with nothing hidden the same
// bits. Without positions, causality and windows are intervals of keys there too.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/attention/cpu/launch.hpp>
#include <tessera/kernels/sparse_attention/common/dense_call.hpp>
#include <tessera/kernels/sparse_attention/cpu/dense_row.hpp>
#include <tessera/kernels/sparse_attention/cpu/visible_pairs.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>

namespace tessera::kernels::sparse_attention::cpu {

template <class Kernel, class Mask = prim::no_mask_functor>
class dense_blocksparse_forward {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using pairs_type = visible_pairs<isa_type, Mask>;
  using row = dense_row<Kernel>;

 public:
  explicit dense_blocksparse_forward(const blocksparse_kernel_args& args, const Mask& mask = {})
      : args_(args), mask_(mask) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    static_cast<void>(pairs_type(args_, mask_, memory));
    return memory.bytes() + dense_bytes(threads);
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    pairs_type(args_, mask_, memory).prepare(threads);
    const std::int64_t parts = parts_in<isa_type>(args_);
    for (std::int64_t number = 0; number < parts; ++number) {
      const blocksparse_kernel_args part = part_of<isa_type>(args_, number);
      blocksparse_kernel_args hidden = part;
      leave_to_dense_kernels<isa_type>(part, hidden);
      prim::float_carver of_bounds(workspace);
      const pairs_type pairs(hidden, mask_, of_bounds, static_cast<int>(number),
                             static_cast<int>(parts));
      const flash_hooks<prim::no_logit_modifier, pairs_type> hooks({}, pairs);
      // Its workspace is what it asks for: nothing is refused.
      static_cast<void>(attention::cpu::launch_with<row>(
          dense_call<isa_type>(part), hooks,
          {threads, workspace + memory.bytes(), dense_bytes(threads)}));
    }
  }

 private:
  std::size_t dense_bytes(int threads) const {
    return attention::cpu::workspace_bytes<row>(dense_call<isa_type>(part_of<isa_type>(args_, 0)),
                                                threads);
  }

  const blocksparse_kernel_args args_;
  const Mask mask_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
