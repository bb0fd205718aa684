// What launching a kernel takes on the host: code for the device and its limit of shared memory,
// the launch itself, the driver's words for failures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <tessera/spec/status.hpp>

namespace tessera::prim::cuda {

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
  cudaFuncAttributes attributes{};
  if (const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel); code != cudaSuccess) {
    cudaGetLastError();
    const bool absent =
        code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction;
    return absent ? no_code_for(device) : device_failure("cudaFuncGetAttributes", code);
  }
  dependent = dependent && attributes.ptxVersion >= 90;
  if (shared_bytes == 0) return {};
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return {status_code::device, "the kernel needs " + std::to_string(shared_bytes) +
                                   " bytes of shared memory: " + cudaGetErrorString(code)};
}

/// One kernel of a row.
struct kernel_entry {
  const void* kernel = nullptr;
  int shared_bytes = 0;
};

/// What is known of devices, one bit each of the first 64. `Kernels::entries()` lists the kernels
/// of a row. Hidden, because shared objects that hold the same row have kernels, and so readiness,
/// of their own.
template <class Kernels>
class __attribute__((visibility("hidden"))) readiness {
 public:
  /// Readies the current device, which is `device`; the first time only.
  static status ready(int device) {
    if ((ready_.load(std::memory_order_acquire) & bit_of(device)) != 0) return {};
    bool dependent = capability_of(device) >= 90;
    for (const kernel_entry& entry : Kernels::entries()) {
      if (status done = ready_kernel(entry.kernel, entry.shared_bytes, device, dependent); !done) {
        return done;
      }
    }
    if (dependent) dependent_.fetch_or(bit_of(device), std::memory_order_relaxed);
    ready_.fetch_or(bit_of(device), std::memory_order_release);
    return {};
  }

  /// The same; the number of the current device becomes `device`.
  static status ready_current(int& device) {
    if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
      cudaGetLastError();
      return device_failure("cudaGetDevice", code);
    }
    return ready(device);
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

/// Launches a kernel whose blocks form clusters of so many (compute capability 9.0); with
/// `dependent` before the kernel before it in the stream has ended, which it must wait for.
template <class... Parameters, class... Arguments>
cudaError_t launch_clusters(void (*kernel)(Parameters...), dim3 grid, int blocks_of_cluster,
                            int threads, int shared_bytes, cudaStream_t stream, bool dependent,
                            const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(blocks_of_cluster);
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = dependent ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Launches a kernel; with `dependent` before the kernel before it in the stream has ended, which
/// it must wait for.
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes,
                          cudaStream_t stream, bool dependent, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

inline status answer_of(const char* tried, cudaError_t code) {
  return code == cudaSuccess ? status() : device_failure(tried, code);
}

/// The current device until the end of the scope.
class device_scope {
 public:
  explicit device_scope(int ordinal) {
    entered_ = answer_of("cudaGetDevice", cudaGetDevice(&before_));
    if (entered_ && before_ != ordinal) {
      entered_ = answer_of("cudaSetDevice", cudaSetDevice(ordinal));
      changed_ = static_cast<bool>(entered_);
    }
  }
  ~device_scope() {
    if (changed_) cudaSetDevice(before_);
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  const status& entered() const { return entered_; }

 private:
  status entered_;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tessera::prim::cuda
