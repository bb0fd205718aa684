// What calls of the CUDA runtime answer, as a status.
#pragma once

#include <cuda_runtime_api.h>

#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl::cuda {

/// Success, or what was tried and the driver's words for why it failed. Takes the failure off the
/// thread's record, where a later launch would find it.
inline status answer_of(const char* tried, cudaError_t code) {
  if (code == cudaSuccess) [[likely]]
    return {};
  static_cast<void>(cudaGetLastError());
  return refusal(status_code::device, {tried, ": ", cudaGetErrorString(code)});
}

}  // namespace tessera::impl::cuda
