// Streams and events of the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/cuda/failure.hpp>

namespace tessera::impl::cuda {

status wait(void* stream) {
  return answer_of("cudaStreamSynchronize",
                   cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

status make_stream(void*& stream) {
  cudaStream_t made = nullptr;
  status done = answer_of("cudaStreamCreateWithFlags",
                          cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  stream = made;
  return done;
}

void drop_stream(void* stream) noexcept {
  if (stream != nullptr) {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }
}

status make_event(void*& event) {
  cudaEvent_t made = nullptr;
  status done = answer_of("cudaEventCreate", cudaEventCreate(&made));
  event = made;
  return done;
}

void drop_event(void* event) noexcept {
  if (event != nullptr) static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}

status record(void* event, void* stream) {
  return answer_of("cudaEventRecord", cudaEventRecord(static_cast<cudaEvent_t>(event),
                                                      static_cast<cudaStream_t>(stream)));
}

status seconds_between(void* begin, void* end, double& seconds) {
  auto* const last = static_cast<cudaEvent_t>(end);
  status done = answer_of("cudaEventSynchronize", cudaEventSynchronize(last));
  float milliseconds = 0;
  if (done) {
    done = answer_of("cudaEventElapsedTime",
                     cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin), last));
  }
  seconds = static_cast<double>(milliseconds) * 1e-3;
  return done;
}

}  // namespace tessera::impl::cuda
