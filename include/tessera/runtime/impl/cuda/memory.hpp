// Memory of the current device. The library has a pool of its own on each device, so that the pools
// of the application keep their settings; nothing here waits for the whole device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/cuda/failure.hpp>

namespace tessera::impl::cuda {

namespace {

/// Lets this thread allocate while another thread, or this one, captures a stream: what is
/// allocated here takes no part in the capture.
class beside_captures {
 public:
  beside_captures() noexcept { exchange(); }
  ~beside_captures() { exchange(); }
  beside_captures(const beside_captures&) = delete;
  beside_captures& operator=(const beside_captures&) = delete;

 private:
  void exchange() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The pool of a device and the stream on which plans take their memory from it.
struct device_pool {
  std::mutex guard;
  cudaMemPool_t pool = nullptr;
  cudaStream_t stream = nullptr;
};

/// Makes what is missing; the caller holds the guard.
status complete(device_pool& one, int ordinal) {
  // Freed memory up to this size stays with the pool when a stream is waited for.
  constexpr std::uint64_t kept_bytes = std::uint64_t{64} << 20;
  const beside_captures scope;
  if (one.pool == nullptr) {
    int supported = 0;
    status asked =
        answer_of("cudaDeviceGetAttribute",
                  cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, ordinal));
    if (!asked) return asked;
    if (supported == 0) {
      return {status_code::device, "cuda:" + std::to_string(ordinal) +
                                       " has no memory pools; give context.workspace or "
                                       "context.allocator"};
    }
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {};
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = ordinal;
    cudaMemPool_t made = nullptr;
    if (status done = answer_of("cudaMemPoolCreate", cudaMemPoolCreate(&made, &wanted)); !done) {
      return done;
    }
    std::uint64_t kept = kept_bytes;
    static_cast<void>(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &kept));
    one.pool = made;
  }
  if (one.stream != nullptr) return {};
  return answer_of("cudaStreamCreateWithFlags",
                   cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking));
}

constexpr int most_devices = 64;

/// The pool of the current device. Kept for the life of the process: the driver may be gone before
/// the last destructor runs.
status current_pool(device_pool*& found) {
  static constinit std::array<device_pool, most_devices> pools{};
  int ordinal = 0;
  if (status done = answer_of("cudaGetDevice", cudaGetDevice(&ordinal)); !done) return done;
  if (ordinal >= most_devices) {
    return {status_code::device, "cuda:" + std::to_string(ordinal) +
                                     ": the library serves the first " +
                                     std::to_string(most_devices) + " devices"};
  }
  device_pool& one = pools[static_cast<std::size_t>(ordinal)];
  found = &one;
  const std::lock_guard lock(one.guard);
  return complete(one, ordinal);
}

[[gnu::cold]] status no_memory(std::size_t bytes, const status& why) {
  return {status_code::workspace, "workspace: " + std::to_string(bytes) +
                                      " bytes of device memory are needed; " + why.message()};
}

}  // namespace

status allocate(std::size_t bytes, void* stream, void*& memory) {
  memory = nullptr;
  device_pool* from = nullptr;
  if (status done = current_pool(from); !done) return done;
  const status done = answer_of(
      "cudaMallocFromPoolAsync",
      cudaMallocFromPoolAsync(&memory, bytes, from->pool, static_cast<cudaStream_t>(stream)));
  return done ? status() : no_memory(bytes, done);
}

void release(void* memory, void* stream) noexcept {
  if (memory == nullptr) return;
  static_cast<void>(cudaFreeAsync(memory, static_cast<cudaStream_t>(stream)));
}

status allocate_for_all(std::size_t bytes, void*& memory) {
  memory = nullptr;
  device_pool* from = nullptr;
  if (status done = current_pool(from); !done) return done;
  const beside_captures scope;
  status done = answer_of("cudaMallocFromPoolAsync",
                          cudaMallocFromPoolAsync(&memory, bytes, from->pool, from->stream));
  if (done) done = answer_of("cudaStreamSynchronize", cudaStreamSynchronize(from->stream));
  return done ? status() : no_memory(bytes, done);
}

void release_for_all(void* memory) noexcept {
  device_pool* from = nullptr;
  if (memory == nullptr || !current_pool(from)) return;
  const beside_captures scope;
  static_cast<void>(cudaFreeAsync(memory, from->stream));
}

status is_capturing(void* stream, bool& capturing) {
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &state);
  // The default stream, while another one is captured that would wait for it.
  if (code == cudaErrorStreamCaptureImplicit) {
    static_cast<void>(cudaGetLastError());
    capturing = true;
    return {};
  }
  capturing = state != cudaStreamCaptureStatusNone;
  return answer_of("cudaStreamIsCapturing", code);
}

status copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return {};
  auto* const in = static_cast<cudaStream_t>(stream);
  status done =
      answer_of("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, in));
  if (done) done = answer_of("cudaStreamSynchronize", cudaStreamSynchronize(in));
  return done;
}

status fill(void* to, int byte, std::size_t bytes, void* stream) {
  if (bytes == 0) return {};
  return answer_of("cudaMemsetAsync",
                   cudaMemsetAsync(to, byte, bytes, static_cast<cudaStream_t>(stream)));
}

}  // namespace tessera::impl::cuda
