// Entry points of the mma.sync kernels (sm_80 and everything later): workspace, preparation and
// launch, with the signatures that the table of rows has.
//
//   struct my_row {
//     static constexpr tessera::attention_config config{.target = tessera::backend::cuda_sm80,
//                                                   .type = tessera::dtype::bf16, .head_dim = 128};
//   };
//   tessera::kernels::attention::sm80::launch<my_row>(args, {.threads = multiprocessors, .stream =
//   stream});
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <tessera/families/attention/instance.hpp>
#include <tessera/kernels/attention/sm80/device.hpp>
#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/merge.hpp>
#include <tessera/kernels/attention/sm80/places.hpp>
#include <tessera/kernels/attention/sm80/plan.hpp>
#include <tessera/kernels/attention/sm80/weights.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Row>
cut_shape cut_shape_of(const attention_kernel_args& args, int multiprocessors) {
  constexpr attention_config config = resolved(Row::config);
  return {.block_q = config.block_q,
          .block_kv = config.block_kv,
          .v_head_dim = args.v_head_dim,
          .blocks_per_sm = config.tiling.blocks_per_sm,
          .multiprocessors = multiprocessors < 1 ? 1 : multiprocessors};
}

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Row>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors) {
  return workspace_of(cut_of(args, cut_shape_of<Row>(args, multiprocessors)), args.v_head_dim);
}

/// True if every row of a tensor starts at a multiple of 16 bytes. Strides of axes with one element
/// do not count.
inline bool rows_are_aligned(const void* data, const row_strides& strides, std::int64_t batch,
                             std::int64_t rows, int heads, dtype type) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  const auto fits = [&](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || stride * size % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && fits(batch, strides.batch) &&
         fits(rows, strides.row) && fits(heads, strides.head);
}

/// True if every row of q, k and v starts and ends at a multiple of 16 bytes.
inline bool tokens_are_aligned(const attention_kernel_args& args, dtype type) {
  const int chunk = 16 / static_cast<int>(size_of(type));
  return args.head_dim % chunk == 0 && args.v_head_dim % chunk == 0 &&
         rows_are_aligned(args.q, args.q_strides, args.batch, args.q_len, args.q_heads, type) &&
         rows_are_aligned(args.k, args.k_strides, args.batch, args.kv_len, args.kv_heads, type) &&
         rows_are_aligned(args.v, args.v_strides, args.batch, args.kv_len, args.kv_heads, type);
}

/// Hidden, because shared objects that hold the same row have kernels, and so words, of their own.
template <class Row>
class __attribute__((visibility("hidden"))) row_arrivals {
 public:
  static inline constinit arrival_table table{};
};

/// Where the blocks of a launch count themselves; -1 if `launch_merge` is to merge what they leave.
template <class Row>
int arrivals_for(const cut& pieces, const std::byte* workspace) {
  if constexpr (resolved(Row::config).phase == attention_phase::decode) {
    if (pieces.splits > 1 && pieces.items <= most_counted_items) {
      return row_arrivals<Row>::table.place_of(workspace, pieces.splits);
    }
  }
  return -1;
}

/// What kernels of rows with some features read.
template <class Row, class Hooks>
void set_features(launch_args& launched, const attention_kernel_args& args) {
  constexpr attention_config config = resolved(Row::config);
  constexpr attention_features features = config.features;
  launched.plain = !Hooks::has_logits;
  if constexpr (features.has(attention_feature::soft_cap)) {
    if (args.soft_cap > 0.0f) {
      launched.plain = false;
      launched.inverse_cap = 1.0f / args.soft_cap;
    }
  }
  if constexpr (features.has(attention_feature::bias)) {
    if (args.bias_pre.data != nullptr || args.bias_post.data != nullptr) launched.plain = false;
  }
  if constexpr (features.has(attention_feature::bias) || features.has(attention_feature::mask) ||
                features.has(attention_feature::segments)) {
    launched.wide = reads_are_wide(args, config.type);
  }
  if constexpr (features.has(attention_feature::dropout)) {
    launched.dropout = dropout_keys::of(args.dropout_seed);
    launched.last_dropped = static_cast<std::uint32_t>(args.dropout_threshold - 1);
  }
}

template <class Row, class Hooks>
launch_args launch_args_of(const attention_kernel_args& args, const cut& pieces,
                           std::byte* workspace) {
  constexpr attention_config config = resolved(Row::config);
  launch_args launched;
  set_features<Row, Hooks>(launched, args);
  launched.call = args;
  // Farther than any key, and far from where 64-bit positions overflow: nvcc 13.0 turns the guarded
  // difference of mask_interval into an unguarded one.
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
  launched.negative_scale = launched.plain && args.softmax_scale < 0.0f;
  const float scale = launched.plain ? std::fabs(args.softmax_scale) : 1.0f;
  // A scale of 0 would make NaN of hidden scores, 0 * -inf.
  launched.log2_scale = std::max(scale * prim::log2_e, 1e-30f);
  // Weights of f16 below 2^-14 lose bits, so the largest of them is made 2^headroom; with what the
  // maximum may grow before sums are rescaled, they stay below 2^16.
  const float growth = args.normalize ? growth_of(config, args.head_dim, args.kv_len) : 0.0f;
  launched.headroom = config.type == dtype::f16 ? 15.0f - growth : 0.0f;
  launched.rescale_above = launched.headroom + growth;
  launched.aligned_out = rows_are_aligned(args.out, args.out_strides, args.batch, args.q_len,
                                          args.q_heads, config.type);
  launched.v_stride = sum_stride(args.v_head_dim);
  launched.sums = reinterpret_cast<float*>(workspace);
  launched.states = launched.sums + pieces.rows * pieces.splits * launched.v_stride;
  launched.arrivals = arrivals_for<Row>(pieces, workspace);
  launched.parts = pieces.parts;
  launched.units_of_part = pieces.units_of_part;
  return launched;
}

/// Launches a kernel; with `dependent` before the kernel before it in the stream has ended, which
/// it must wait for.
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes,
                          cudaStream_t stream, bool dependent, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Where and how the kernels of one call are launched.
struct launch_place {
  cut pieces{};
  cudaStream_t stream = nullptr;
  int device = 0;
};

template <class Row>
cudaError_t launch_merge(const launch_args& args, std::int64_t rows, cudaStream_t stream,
                         bool dependent) {
  const std::int64_t units = rows * slices_of_row(args.v_stride, groups_for(args.splits));
  const auto blocks = static_cast<unsigned>((units + merge_warps - 1) / merge_warps);
  return launch_kernel(&merge_splits<Row>, dim3(blocks), merge_warps * 32, 0, stream, dependent,
                       args, units);
}

template <class Row, int Width, class Tokens, class Hooks>
status launch_width(const launch_args& args, const Hooks& hooks, const launch_place& place) {
  using traits = kernel_traits<Row, Width, Tokens>;
  const cut& pieces = place.pieces;
  const dim3 grid(static_cast<unsigned>(pieces.items), static_cast<unsigned>(pieces.splits));
  const bool dependent = device_readiness<Row, Hooks>::dependent(place.device);
  cudaError_t code =
      launch_kernel(&forward_kernel<Row, Width, Tokens, Hooks>, grid, traits::threads,
                    traits::shared_bytes, place.stream, dependent, args, hooks);
  if (code == cudaSuccess && pieces.splits > 1 && args.arrivals < 0) {
    code = launch_merge<Row>(args, pieces.rows, place.stream, dependent);
  }
  if constexpr (Row::config.features.has(attention_feature::weights)) {
    if (code == cudaSuccess && args.call.weights != nullptr && pieces.rows > 0) {
      const auto blocks = (pieces.rows + weights_warps - 1) / weights_warps;
      code = launch_kernel(&write_weights<Row, Hooks>, dim3(static_cast<unsigned>(blocks)),
                           weights_warps * 32, 0, place.stream, false, args, hooks);
    }
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return device_failure("kernel launch", code);
}

/// Writes the bits of dropout to a [B, Hq, Sq, Sk] mask in device memory, masked elements included;
/// see `flash_dropout_mask_function`.
template <class Row>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args,
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
  constexpr int threads = 256;
  const std::int64_t draws = mask.elements() / mask.extent[3] * ((mask.extent[3] + 3) / 4);
  const cudaError_t code = launch_kernel(
      &dropout_mask_kernel<Row>, dim3(static_cast<unsigned>((draws + threads - 1) / threads)),
      threads, 0, static_cast<cudaStream_t>(stream), false, launched);
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return device_failure("kernel launch", code);
}

/// Picks the width that holds both head dimensions.
template <class Row, class Tokens, class Hooks>
status launch_any(const launch_args& args, const Hooks& hooks, const launch_place& place) {
  switch (any_width(args.call.head_dim, args.call.v_head_dim)) {
    case 64:
      return launch_width<Row, 64, Tokens>(args, hooks, place);
    case 128:
      return launch_width<Row, 128, Tokens>(args, hooks, place);
    default:
      return launch_width<Row, 256, Tokens>(args, hooks, place);
  }
}

/// Readies the current device for launches of the row: raises the kernels' limits of shared memory,
/// and refuses (status_code::device) a device that the binary holds no code for. The first launch
/// on a device does the same; afterwards both cost some nanoseconds. No memory, no work on a
/// stream.
template <class Row, class Hooks = flash_hooks<>>
status prepare_with() {
  int device = 0;
  return ready_current<Row, Hooks>(device);
}

/// See `flash_prepare_function`.
template <class Row>
status prepare() {
  return prepare_with<Row>();
}

/// Refuses what the kernels' 32-bit positions do not hold.
inline status check_lengths(const attention_kernel_args& args, const cut& pieces) {
  if (args.q_len * (args.q_heads / args.kv_heads) < longest_length &&
      args.kv_len < longest_length && pieces.items <= INT32_MAX) {
    return {};
  }
  return {status_code::ineligible_row,
          "rows and keys are " + std::to_string(args.q_len) + " and " +
              std::to_string(args.kv_len) + ", the row takes less than " +
              std::to_string(longest_length) + " (rows times query heads per k head)"};
}

/// Runs the row's kernel with user hooks on `context.stream` of the current device.
/// `context.threads` is the number of its multiprocessors: it decides how keys are split, and must
/// be the one `workspace_bytes` was asked for. Returns before the work is done. Can be captured in
/// a graph once the device is ready (see `prepare`).
template <class Row, class Hooks>
status launch_with(const attention_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  launch_place place;
  place.pieces = cut_of(args, cut_shape_of<Row>(args, context.threads));
  place.stream = static_cast<cudaStream_t>(context.stream);
  const std::size_t needed = workspace_of(place.pieces, args.v_head_dim);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  if (status done = check_lengths(args, place.pieces); !done) return done;
  if (place.pieces.items == 0 || place.pieces.rows == 0) return {};
  if (status done = ready_current<Row, Hooks>(place.device); !done) return done;
  const launch_args launched = launch_args_of<Row, Hooks>(args, place.pieces, context.workspace);
  const bool aligned = tokens_are_aligned(args, Row::config.type);
  if constexpr (takes_any_head_dim<Row>) {
    return aligned ? launch_any<Row, aligned_tokens>(launched, hooks, place)
                   : launch_any<Row, any_tokens>(launched, hooks, place);
  } else {
    if (!aligned) {
      return {status_code::ineligible_row,
              "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs"};
    }
    return launch_width<Row, 0, aligned_tokens>(launched, hooks, place);
  }
}

/// Runs the row's kernel; see `attention_launch_function`.
template <class Row>
status launch(const attention_kernel_args& args, const launch_context& context) {
  return launch_with<Row>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention::sm80
