// Devices: how many, what they are, which one is current.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include <cuda_runtime_api.h>

#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/cuda/failure.hpp>

namespace tessera::impl::cuda {

status count_devices(int& count) {
  count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaErrorNoDevice) return answer_of("cudaGetDeviceCount", code);
  static_cast<void>(cudaGetLastError());
  return {};
}

namespace {

/// Reads attributes until one fails.
class attribute_reader {
 public:
  explicit attribute_reader(int ordinal) : ordinal_(ordinal) {}

  int read(cudaDeviceAttr attribute) {
    int value = 0;
    if (code_ == cudaSuccess) code_ = cudaDeviceGetAttribute(&value, attribute, ordinal_);
    return value;
  }
  cudaError_t code() const { return code_; }

 private:
  int ordinal_;
  cudaError_t code_ = cudaSuccess;
};

/// The most specialised backend for a compute capability.
constexpr backend backend_for(int compute_capability) noexcept {
  return compute_capability >= 80 ? backend::cuda_sm80 : backend::cpu_generic;
}

}  // namespace

status read_facts(int ordinal, device_facts& facts) {
  attribute_reader reader(ordinal);
  facts = {};
  facts.kind = device_kind::cuda;
  facts.ordinal = ordinal;
  facts.sockets = facts.physical_cores = facts.hardware_threads = facts.available_threads = 0;
  facts.l1d_bytes = facts.l3_bytes = 0;
  facts.compute_capability = 10 * reader.read(cudaDevAttrComputeCapabilityMajor);
  facts.compute_capability += reader.read(cudaDevAttrComputeCapabilityMinor);
  facts.highest = backend_for(facts.compute_capability);
  facts.multiprocessors = reader.read(cudaDevAttrMultiProcessorCount);
  facts.shared_bytes_per_block = reader.read(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  facts.shared_bytes_per_multiprocessor = reader.read(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  facts.l2_bytes = reader.read(cudaDevAttrL2CacheSize);
  facts.core_clock_khz = reader.read(cudaDevAttrClockRate);
  facts.memory_clock_khz = reader.read(cudaDevAttrMemoryClockRate);
  facts.memory_bus_bits = reader.read(cudaDevAttrGlobalMemoryBusWidth);
  if (status done = answer_of("cudaDeviceGetAttribute", reader.code()); !done) return done;
  cudaDeviceProp properties;
  if (status done =
          answer_of("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, ordinal));
      !done) {
    return done;
  }
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  const std::size_t length = ::strnlen(properties.name, sizeof properties.name);
  std::memcpy(facts.product.data(), properties.name, std::min(length, facts.product.size() - 1));
  return {};
}

void read_versions(int& driver, int& runtime) noexcept {
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  static_cast<void>(cudaGetLastError());
}

current_device::current_device(int ordinal) {
  int before = 0;
  entered_ = answer_of("cudaGetDevice", cudaGetDevice(&before));
  if (!entered_ || before == ordinal) return;
  entered_ = answer_of("cudaSetDevice", cudaSetDevice(ordinal));
  if (entered_) before_ = before;
}

current_device::~current_device() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
}

}  // namespace tessera::impl::cuda
