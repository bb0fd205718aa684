// What a row's kernels need of a device before they are launched there: code, and the limit of
// shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/merge.hpp>
#include <tessera/kernels/attention/sm80/weights.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::sm80 {

/// The driver's words for a failed call, as a status.
inline status device_failure(const char* what, cudaError_t code) {
  return {status_code::device, std::string(what) + ": " + cudaGetErrorString(code)};
}

/// Compute capability of a device, major * 10 + minor; 0 if it cannot be asked.
inline int capability_of(int device) {
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return 0;
  }
  return major * 10 + minor;
}

inline status no_code_for(int device) {
  const std::string capability = std::to_string(capability_of(device));
  return {status_code::device, "device " + std::to_string(device) + " has compute capability " +
                                   capability +
                                   ", for which this binary holds no code: rebuild it with "
                                   "-DTESSERA_CUDA_ARCHITECTURES=" +
                                   capability};
}

/// Checks that a kernel has code for the current device, and lets it take `shared_bytes` of dynamic
/// shared memory. `dependent` becomes false if the code was not compiled for sm_90 or later.
inline status ready_kernel(const void* kernel, int shared_bytes, int device, bool& dependent) {
  cudaFuncAttributes found{};
  if (const cudaError_t code = cudaFuncGetAttributes(&found, kernel); code != cudaSuccess) {
    cudaGetLastError();
    const bool absent =
        code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction;
    return absent ? no_code_for(device) : device_failure("cudaFuncGetAttributes", code);
  }
  dependent = dependent && found.ptxVersion >= 90;
  if (shared_bytes == 0) return {};
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return {status_code::device, "the kernel needs " + std::to_string(shared_bytes) +
                                   " bytes of shared memory: " + cudaGetErrorString(code)};
}

template <class Row>
constexpr bool takes_any_head_dim = Row::config.head_dim == 0;

/// One kernel of a row.
struct kernel_entry {
  const void* kernel = nullptr;
  int shared_bytes = 0;
};

template <class Row, int Width, class Tokens, class Hooks>
kernel_entry entry_of() {
  return {reinterpret_cast<const void*>(&forward_kernel<Row, Width, Tokens, Hooks>),
          kernel_traits<Row, Width, Tokens>::shared_bytes};
}

/// The forward kernels of a row.
template <class Row, class Hooks>
auto forward_entries() {
  if constexpr (takes_any_head_dim<Row>) {
    return std::array{entry_of<Row, any_widths[0], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[1], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[2], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[0], any_tokens, Hooks>(),
                      entry_of<Row, any_widths[1], any_tokens, Hooks>(),
                      entry_of<Row, any_widths[2], any_tokens, Hooks>()};
  } else {
    return std::array{entry_of<Row, 0, aligned_tokens, Hooks>()};
  }
}

/// What is known of devices, one bit each of the first 64. Hidden, because shared objects that hold
/// the same row have kernels, and so readiness, of their own.
template <class Row, class Hooks>
class __attribute__((visibility("hidden"))) device_readiness {
 public:
  /// Readies the current device, which is `device`; the first time only.
  static status ready(int device) {
    if ((ready_.load(std::memory_order_acquire) & bit_of(device)) != 0) return {};
    bool dependent = capability_of(device) >= 90;
    for (const kernel_entry& one : forward_entries<Row, Hooks>()) {
      if (status done = ready_kernel(one.kernel, one.shared_bytes, device, dependent); !done) {
        return done;
      }
    }
    const auto* const merge = reinterpret_cast<const void*>(&merge_splits<Row>);
    if (status done = ready_kernel(merge, 0, device, dependent); !done) return done;
    if constexpr (Row::config.features.has(attention_feature::weights)) {
      const auto* const weights = reinterpret_cast<const void*>(&write_weights<Row, Hooks>);
      if (status done = ready_kernel(weights, 0, device, dependent); !done) return done;
    }
    if (dependent) dependent_.fetch_or(bit_of(device), std::memory_order_relaxed);
    ready_.fetch_or(bit_of(device), std::memory_order_release);
    return {};
  }

  /// True if a kernel may be launched before the one before it has ended.
  static bool dependent(int device) {
    return (dependent_.load(std::memory_order_relaxed) & bit_of(device)) != 0;
  }

 private:
  static std::uint64_t bit_of(int device) {
    return device >= 0 && device < 64 ? std::uint64_t{1} << device : 0;
  }
  static inline std::atomic<std::uint64_t> ready_{0};
  static inline std::atomic<std::uint64_t> dependent_{0};
};

/// `device_readiness` of the current device, whose number becomes `device`.
template <class Row, class Hooks>
status ready_current(int& device) {
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
    cudaGetLastError();
    return device_failure("cudaGetDevice", code);
  }
  return device_readiness<Row, Hooks>::ready(device);
}

}  // namespace tessera::kernels::attention::sm80
