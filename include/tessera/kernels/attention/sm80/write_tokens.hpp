// New keys and values to the pool, in a kernel of its own before the one that attends to them.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/token_slot.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int writing_warps = 4;  ///< of a block, which writes a token; each has a channel

/// `Element` is an integer of the size of the pool's elements.
template <class Element>
__device__ __forceinline__ void write_channel(const attention_kernel_args& args,
                                              const slot_channel& channel, int lane) {
  constexpr int chunk = 16 / static_cast<int>(sizeof(Element));
  // The declaration says that the pool is input and output.
  auto* const to =
      static_cast<Element*>(const_cast<void*>(channel.is_value ? args.v : args.k)) + channel.target;
  const auto* const from =
      static_cast<const Element*>(channel.is_value ? args.written.v : args.written.k) +
      channel.source;
  const bool wide = channel.copied > 0 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0 &&
                    reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  const int chunks = wide ? channel.copied / chunk : 0;
  for (int at = lane; at < chunks; at += prim::cuda::warp_size) {
    reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
  }
  for (std::int64_t d = chunks * chunk + lane; d < channel.columns; d += prim::cuda::warp_size) {
    to[d] = d < channel.copied ? from[d] : Element{};
  }
}

/// Templates of Kernel, so that shared objects that hold the same row have kernels of their own.
template <class Kernel>
__global__ void __launch_bounds__(writing_warps * 32)
    write_tokens_kernel(const __grid_constant__ attention_kernel_args args) {
  using stored = typename stored_element<element_t<Kernel::config.type>>::type;
  const std::int64_t token = blockIdx.x;
  if (sequences_in_use(args) == 0) return;
  const token_slot slot = slot_of(args, token);
  if (!slot.present) return;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const std::int64_t channels = channels_of(args);
  for (std::int64_t c = threadIdx.x / prim::cuda::warp_size; c < channels; c += writing_warps) {
    write_channel<stored>(args, channel_of(args, slot, token, c), lane);
  }
}

/// Queues the writes of a launch that has some.
template <class Kernel>
cudaError_t write_tokens(const attention_kernel_args& args, cudaStream_t stream) {
  if (args.written.k == nullptr || args.q_len == 0) return cudaSuccess;
  return prim::cuda::launch_kernel(&write_tokens_kernel<Kernel>,
                                   dim3(static_cast<unsigned>(args.q_len)), writing_warps * 32, 0,
                                   stream, false, args);
}

}  // namespace tessera::kernels::attention::sm80
