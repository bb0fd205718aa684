// The mask of dropout as an output, as large as the score matrix, on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::kernels::attention {

/// A [B, Hq, Sq, Sk] mask, one byte an element: 1 where dropout keeps the weight.
struct dropout_mask_args {
  std::uint8_t* data = nullptr;
  std::int64_t extent[4] = {};
  std::int64_t stride[4] = {};
  std::uint64_t seed = 0;
  std::uint64_t threshold = 0;
};

/// Four keys a thread, which share one draw.
template <class Kernel>
__global__ void dropout_mask_kernel(const __grid_constant__ dropout_mask_args args) {
  const std::int64_t groups = (args.extent[3] + 3) / 4;
  const std::int64_t flat = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (flat >= args.extent[0] * args.extent[1] * args.extent[2] * groups) return;
  const std::int64_t key = flat % groups * 4;
  const std::int64_t row = flat / groups % args.extent[2];
  const std::int64_t head = flat / groups / args.extent[2] % args.extent[1];
  const std::int64_t entry = flat / groups / args.extent[2] / args.extent[1];
  const prim::philox_block words =
      prim::dropout_words(args.seed, entry, static_cast<int>(head), row, key);
  std::uint8_t* to =
      args.data + entry * args.stride[0] + head * args.stride[1] + row * args.stride[2];
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    if (key + lane < args.extent[3]) {
      to[(key + lane) * args.stride[3]] =
          words[static_cast<std::size_t>(lane)] >= args.threshold ? 1 : 0;
    }
  }
}

/// Writes the bits of dropout to a [B, Hq, Sq, Sk] mask in device memory, masked elements included.
template <class Kernel>
status launch_dropout_mask(const tensor_view& mask, const attention_kernel_args& args,
                           void* stream) {
  if (mask.elements() == 0) return {};
  dropout_mask_args launched;
  launched.data = static_cast<std::uint8_t*>(mask.data);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    launched.extent[axis] = mask.extent[axis];
    launched.stride[axis] = mask.stride[axis];
  }
  launched.seed = args.dropout_seed;
  launched.threshold = args.dropout_threshold;
  constexpr int threads = 256;
  const std::int64_t draws = mask.elements() / mask.extent[3] * ((mask.extent[3] + 3) / 4);
  const cudaError_t code = prim::cuda::launch_kernel(
      &dropout_mask_kernel<Kernel>, dim3(static_cast<unsigned>((draws + threads - 1) / threads)),
      threads, 0, static_cast<cudaStream_t>(stream), false, launched);
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

}  // namespace tessera::kernels::attention
