// Entry points of the kernels of caches for GPUs (sm_80 and everything later): workspace,
// preparation and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/kernels/kv_cache/sm80/append.hpp>
#include <tessera/kernels/kv_cache/sm80/copy.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::kv_cache::sm80 {

template <class Kernel>
constexpr bool appends = Kernel::config.pass == kv_cache_pass::append;

/// None is needed.
template <class Kernel>
std::size_t workspace_bytes(const kv_cache_kernel_args&, int) {
  return 0;
}

/// One kernel stands for all: they are compiled together.
template <class Kernel>
struct row_kernels {
  static_assert(broken_rule(Kernel::config) == kv_cache_rule::none);
  static auto entries() {
    if constexpr (appends<Kernel>) {
      return std::array{
          prim::cuda::kernel_entry{reinterpret_cast<const void*>(&append_tokens<1, float, float>)}};
    } else {
      return std::array{
          prim::cuda::kernel_entry{reinterpret_cast<const void*>(&copy_pages<uint4>)}};
    }
  }
};

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  int device = 0;
  return prim::cuda::readiness<row_kernels<Kernel>>::ready_current(device);
}

/// To pools of any type.
template <class From>
cudaError_t append_from(append_launch& launch, cudaStream_t stream) {
  switch (launch.call.pool_type) {
    case dtype::f32:
      return append_as<From, float>(launch, stream);
    case dtype::f16:
      return append_as<From, f16>(launch, stream);
    case dtype::bf16:
      return append_as<From, bf16>(launch, stream);
    case dtype::f8_e4m3:
      return append_as<From, f8_e4m3, true>(launch, stream);
    case dtype::f8_e5m2:
      return append_as<From, f8_e5m2, true>(launch, stream);
    default:
      return append_as<From, std::int8_t, true>(launch, stream);
  }
}

/// Queues the writes of the new tokens on a stream of the current device; can be captured.
/// A template, so that only rows which append have its kernels.
template <class Kernel>
cudaError_t append(const kv_append_args& args, cudaStream_t stream) {
  if (!has_tokens(args)) return cudaSuccess;
  append_launch launch = launch_of(args);
  switch (args.new_type) {
    case dtype::f32:
      return append_from<float>(launch, stream);
    case dtype::f16:
      return append_from<f16>(launch, stream);
    default:
      return append_from<bf16>(launch, stream);
  }
}

/// Queues the row's kernel on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const kv_cache_kernel_args& args, const launch_context& context) {
  if (status done = prepare<Kernel>(); !done) return done;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaError_t code = cudaSuccess;
  if constexpr (appends<Kernel>) {
    code = append<Kernel>(args.append, stream);
  } else {
    code = copy(args.copy, stream);
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

}  // namespace tessera::kernels::kv_cache::sm80
