// What the rows of families on NVIDIA GPUs share: the assertion of their legality
// (row_is_legal.hpp), the parts of a workspace, a launch that is ready, its grid and its end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/kernels/row_is_legal.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::cuda {

/// A kernel of a row, and the dynamic shared memory that it takes.
template <class... Parameters>
prim::cuda::kernel_entry entry_of(void (*kernel)(Parameters...), int shared_bytes = 0) {
  return {reinterpret_cast<const void*>(kernel), shared_bytes};
}

/// Kernels of a row, one list behind the other.
template <std::size_t... Counts>
auto joined(const std::array<prim::cuda::kernel_entry, Counts>&... lists) {
  std::array<prim::cuda::kernel_entry, (Counts + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(lists.begin(), lists.end(), end)), ...);
  return all;
}

/// Places the parts of a workspace one behind the other, from `base` on, each at a multiple of 64
/// bytes; null: nothing is placed, only counted.
class workspace_parts {
 public:
  explicit workspace_parts(std::byte* base) : base_(base) {}

  template <class Element>
  void take(Element*& part, std::int64_t count) {
    if (base_ != nullptr) part = reinterpret_cast<Element*>(base_ + bytes_);
    bytes_ += (static_cast<std::size_t>(count) * sizeof(Element) + 63) / 64 * 64;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

/// Readies the current device for launches of a row: refuses (status_code::device) a device that
/// the binary holds no code for.
template <class RowKernels>
status prepare() {
  int device = 0;
  return prim::cuda::readiness<RowKernels>::ready_current(device);
}

/// Checks the workspace of a launch, and readies the current device for the kernels of the row.
template <class RowKernels>
status ready(const launch_context& context, std::size_t workspace_bytes) {
  if (status done =
          prim::check_workspace({context.workspace, context.workspace_bytes}, workspace_bytes);
      !done) {
    return done;
  }
  return prepare<RowKernels>();
}

inline dim3 grid_of(std::int64_t blocks) {
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, INT32_MAX)));
}

/// What a launch says at its end.
inline status launched(cudaError_t code) {
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

}  // namespace tessera::kernels::cuda
