// What the rows of families on NVIDIA GPUs share: the assertion of their legality, a launch that is
// ready, its grid and its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::cuda {

/// Instantiated for every row that is compiled. The compiler's message shows `Kernel` and `Broken`,
/// the rule of its family that the row breaks.
template <class Kernel, auto Broken>
struct row_is_legal {
  static_assert(Broken == decltype(Broken)::none,
                "this row breaks the rule named by the second template argument");
  static constexpr bool value = true;
};

/// Checks the workspace of a launch, and readies the current device for the kernels of the row.
template <class RowKernels>
status ready(const launch_context& context, std::size_t workspace_bytes) {
  if (status done =
          prim::check_workspace({context.workspace, context.workspace_bytes}, workspace_bytes);
      !done) {
    return done;
  }
  int device = 0;
  return prim::cuda::readiness<RowKernels>::ready_current(device);
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
