// Entry points of the mma.sync kernels (sm_80 and everything later): workspace and launch, with the
// signatures that the table of rows has.
//
//   struct my_row {
//     static constexpr tessera::flash_config config{.type = tessera::dtype::bf16, .head_dim = 128,
//                                                   .block_q = 128, .block_kv = 64};
//     static constexpr tessera::flash::sm80::tiling tiling{.warps = 4, .blocks_per_sm = 2};
//   };
//   tessera::flash::sm80::launch<my_row>(args, {.threads = multiprocessors, .stream = stream});
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <tessera/kernels/flash_attention/sm80_forward.hpp>
#include <tessera/kernels/flash_attention/sm80_plan.hpp>
#include <tessera/kernels/flash_attention/sm80_weights.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::flash::sm80 {

/// The driver's words for a failed call, as a status.
inline status device_failure(const char* what, cudaError_t code) {
  return {status_code::device, std::string(what) + ": " + cudaGetErrorString(code)};
}

template <class Row>
constexpr bool takes_any_head_dim = Row::config.head_dim == 0;

template <class Row>
cut_shape cut_shape_of(const flash_kernel_args& args, int multiprocessors) {
  constexpr flash_config config = resolved(Row::config);
  return {.block_q = config.block_q,
          .block_kv = config.block_kv,
          .v_head_dim = args.v_head_dim,
          .blocks_per_sm = Row::tiling.blocks_per_sm,
          .multiprocessors = multiprocessors < 1 ? 1 : multiprocessors};
}

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Row>
std::size_t workspace_bytes(const flash_kernel_args& args, int multiprocessors) {
  return workspace_of(cut_of(args, cut_shape_of<Row>(args, multiprocessors)), args.v_head_dim);
}

/// True if every row of the tensor starts at a multiple of 16 bytes.
inline bool rows_are_aligned(const void* data, const row_strides& strides) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && strides.batch % 8 == 0 &&
         strides.row % 8 == 0 && strides.head % 8 == 0;
}

inline bool tokens_are_aligned(const flash_kernel_args& args) {
  return rows_are_aligned(args.q, args.q_strides) && rows_are_aligned(args.k, args.k_strides) &&
         rows_are_aligned(args.v, args.v_strides);
}

template <class Row, class Hooks>
launch_args launch_args_of(const flash_kernel_args& args, const cut& pieces, std::byte* workspace) {
  constexpr flash_config config = resolved(Row::config);
  constexpr bool changes = config.features.has(flash_feature::soft_cap) ||
                           config.features.has(flash_feature::bias) || Hooks::has_logits;
  launch_args launched;
  launched.call = args;
  // Farther than any key, and far from where 64-bit positions overflow: nvcc 13.0 turns the guarded
  // difference of row_visibility into an unguarded one.
  launched.call.window_left = std::min(args.window_left, 2 * longest_length);
  launched.call.window_right = std::min(args.window_right, 2 * longest_length);
  const auto section = static_cast<std::uint32_t>(pieces.section);
  const auto heads = static_cast<std::uint32_t>(args.batch * args.kv_heads);
  launched.group = divisor::of(static_cast<std::uint32_t>(args.q_heads / args.kv_heads));
  launched.kv_heads = divisor::of(static_cast<std::uint32_t>(args.kv_heads));
  launched.section = divisor::of(section);
  launched.section_items =
      divisor::of(std::max(1u, section * static_cast<std::uint32_t>(pieces.row_blocks)));
  launched.last_section = divisor::of(heads % section == 0 ? section : heads % section);
  launched.row_blocks = pieces.row_blocks;
  launched.splits = pieces.splits;
  launched.negative_scale = !changes && args.softmax_scale < 0.0f;
  const float scale = changes ? 1.0f : std::fabs(args.softmax_scale);
  // A scale of 0 would make NaN of hidden scores, 0 * -inf.
  launched.log2_scale = std::max(scale * prim::log2_e, 1e-30f);
  // Weights of f16 below 2^-14 lose bits, so the largest of them is made 2^headroom; with what the
  // maximum may grow before sums are rescaled, they stay below 2^16.
  const float growth = args.normalize ? 8.0f : 0.0f;
  launched.headroom = config.type == dtype::f16 ? 15.0f - growth : 0.0f;
  launched.rescale_above = launched.headroom + growth;
  launched.aligned_out = rows_are_aligned(args.out, args.out_strides);
  launched.v_stride = sum_stride(args.v_head_dim);
  launched.sums = reinterpret_cast<float*>(workspace);
  launched.states = launched.sums + pieces.rows * pieces.splits * launched.v_stride;
  return launched;
}

/// Raises the kernel's limit of shared memory, once per device.
template <class Kernel>
status allow_shared_memory(Kernel kernel, int bytes, std::atomic<std::uint64_t>& done) {
  int device = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
    return device_failure("cudaGetDevice", code);
  }
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if ((done.load(std::memory_order_relaxed) & bit) != 0) return {};
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return {status_code::device, "the kernel needs " + std::to_string(bytes) +
                                     " bytes of shared memory: " + cudaGetErrorString(code)};
  }
  done.fetch_or(bit, std::memory_order_relaxed);
  return {};
}

template <class Row, int Width, class Tokens, class Hooks>
status launch_width(const launch_args& args, const Hooks& hooks, const cut& pieces,
                    cudaStream_t stream) {
  using traits = kernel_traits<Row, Width, Tokens>;
  constexpr int bytes = traits::shared_bytes;
  static std::atomic<std::uint64_t> allowed{0};
  const auto kernel = &forward_kernel<Row, Width, Tokens, Hooks>;
  if (status done = allow_shared_memory(kernel, bytes, allowed); !done) return done;
  const dim3 grid(static_cast<unsigned>(pieces.items), static_cast<unsigned>(pieces.splits));
  kernel<<<grid, traits::threads, bytes, stream>>>(args, hooks);
  if (pieces.splits > 1) {
    constexpr int rows_per_block = 4;
    merge_splits<Row><<<static_cast<unsigned>((pieces.rows + rows_per_block - 1) / rows_per_block),
                        rows_per_block * 32, 0, stream>>>(args, pieces.rows);
  }
  if constexpr (Row::config.features.has(flash_feature::weights)) {
    const std::int64_t rows = args.call.weights != nullptr ? pieces.rows : 0;
    if (rows > 0) {
      write_weights<Row, Hooks><<<static_cast<unsigned>((rows + weights_warps - 1) / weights_warps),
                                  weights_warps * 32, 0, stream>>>(args, hooks);
    }
  }
  const cudaError_t code = cudaGetLastError();
  return code == cudaSuccess ? status{} : device_failure("kernel launch", code);
}

/// Writes the bits of dropout to a [B, Hq, Sq, Sk] mask in device memory, masked elements included.
inline status launch_dropout_mask(const tensor_view& mask, const flash_kernel_args& args,
                                  void* stream) {
  if (mask.elements() == 0) return {};
  dropout_mask_args launched;
  launched.data = static_cast<std::uint8_t*>(mask.data);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    launched.extent[axis] = mask.extent[axis];
    launched.stride[axis] = mask.stride[axis];
  }
  launched.seed = args.dropout_seed;
  launched.threshold = args.dropout_threshold;
  const std::int64_t draws = mask.elements() / mask.extent[3] * ((mask.extent[3] + 3) / 4);
  write_dropout_mask<<<static_cast<unsigned>((draws + 255) / 256), 256, 0,
                       static_cast<cudaStream_t>(stream)>>>(launched);
  const cudaError_t code = cudaGetLastError();
  return code == cudaSuccess ? status{} : device_failure("kernel launch", code);
}

/// Picks the width that holds both head dimensions.
template <class Row, class Tokens, class Hooks>
status launch_any(const launch_args& args, const Hooks& hooks, const cut& pieces,
                  cudaStream_t stream) {
  switch (any_width(args.call.head_dim, args.call.v_head_dim)) {
    case 64:
      return launch_width<Row, 64, Tokens>(args, hooks, pieces, stream);
    case 128:
      return launch_width<Row, 128, Tokens>(args, hooks, pieces, stream);
    default:
      return launch_width<Row, 256, Tokens>(args, hooks, pieces, stream);
  }
}

/// Runs the row's kernel with user hooks on `context.stream` of the current device.
/// `context.threads` is the number of its multiprocessors: it decides how keys are split, and must
/// be the one `workspace_bytes` was asked for. Returns before the work is done.
template <class Row, class Hooks>
status launch_with(const flash_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  const cut pieces = cut_of(args, cut_shape_of<Row>(args, context.threads));
  const std::size_t needed = workspace_of(pieces, args.v_head_dim);
  if (context.workspace_bytes < needed) {
    return {status_code::workspace, "workspace: has " + std::to_string(context.workspace_bytes) +
                                        " bytes, " + std::to_string(needed) + " are needed"};
  }
  if (args.q_len * (args.q_heads / args.kv_heads) >= longest_length ||
      args.kv_len >= longest_length || pieces.items > INT32_MAX) {
    return {status_code::ineligible_row,
            "rows and keys are " + std::to_string(args.q_len) + " and " +
                std::to_string(args.kv_len) + ", the row takes less than " +
                std::to_string(longest_length) + " (rows times query heads per k head)"};
  }
  if (pieces.items == 0 || pieces.rows == 0) return {};
  const launch_args launched = launch_args_of<Row, Hooks>(args, pieces, context.workspace);
  auto* const stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (takes_any_head_dim<Row>) {
    if (!tokens_are_aligned(args))
      return launch_any<Row, any_tokens>(launched, hooks, pieces, stream);
    return launch_any<Row, aligned_tokens>(launched, hooks, pieces, stream);
  } else {
    if (!tokens_are_aligned(args)) {
      return {status_code::ineligible_row,
              "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs"};
    }
    return launch_width<Row, 0, aligned_tokens>(launched, hooks, pieces, stream);
  }
}

/// Runs the row's kernel; see `flash_launch_function`.
template <class Row>
status launch(const flash_kernel_args& args, const launch_context& context) {
  return launch_with<Row>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::flash::sm80
