// Kernels that show what a GPU can do at most: nothing but independent products, reading, copying.
// Launched on the current device, in a stream of it; no CUDA header is needed to call them.
#pragma once

#include <cstddef>

#include <tessera/spec/status.hpp>

namespace tessera::bench {

/// Arithmetic of the chains.
enum class device_product {
  fma_f32,   ///< multiply-adds of the vector lanes
  mma_bf16,  ///< mma.sync m16n8k16, sums in f32
  mma_tf32,  ///< mma.sync m16n8k8
};

/// Independent chains on every lane of `multiprocessors`; `operations` becomes their number, a
/// multiply-add counting as two. `sink` has 4 bytes.
status launch_products(device_product kind, int multiprocessors, int steps, void* sink,
                       void* stream, double& operations);

/// Reads all of the memory once; `bytes` is a multiple of 16.
status launch_read(const void* from, std::size_t bytes, int multiprocessors, void* sink,
                   void* stream);

/// Copies within the device.
status launch_copy(void* to, const void* from, std::size_t bytes, void* stream);

/// Fills memory with bf16 numbers of magnitudes from 1 to 2 and any sign.
status launch_noise(void* to, std::size_t bytes, void* stream);

}  // namespace tessera::bench
