// Launches that pack and unpack weights on a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/kernels/quantized/sm80/quantize.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

class quantize_row {
 public:
  quantize_row(const quantized_kernel_args& args, std::byte*) : args_(args) {}

  static auto entries() { return std::array{cuda::entry_of(&quantize_weights)}; }
  static std::size_t bytes() { return 0; }

  status launch(cudaStream_t stream, bool /*dependent*/) const {
    const packed_weights& to = args_.weights;
    const std::int64_t span = to.group_size < 32 ? 32 : to.group_size;
    const std::int64_t blocks =
        (to.rows + quantize_warps - 1) / quantize_warps * ((to.columns() + span - 1) / span);
    if (blocks == 0) return {};
    return cuda::launched(prim::cuda::launch_kernel(&quantize_weights, cuda::grid_of(blocks),
                                                    quantize_warps * 32, 0, stream, false, args_));
  }

 private:
  const quantized_kernel_args& args_;
};

class dequantize_row {
 public:
  dequantize_row(const quantized_kernel_args& args, std::byte*) : args_(args) {}

  static auto entries() { return std::array{cuda::entry_of(&decode_weights)}; }
  static std::size_t bytes() { return 0; }

  status launch(cudaStream_t stream, bool /*dependent*/) const {
    const packed_weights& from = args_.weights;
    const decode_range all{.rows = from.rows, .units = from.columns() / unit_columns};
    if (all.blocks() == 0) return {};
    return cuda::launched(prim::cuda::launch_kernel(&decode_weights, cuda::grid_of(all.blocks()),
                                                    decode_threads, 0, stream, false, from, args_.w,
                                                    all));
  }

 private:
  const quantized_kernel_args& args_;
};

}  // namespace tessera::kernels::quantized::sm80
