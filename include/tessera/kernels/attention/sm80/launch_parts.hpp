// Launches whose blocks have several warps with a part of the keys each: single tokens whose heads
// are the columns of products (group_tile.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/families/attention/share_blocks_sm80.hpp>
#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/sm80/row_kernels.hpp>
#include <tessera/kernels/attention/sm80/split_kv_listed.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_planner.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::attention::sm80 {

/// True if logits are products times the scale. Scales of heads of keys are known to the row where
/// queries become f16.
template <class Kernel, class Hooks>
bool has_plain_logits(const attention_kernel_args& args) {
  using mods = score_mods<Kernel, Hooks>;
  return !Hooks::has_logits &&
         (args.k_scales == nullptr || Kernel::config.keys == key_storage::coded) &&
         !mods::has_cap(args) && !mods::has_bias(args);
}

/// True if the heads of each group are the columns of products, for whose warps a block of the
/// device has room: `cut` has parts for them then.
template <class Kernel, class Hooks>
bool share_group_tokens(schedule_sm80::schedule& cut, const attention_kernel_args& args,
                        int multiprocessors, int device) {
  if constexpr (has_group_tokens<Kernel, Hooks>) {
    const schedule_sm80::call_sizes sizes = schedule_sm80::sizes_of(args);
    if (!schedule_sm80::are_all_grouped(Kernel::config, sizes)) return false;
    schedule_sm80::share_blocks(
        cut, Kernel::config, sizes, multiprocessors,
        parts_on<kernel_traits<Kernel, 0, group_tokens_of<Kernel, false>>>(device),
        parts_on<kernel_traits<Kernel, 0, group_tokens_of<Kernel, true>>>(device));
    return true;
  }
  return false;
}

/// As prim::cuda::launch_kernel, with `args.parts` warps a block.
template <class Traits, class Hooks>
cudaError_t launch_parts(void (*kernel)(launch_args, Hooks), dim3 grid, const launch_args& args,
                         const Hooks& hooks, cudaStream_t stream, bool dependent) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(Traits::threads, args.parts.value);
  config.dynamicSmemBytes = args.parts.value * static_cast<std::size_t>(Traits::shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args, hooks);
}

/// A launch whose blocks find their items by themselves, and the combination of their parts.
template <class Kernel, class Traits, class Hooks>
cudaError_t launch_planned(void (*kernel)(launch_args, Hooks), launch_args args, const Hooks& hooks,
                           const schedule_sm80::listing& list, cudaStream_t stream,
                           bool dependent) {
  const auto heads = static_cast<std::int64_t>(args.call.kv_heads);
  args.list.planned_share = static_cast<float>(heads) / static_cast<float>(list.slots);
  args.list.planned_least = 4 * list.least_tiles;
  const cudaError_t code = launch_parts<Traits>(
      kernel, dim3(static_cast<unsigned>(list.planned * heads)), args, hooks, stream, dependent);
  if (code != cudaSuccess) return code;
  return prim::cuda::launch_kernel(&combine_planned<Kernel>,
                                   dim3(static_cast<unsigned>(args.call.batch * heads)),
                                   combine_warps * 32, 0, stream, dependent, args);
}

}  // namespace tessera::kernels::attention::sm80
