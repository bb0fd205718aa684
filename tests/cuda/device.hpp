// Devices, streams and events for the device tests.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <tessera/spec/tensor_view.hpp>

#include "tests/cuda/device_image.hpp"

namespace tessera::device_test {

inline constexpr device_id first_device{device_kind::cuda, 0};

/// Why there is nothing to test on this machine; empty if there is a device.
inline std::string absence() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(code);
  return devices > 0 ? "" : "no CUDA device";
}

/// A stream of the current device that no other stream waits for.
class stream {
 public:
  stream() { require(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "stream"); }
  ~stream() { cudaStreamDestroy(handle_); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  cudaStream_t handle() const { return handle_; }
  void wait() const { require(cudaStreamSynchronize(handle_), "stream"); }

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace tessera::device_test
