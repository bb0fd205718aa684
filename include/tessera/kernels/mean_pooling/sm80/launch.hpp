// Launches of the mean pooling kernels for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/families/mean_pooling/schedule_sm80.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/mean_pooling/sm80/backward.hpp>
#include <tessera/kernels/mean_pooling/sm80/counts.hpp>
#include <tessera/kernels/mean_pooling/sm80/forward.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

template <class Kernel>
constexpr bool is_forward = Kernel::config.pass == pooling_pass::forward;

/// Weights that a warp adds up before tokens are touched.
inline constexpr std::int64_t slice_weights = 1024;

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
struct scratch {
  std::int64_t* chunks_before = nullptr;
  double* totals = nullptr;
  double* slice_totals = nullptr;  ///< [sequences][slices]; more than one slice
  float* partials = nullptr;
  std::int64_t slices = 1;
  std::size_t bytes = 0;

  scratch(const mean_pooling_kernel_args& args, bool forward, int element_bytes, std::byte* base) {
    cuda::workspace_parts parts(base);
    if (args.cu_seqlens != nullptr && args.chunk > 0) parts.take(chunks_before, args.sequences + 1);
    if (args.mask != nullptr) {
      slices = std::max<std::int64_t>(1, (args.tokens + slice_weights - 1) / slice_weights);
      parts.take(totals, args.sequences);
      if (slices > 1) parts.take(slice_totals, args.sequences * slices);
    }
    const std::int64_t slots = pooling_schedule_of(args, {element_bytes}).slots;
    if (forward && slots > 0) parts.take(partials, slots * args.heads * args.columns);
    bytes = parts.bytes();
  }
};

/// True if every row of tokens and means starts and ends at a multiple of 16 bytes.
inline bool rows_are_wide(const mean_pooling_kernel_args& args, int element_bytes) {
  const auto fits = [&](const pooling_strides& strides) {
    return (strides.entry | strides.row | strides.head) * element_bytes %
               pooling_access_bytes_sm80 ==
           0;
  };
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(args.from) | reinterpret_cast<std::uintptr_t>(args.to);
  return addresses % pooling_access_bytes_sm80 == 0 &&
         args.columns * element_bytes % pooling_access_bytes_sm80 == 0 &&
         fits(args.token_strides) && fits(args.mean_strides);
}

using pass_kernel = void (*)(launch_args);

/// The kernel that reads or writes tokens.
template <class Kernel, int Vector, class Weights>
pass_kernel pass_of_tokens() {
  if constexpr (is_forward<Kernel>) {
    return &sum_pieces<Kernel, Vector, Weights>;
  } else {
    return &spread_gradients<Kernel, Vector, Weights>;
  }
}

/// By whether accesses are wide, and whether there is a mask.
template <class Kernel>
pass_kernel pass_of_tokens(bool wide, bool masked) {
  constexpr int vector = pooling_access_bytes_sm80 / static_cast<int>(size_of(Kernel::config.type));
  if (wide) {
    return masked ? pass_of_tokens<Kernel, vector, mask_weights>()
                  : pass_of_tokens<Kernel, vector, unit_weights>();
  }
  return masked ? pass_of_tokens<Kernel, 1, mask_weights>()
                : pass_of_tokens<Kernel, 1, unit_weights>();
}

/// What kernels of tokens need beforehand.
template <class Kernel>
cudaError_t launch_counts(const launch_args& args, const scratch& memory, cudaStream_t stream) {
  const mean_pooling_kernel_args& call = args.call;
  if (memory.chunks_before != nullptr) {
    return prim::cuda::launch_kernel(&count_chunks<Kernel>, dim3(1), counting_threads, 0, stream,
                                     false, args);
  }
  if (memory.totals == nullptr) return cudaSuccess;
  constexpr std::int64_t warps = pooling_threads_sm80 / 32;
  const auto add = [&](auto* kernel, const auto& values, std::int64_t count, std::int64_t slices,
                       std::int64_t slice, double* sums) {
    return prim::cuda::launch_kernel(
        kernel, cuda::grid_of((call.sequences * slices + warps - 1) / warps), pooling_threads_sm80,
        0, stream, false, values, call.sequences, count, slices, slice, sums);
  };
  const bool sliced = memory.slices > 1;
  const cudaError_t code =
      add(&add_weights<Kernel, weights_of_mask>, weights_of_mask{call}, call.tokens, memory.slices,
          slice_weights, sliced ? memory.slice_totals : memory.totals);
  if (code != cudaSuccess || !sliced) return code;
  return add(&add_weights<Kernel, sums_of_slices>,
             sums_of_slices{memory.slice_totals, memory.slices}, memory.slices, std::int64_t{1},
             memory.slices, memory.totals);
}

/// The launch of a row.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = mean_pooling_kernel_args;
  static constexpr int element_bytes = size_of(Kernel::config.type);

  static launcher of(const args_type& args, int /*multiprocessors*/, std::byte* workspace) {
    return {args, workspace};
  }

  static auto entries() {
    return std::array{cuda::entry_of(pass_of_tokens<Kernel>(true, false)),
                      cuda::entry_of(pass_of_tokens<Kernel>(true, true)),
                      cuda::entry_of(pass_of_tokens<Kernel>(false, false)),
                      cuda::entry_of(pass_of_tokens<Kernel>(false, true)),
                      cuda::entry_of(&combine_pieces<Kernel>),
                      cuda::entry_of(&count_chunks<Kernel>),
                      cuda::entry_of(&add_weights<Kernel, weights_of_mask>),
                      cuda::entry_of(&add_weights<Kernel, sums_of_slices>)};
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) const {
    const bool wide = rows_are_wide(args_, element_bytes);
    const launch_args all{.call = args_,
                          .cut = pooling_schedule_of(args_, {element_bytes, wide}),
                          .chunks_before = memory_.chunks_before,
                          .totals = memory_.totals,
                          .partials = memory_.partials};
    cudaError_t code = launch_counts<Kernel>(all, memory_, stream);
    if (code == cudaSuccess && all.cut.items() > 0) {
      code = prim::cuda::launch_kernel(pass_of_tokens<Kernel>(wide, args_.mask != nullptr),
                                       cuda::grid_of(all.cut.items()), pooling_threads_sm80, 0,
                                       stream, false, all);
    }
    if (code == cudaSuccess && is_forward<Kernel> && all.cut.combine_items() > 0) {
      code = prim::cuda::launch_kernel(&combine_pieces<Kernel>,
                                       cuda::grid_of(all.cut.combine_items()), pooling_threads_sm80,
                                       0, stream, cuda::starts_early<launcher>(), all);
    }
    return code;
  }

 private:
  launcher(const args_type& args, std::byte* workspace)
      : args_(args), memory_(args, is_forward<Kernel>, element_bytes, workspace) {}

  const args_type& args_;
  scratch memory_;
};

}  // namespace tessera::kernels::mean_pooling::sm80
