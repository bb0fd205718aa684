// Every call of the CUDA runtime that the host code makes: devices, memory, streams and events of
// the current device. Included by one generated unit of builds with CUDA. The library has a memory
// pool of its own on each device, so that the pools of the application keep their settings; nothing
// here waits for the whole device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <cuda_runtime_api.h>

#include <tessera/runtime/impl/cuda/answer.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl::cuda {

namespace {

/// CUDA says the same of a driver that is too old and of none.
[[gnu::cold]] status driver_is_insufficient() {
  int driver = 0, runtime = 0;
  read_versions(driver, runtime);
  const int major = runtime / 1000, minor = runtime % 1000 / 10;
  if (driver == 0) {
    return refusal(status_code::device,
                   {"no NVIDIA driver answers, this library needs one of CUDA ", major, ".", minor,
                    " or newer"});
  }
  return refusal(status_code::device,
                 {"the NVIDIA driver is of CUDA ", driver / 1000, ".", driver % 1000 / 10,
                  ", this library needs one of ", major, ".", minor, " or newer"});
}

}  // namespace

status count_devices(int& count) {
  count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    static_cast<void>(cudaGetLastError());
    return driver_is_insufficient();
  }
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

/// The most specialised backend for a compute capability. Code for sm_90a runs on 9.0 and nowhere
/// else.
constexpr backend backend_for(int compute_capability) noexcept {
  if (compute_capability == 90) return backend::cuda_sm90;
  return compute_capability >= 80 ? backend::cuda_sm80 : backend::cpu_generic;
}

}  // namespace

status read_facts(int ordinal, device_facts& facts) {
  attribute_reader reader(ordinal);
  facts = {};
  facts.kind = device_kind::cuda;
  facts.ordinal = ordinal;
  facts.sockets = facts.physical_cores = facts.hardware_threads = facts.available_threads = 0;
  facts.memory_nodes = 0;
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
status complete(device_pool& device, int ordinal) {
  // Freed memory up to this size stays with the pool when a stream is waited for.
  constexpr std::uint64_t kept_bytes = std::uint64_t{64} << 20;
  const beside_captures scope;
  if (device.pool == nullptr) {
    int supported = 0;
    status asked =
        answer_of("cudaDeviceGetAttribute",
                  cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, ordinal));
    if (!asked) return asked;
    if (supported == 0) {
      return refusal(
          status_code::device,
          {"cuda:", ordinal, " has no memory pools; give context.workspace or context.allocator"});
    }
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {};
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = ordinal;
    cudaMemPool_t pool = nullptr;
    if (status done = answer_of("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &wanted)); !done) {
      return done;
    }
    std::uint64_t kept = kept_bytes;
    static_cast<void>(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    device.pool = pool;
  }
  if (device.stream != nullptr) return {};
  return answer_of("cudaStreamCreateWithFlags",
                   cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));
}

constexpr int most_devices = 64;

/// The pool of the current device. Kept for the life of the process: the driver may be gone before
/// the last destructor runs.
status current_pool(device_pool*& found) {
  static constinit std::array<device_pool, most_devices> pools{};
  int ordinal = 0;
  if (status done = answer_of("cudaGetDevice", cudaGetDevice(&ordinal)); !done) return done;
  if (ordinal >= most_devices) {
    return refusal(status_code::device,
                   {"cuda:", ordinal, ": the library serves the first ", most_devices, " devices"});
  }
  device_pool& pool = pools[static_cast<std::size_t>(ordinal)];
  found = &pool;
  const std::lock_guard lock(pool.guard);
  return complete(pool, ordinal);
}

[[gnu::cold]] status no_memory(std::size_t bytes, const status& why) {
  return refusal(status_code::workspace,
                 {"workspace: ", bytes, " bytes of device memory are needed; ", why.message()});
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

status allocate_for_all(std::size_t bytes, void*& memory, first_contents hold) {
  memory = nullptr;
  device_pool* from = nullptr;
  if (status done = current_pool(from); !done) return done;
  const beside_captures scope;
  status done = answer_of("cudaMallocFromPoolAsync",
                          cudaMallocFromPoolAsync(&memory, bytes, from->pool, from->stream));
  if (done && hold == first_contents::zeros) {
    done = answer_of("cudaMemsetAsync", cudaMemsetAsync(memory, 0, bytes, from->stream));
  }
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

status wait(void* stream) {
  return answer_of("cudaStreamSynchronize",
                   cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

status make_stream(void*& stream) {
  cudaStream_t fresh = nullptr;
  status done = answer_of("cudaStreamCreateWithFlags",
                          cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking));
  stream = fresh;
  return done;
}

void drop_stream(void* stream, void*) noexcept {
  if (stream != nullptr) {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }
}

status make_event(void*& event) {
  cudaEvent_t fresh = nullptr;
  status done = answer_of("cudaEventCreate", cudaEventCreate(&fresh));
  event = fresh;
  return done;
}

void drop_event(void* event, void*) noexcept {
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
