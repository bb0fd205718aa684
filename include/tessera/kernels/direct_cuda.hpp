// What the header paths of all families share on NVIDIA GPUs: `tessera::cuda`, and a launch on the
// device that its tensors lie on.
#pragma once

#include <cstddef>
#include <span>

#include <cuda_runtime.h>

#include <tessera/kernels/direct.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Where a header-path launch runs: on the GPU that its tensors lie on, in a stream of it.
struct cuda {
  void* stream = nullptr;  ///< cudaStream_t; null: the default stream
  /// Device memory, 64-byte aligned, as many bytes as the row asks for: of attention
  /// workspace_bytes<Kernel>() (kernels::attention::sm80; ::sm90, with functors
  /// workspace_bytes_with), of other families kernels::cuda::workspace_bytes<launcher<Kernel>>().
  /// Empty: taken and given back in the order of the stream.
  std::span<std::byte> workspace{};
  int multiprocessors = 0;  ///< 0: asked of the device
  /// The bits of an entry do not depend on the others, nor on how many there are. Rows that cannot
  /// promise it are refused (status_code::ineligible_row). The row's workspace is another one.
  bool batch_invariant = false;
};

namespace direct {

/// The caller's workspace, or one of the launch's own.
class device_workspace {
 public:
  device_workspace() = default;
  ~device_workspace() {
    if (own_ != nullptr) cudaFreeAsync(own_, stream_);
  }
  device_workspace(const device_workspace&) = delete;
  device_workspace& operator=(const device_workspace&) = delete;

  status find(const cuda& where, std::size_t needed, std::span<std::byte>& memory) {
    memory = where.workspace;
    if (!memory.empty()) return prim::check_workspace(memory, needed);
    if (needed == 0) return {};
    stream_ = static_cast<cudaStream_t>(where.stream);
    if (status done =
            prim::cuda::answer_of("cudaMallocAsync", cudaMallocAsync(&own_, needed, stream_));
        !done) {
      return done;
    }
    memory = {static_cast<std::byte*>(own_), needed};
    return {};
  }

 private:
  void* own_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// Refuses rows that cannot promise bits which do not depend on the batch, where that is asked for.
template <class Config>
status check_promise(const Config& config, bool batch_invariant) {
  if constexpr (requires { properties_of(config); }) {
    if (batch_invariant && properties_of(config).batch_invariant == batch_invariance::none) {
      return {status_code::ineligible_row,
              "batch_invariant is true, how the row cuts its work depends on the whole batch"};
    }
  }
  return {};
}

/// Runs a validated call on a device, which becomes the current one meanwhile:
/// `run(launch_context)` in as much memory as `bytes(multiprocessors)` says.
template <class Config, class Problem, class Bytes, class Run>
status launch_on_device(const Config& config, const Problem& problem, device_id device,
                        const cuda& where, const Bytes& bytes, const Run& run) {
  if (device.kind != device_kind::cuda) {
    return {status_code::invalid_argument, "q: device is cpu:0, the row runs on GPUs"};
  }
  if (status done = check_row(config, problem); !done) return done;
  if (status done = check_promise(config, where.batch_invariant); !done) return done;
  const prim::cuda::device_scope scope(device.ordinal);
  if (!scope.entered()) return scope.entered();
  int multiprocessors = where.multiprocessors;
  if (multiprocessors == 0) {
    const cudaError_t code =
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device.ordinal);
    if (code != cudaSuccess) return prim::cuda::device_failure("cudaDeviceGetAttribute", code);
  }
  device_workspace workspace;
  std::span<std::byte> memory;
  if (status done = workspace.find(where, bytes(multiprocessors), memory); !done) return done;
  return run(launch_context{multiprocessors, memory.data(), memory.size(), where.stream});
}

}  // namespace direct
}  // namespace tessera
