// Launches of the kernels of caches for GPUs (sm_80 and everything later).
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
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/kv_cache/sm80/append.hpp>
#include <tessera/kernels/kv_cache/sm80/copy.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::kv_cache::sm80 {

template <class Kernel>
constexpr bool appends = Kernel::config.pass == kv_cache_pass::append;

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
      return append_as<From, f8_e4m3>(launch, stream);
    case dtype::f8_e5m2:
      return append_as<From, f8_e5m2>(launch, stream);
    default:
      return append_as<From, std::int8_t>(launch, stream);
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

/// The launch of what a row does.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = kv_cache_kernel_args;

  static launcher of(const args_type& call, int /*multiprocessors*/, std::byte* /*workspace*/) {
    return {call};
  }

  /// One kernel stands for all: they are compiled together.
  static auto entries() {
    if constexpr (appends<Kernel>) {
      return std::array{cuda::entry_of(&append_tokens<1, float, float>)};
    } else {
      return std::array{cuda::entry_of(&copy_pages<uint4>)};
    }
  }
  static std::size_t bytes() { return 0; }
  cudaError_t launch(cudaStream_t stream) const {
    if constexpr (appends<Kernel>) {
      return append<Kernel>(args.append, stream);
    } else {
      return copy(args.copy, stream);
    }
  }

  const args_type& args;
};

}  // namespace tessera::kernels::kv_cache::sm80
