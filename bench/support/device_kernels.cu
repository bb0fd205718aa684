#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include "bench/support/device_kernels.hpp"

namespace tessera::bench {

namespace {

constexpr int block_threads = 256;
constexpr int blocks_per_multiprocessor = 4;
constexpr int chains = 8;

status answer_of(const char* tried, cudaError_t code) {
  if (code == cudaSuccess) return {};
  return {status_code::device, std::string(tried) + ": " + cudaGetErrorString(code)};
}

/// Operations of one step of one chain, of a thread.
template <device_product Kind>
constexpr double operations_of_step() {
  switch (Kind) {
    case device_product::fma_f32:
      return 4 * 2;
    case device_product::mma_bf16:
      return 2.0 * 16 * 8 * 16 / 32;
    case device_product::mma_tf32:
      return 2.0 * 16 * 8 * 8 / 32;
  }
  return 0;
}

/// One step: the sums of a chain take the next products.
template <device_product Kind>
__device__ __forceinline__ void step(float (&sum)[4], const std::uint32_t (&a)[4],
                                     const std::uint32_t (&b)[2]) {
  if constexpr (Kind == device_product::fma_f32) {
    const float factor = __uint_as_float(a[0]);
    const float addend = __uint_as_float(b[0]);
    for (float& value : sum) value = fmaf(value, factor, addend);
  } else if constexpr (Kind == device_product::mma_bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// Two bf16, or one f32, with magnitudes from 1 to 2 and any sign: multipliers draw less current,
/// and clocks are higher, where bits do not change.
__device__ std::uint32_t some_number(std::uint32_t index) {
  const std::uint32_t mixed = (index + 1) * 0x9E3779B9u;
  return 0x3f803f80u | ((mixed ^ mixed >> 15) & 0x807f807fu);
}

template <device_product Kind>
__global__ void __launch_bounds__(block_threads) run_chains(int steps, float* sink) {
  std::uint32_t a[4];
  std::uint32_t b[2];
  for (std::uint32_t i = 0; i < 4; ++i) a[i] = some_number(6 * threadIdx.x + i);
  for (std::uint32_t i = 0; i < 2; ++i) b[i] = some_number(6 * threadIdx.x + 4 + i);
  if constexpr (Kind == device_product::fma_f32) a[0] = __float_as_uint(-0.75f);
  float sums[chains][4] = {};
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (auto& chain : sums) step<Kind>(chain, a, b);
  }
  float total = 0;
  for (const auto& chain : sums) {
    for (const float value : chain) total += value;
  }
  if (total == 1.25e-30f) *sink = total;  // never true, but the compiler cannot know
}

__global__ void __launch_bounds__(block_threads)
    read_all(const uint4* from, std::size_t count, std::uint32_t* sink) {
  constexpr int at_once = 8;
  const std::size_t stride = std::size_t{gridDim.x} * block_threads;
  std::size_t at = std::size_t{blockIdx.x} * block_threads + threadIdx.x;
  std::uint32_t bits = 0;
  for (; at + (at_once - 1) * stride < count; at += at_once * stride) {
    uint4 words[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) words[i] = __ldcs(from + at + i * stride);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      bits |= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    }
  }
  for (; at < count; at += stride) bits |= from[at].x ^ from[at].y ^ from[at].z ^ from[at].w;
  if (bits == 0xffffffffu) *sink = bits;  // the memory that is read holds zeros
}

__global__ void __launch_bounds__(block_threads) write_noise(std::uint32_t* to, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * block_threads;
  std::size_t at = std::size_t{blockIdx.x} * block_threads + threadIdx.x;
  for (; at < count; at += stride) to[at] = some_number(static_cast<std::uint32_t>(at));
}

template <device_product Kind>
double launch_chains(int multiprocessors, int steps, void* sink, cudaStream_t stream) {
  const int blocks = multiprocessors * blocks_per_multiprocessor;
  run_chains<Kind><<<blocks, block_threads, 0, stream>>>(steps, static_cast<float*>(sink));
  return operations_of_step<Kind>() * chains * steps * block_threads * blocks;
}

}  // namespace

status launch_products(device_product kind, int multiprocessors, int steps, void* sink,
                       void* stream, double& operations) {
  auto* const in = static_cast<cudaStream_t>(stream);
  switch (kind) {
    case device_product::fma_f32:
      operations = launch_chains<device_product::fma_f32>(multiprocessors, steps, sink, in);
      break;
    case device_product::mma_bf16:
      operations = launch_chains<device_product::mma_bf16>(multiprocessors, steps, sink, in);
      break;
    case device_product::mma_tf32:
      operations = launch_chains<device_product::mma_tf32>(multiprocessors, steps, sink, in);
      break;
  }
  return answer_of("kernel launch", cudaGetLastError());
}

status launch_read(const void* from, std::size_t bytes, int multiprocessors, void* sink,
                   void* stream) {
  constexpr int blocks_to_read = 8;
  read_all<<<multiprocessors * blocks_to_read, block_threads, 0,
             static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4*>(from), bytes / 16,
                                                  static_cast<std::uint32_t*>(sink));
  return answer_of("kernel launch", cudaGetLastError());
}

status launch_copy(void* to, const void* from, std::size_t bytes, void* stream) {
  return answer_of("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                                      static_cast<cudaStream_t>(stream)));
}

status launch_noise(void* to, std::size_t bytes, void* stream) {
  constexpr int blocks = 1024;
  write_noise<<<blocks, block_threads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<std::uint32_t*>(to), bytes / 4);
  return answer_of("kernel launch", cudaGetLastError());
}

}  // namespace tessera::bench
