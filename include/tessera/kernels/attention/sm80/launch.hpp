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
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/common/dropout_mask.hpp>
#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/common/written_tokens.hpp>
#include <tessera/kernels/attention/sm80/alignment.hpp>
#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/launch_listed.hpp>
#include <tessera/kernels/attention/sm80/launch_parts.hpp>
#include <tessera/kernels/attention/sm80/row_kernels.hpp>
#include <tessera/kernels/attention/sm80/split_kv.hpp>
#include <tessera/kernels/attention/sm80/split_kv_listed.hpp>
#include <tessera/kernels/attention/sm80/weights.hpp>
#include <tessera/kernels/attention/sm80/work_planner.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::kernels::attention::sm80 {

using schedule_sm80::schedule;

template <class Kernel>
schedule schedule_for(const attention_kernel_args& args, int multiprocessors) {
  return schedule_sm80::schedule_of(Kernel::config, schedule_sm80::sizes_of(args), multiprocessors);
}

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors) {
  return schedule_sm80::workspace_of(schedule_for<Kernel>(args, multiprocessors), args.v_head_dim);
}

template <class Kernel, class Hooks>
using device_readiness = prim::cuda::readiness<row_kernels<Kernel, Hooks>>;

/// Hidden, because shared objects that hold the same row have kernels, and so words, of their own.
template <class Kernel>
class __attribute__((visibility("hidden"))) kernel_arrivals {
 public:
  static inline constinit prim::cuda::arrival_table table{};
};

/// Where the blocks of a launch count themselves; -1 if `launch_combine` is to combine what
/// they leave.
template <class Kernel>
int arrivals_for(const schedule& cut, const std::byte* workspace) {
  if constexpr (resolved(Kernel::config).phase == attention_phase::decode) {
    if (cut.splits > 1 && cut.launches == 1) {
      return kernel_arrivals<Kernel>::table.place_of(workspace, cut.splits);
    }
  }
  return -1;
}

/// What kernels of rows with some features read.
template <class Kernel, class Hooks>
void set_features(launch_args& launched, const attention_kernel_args& args) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr attention_features features = config.features;
  launched.plain = has_plain_logits<Kernel, Hooks>(args);
  if constexpr (features.has(attention_feature::soft_cap)) {
    if (args.soft_cap > 0.0f) launched.inverse_cap = 1.0f / args.soft_cap;
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

template <class Kernel, class Hooks>
launch_args launch_args_of(const attention_kernel_args& args, const schedule& cut,
                           std::byte* workspace) {
  constexpr attention_config config = resolved(Kernel::config);
  launch_args launched;
  set_features<Kernel, Hooks>(launched, args);
  launched.call = args;
  // Farther than any key, and far from where 64-bit positions overflow: nvcc 13.0 turns the guarded
  // difference of mask_interval into an unguarded one.
  launched.call.window_left = std::min(args.window_left, 2 * longest_length);
  launched.call.window_right = std::min(args.window_right, 2 * longest_length);
  const auto section = static_cast<std::uint32_t>(cut.section);
  const auto heads = static_cast<std::uint32_t>(args.batch * args.kv_heads);
  launched.group = divisor::of(static_cast<std::uint32_t>(args.q_heads / args.kv_heads));
  launched.kv_heads = divisor::of(static_cast<std::uint32_t>(args.kv_heads));
  launched.section = divisor::of(section);
  launched.section_tiles =
      divisor::of(std::max(1u, section * static_cast<std::uint32_t>(cut.row_blocks)));
  launched.last_section = divisor::of(heads % section == 0 ? section : heads % section);
  if constexpr (are_paged(config.keys)) {
    launched.page = divisor::of(static_cast<std::uint32_t>(args.pages.page_size));
  }
  launched.row_blocks = cut.row_blocks;
  launched.splits = cut.splits;
  launched.split_count = divisor::of(static_cast<std::uint32_t>(cut.splits));
  launched.parts = divisor::of(static_cast<std::uint32_t>(cut.parts));
  launched.negative_scale = launched.plain && args.softmax_scale < 0.0f;
  const float scale = launched.plain ? std::fabs(args.softmax_scale) : 1.0f;
  // A scale of 0 would make NaN of hidden scores, 0 * -inf.
  launched.log2_scale = std::max(scale * prim::log2_e, 1e-30f);
  // Weights of f16 below 2^-14 lose bits, so the largest of them is made 2^headroom; with what the
  // maximum may grow before sums are rescaled, they stay below 2^16.
  // Room for keys is that of the batch.
  const std::int64_t keys = args.batch_invariant ? longest_length : args.kv_len;
  // Products with elements of 8 bits are of f16. The scales of tokens that weights are multiplied
  // by may be small: all room is theirs.
  constexpr bool coded = config.keys == key_storage::coded;
  const bool scales_weights = coded && args.v_token_scales.data != nullptr;
  const float growth =
      args.normalize && !scales_weights ? growth_of(config, args.head_dim, keys) : 0.0f;
  launched.headroom = config.type == dtype::f16 || coded ? 15.0f - growth : 0.0f;
  launched.rescale_above = launched.headroom + growth;
  launched.aligned_out = rows_are_aligned(args.out, args.out_strides, args.batch, args.q_len,
                                          args.q_heads, config.type);
  launched.partial_stride = schedule_sm80::partial_stride(args.v_head_dim);
  launched.partial_out = reinterpret_cast<float*>(workspace);
  launched.partial_stats = launched.partial_out + cut.rows * cut.splits * launched.partial_stride;
  launched.arrivals = arrivals_for<Kernel>(cut, workspace);
  launched.combine_blocks = cut.combine_blocks;
  launched.slices_of_block = cut.slices_of_block;
  if constexpr (are_paged(config.keys)) {
    if (!reads_prefixes_once(args) || Hooks::has_logits || Hooks::has_mask) {
      launched.call.prefixes = {};
    }
    if (cut.list.used) set_list(cut, workspace, launched);
  }
  return launched;
}

template <class Kernel>
cudaError_t launch_combine(const launch_args& args, std::int64_t rows, cudaStream_t stream,
                           bool dependent) {
  const std::int64_t slices =
      rows *
      schedule_sm80::slices_of_row(args.partial_stride, schedule_sm80::groups_for(args.splits));
  const auto blocks = static_cast<unsigned>((slices + combine_warps - 1) / combine_warps);
  return prim::cuda::launch_kernel(&combine_splits<Kernel>, dim3(blocks), combine_warps * 32, 0,
                                   stream, dependent, args, slices);
}

/// True if every sequence has one query, its last token, and the heads of a group fit in a tile.
template <class Kernel>
bool are_single_tokens(const launch_args& args) {
  return has_last_tokens(args.call) &&
         args.group.value <= static_cast<std::uint32_t>(resolved(Kernel::config).block_q);
}

template <class Kernel, int Width, class Tokens, class Hooks>
status launch_width(const launch_args& args, const Hooks& hooks, const launch_place& place) {
  using traits = kernel_traits<Kernel, Width, Tokens>;
  const schedule& cut = place.cut;
  const dim3 grid(static_cast<unsigned>(cut.work_tiles), static_cast<unsigned>(cut.splits));
  const bool dependent = device_readiness<Kernel, Hooks>::dependent(place.device);
  if constexpr (traits::paged) {
    if (cut.list.used) {
      return launch_listed<Kernel>(&forward_kernel<Kernel, Width, Tokens, Hooks>, args, hooks,
                                   place, traits::shared_bytes, dependent);
    }
  }
  cudaError_t code = prim::cuda::launch_kernel(&forward_kernel<Kernel, Width, Tokens, Hooks>, grid,
                                               traits::threads, traits::shared_bytes, place.stream,
                                               dependent, args, hooks);
  if (code == cudaSuccess && cut.splits > 1 && args.arrivals < 0) {
    code = launch_combine<Kernel>(args, cut.rows, place.stream, dependent);
  }
  if constexpr (Kernel::config.features.has(attention_feature::weights)) {
    if (code == cudaSuccess && args.call.weights != nullptr && cut.rows > 0) {
      const auto blocks = (cut.rows + weights_warps - 1) / weights_warps;
      code = prim::cuda::launch_kernel(&write_weights<Kernel, Hooks>,
                                       dim3(static_cast<unsigned>(blocks)), weights_warps * 32, 0,
                                       place.stream, false, args, hooks);
    }
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

/// The same where the heads of single tokens are the columns of products. `Code`: of 8-bit pools.
template <class Kernel, class Code = f8_e4m3, class Hooks>
status launch_groups(const launch_args& args, const Hooks& hooks, const launch_place& place) {
  using numbered_tokens = group_tokens_of<Kernel, false, Code>;
  using listed_tokens = group_tokens_of<Kernel, true, Code>;
  using numbered = kernel_traits<Kernel, 0, numbered_tokens>;
  using listed = kernel_traits<Kernel, 0, listed_tokens>;
  const auto of_items = &forward_kernel<Kernel, 0, listed_tokens, Hooks>;
  const schedule& cut = place.cut;
  const bool dependent = device_readiness<Kernel, Hooks>::dependent(place.device);
  cudaError_t code = cudaSuccess;
  if (cut.list.planned > 0) {
    code = launch_planned<Kernel, listed>(of_items, args, hooks, cut.list, place.stream, dependent);
  } else if (cut.list.used) {
    return launch_listed<Kernel>(of_items, args, hooks, place, listed::shared_bytes, dependent);
  } else {
    const dim3 grid(static_cast<unsigned>(cut.work_tiles), static_cast<unsigned>(cut.splits));
    code = launch_parts<numbered>(&forward_kernel<Kernel, 0, numbered_tokens, Hooks>, grid, args,
                                  hooks, place.stream, dependent);
    if (code == cudaSuccess && cut.splits > 1 && args.arrivals < 0) {
      code = launch_combine<Kernel>(args, cut.rows, place.stream, dependent);
    }
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

/// Writes the bits of dropout to a [B, Hq, Sq, Sk] mask in device memory; see
/// `flash_dropout_mask_function`.
template <class Kernel>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args,
                          void* stream) {
  return launch_dropout_mask<Kernel>(mask, args, stream);
}

/// Picks the width that holds both head dimensions.
template <class Kernel, class Tokens, class Hooks>
status launch_any(const launch_args& args, const Hooks& hooks, const launch_place& place) {
  switch (any_width(args.call.head_dim, args.call.v_head_dim)) {
    case 64:
      return launch_width<Kernel, 64, Tokens>(args, hooks, place);
    case 128:
      return launch_width<Kernel, 128, Tokens>(args, hooks, place);
    default:
      return launch_width<Kernel, 256, Tokens>(args, hooks, place);
  }
}

/// Picks the kernel for the elements of the pool.
template <class Kernel, class Hooks>
status launch_codes(const launch_args& args, const Hooks& hooks, const launch_place& place,
                    bool grouped) {
  const auto launch_code = [&](auto code) {
    if constexpr (has_group_tokens<Kernel, Hooks>) {
      if (grouped) return launch_groups<Kernel, decltype(code)>(args, hooks, place);
    }
    return launch_width<Kernel, 0, aligned_codes<decltype(code)>>(args, hooks, place);
  };
  switch (args.call.pool_type) {
    case dtype::f8_e4m3:
      return launch_code(f8_e4m3{});
    case dtype::f8_e5m2:
      return launch_code(f8_e5m2{});
    default:
      return launch_code(std::int8_t{});
  }
}

/// Readies the current device for launches of the row: raises the kernels' limits of shared memory,
/// and refuses (status_code::device) a device that the binary holds no code for. The first launch
/// on a device does the same; afterwards both cost some nanoseconds. No memory, no work on a
/// stream.
template <class Kernel, class Hooks = flash_hooks<>>
status prepare_with() {
  int device = 0;
  return device_readiness<Kernel, Hooks>::ready_current(device);
}

/// See `flash_prepare_function`.
template <class Kernel>
status prepare() {
  return prepare_with<Kernel>();
}

/// Refuses what the kernels' 32-bit positions do not hold.
inline status check_lengths(const attention_kernel_args& args, const schedule& cut) {
  if (args.q_len * (args.q_heads / args.kv_heads) < longest_length &&
      args.kv_len < longest_length && cut.work_tiles <= INT32_MAX) {
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
template <class Kernel, class Hooks>
status launch_with(const attention_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  launch_place place;
  place.cut = schedule_for<Kernel>(args, context.threads);
  place.stream = static_cast<cudaStream_t>(context.stream);
  const std::size_t needed = schedule_sm80::workspace_of(place.cut, args.v_head_dim);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  if (place.cut.work_tiles == 0 || place.cut.rows == 0) return {};
  if (status done = check_lengths(args, place.cut); !done) return done;
  if (status done = device_readiness<Kernel, Hooks>::ready_current(place.device); !done)
    return done;
  [[maybe_unused]] const bool grouped =
      share_group_tokens<Kernel, Hooks>(place.cut, args, context.threads, place.device);
  if constexpr (are_paged(Kernel::config.keys)) {
    if (status done = write_new_tokens<Kernel>(args, place.stream); !done) return done;
  }
  launch_args launched = launch_args_of<Kernel, Hooks>(args, place.cut, context.workspace);
  const bool single = are_single_tokens<Kernel>(launched);
  launched.single = single && !place.cut.list.used;
  const bool aligned = tokens_are_aligned(args, Kernel::config.type);
  if constexpr (takes_any_head_dim<Kernel>) {
    return aligned && !prim::cuda::is_code_type(args.pool_type)
               ? launch_any<Kernel, aligned_tokens>(launched, hooks, place)
               : launch_any<Kernel, any_tokens>(launched, hooks, place);
  } else {
    if (!aligned) {
      return {status_code::ineligible_row,
              "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs"};
    }
    if constexpr (Kernel::config.keys == key_storage::coded) {
      return launch_codes<Kernel>(launched, hooks, place, grouped);
    } else {
      if constexpr (has_group_tokens<Kernel, Hooks>) {
        if (grouped) return launch_groups<Kernel>(launched, hooks, place);
      }
      if constexpr (has_single_tokens<Kernel>) {
        if (launched.single) {
          return launch_width<Kernel, 0, single_tokens>(launched, hooks, place);
        }
      }
      return launch_width<Kernel, 0, aligned_tokens>(launched, hooks, place);
    }
  }
}

/// Runs the row's kernel; see `attention_launch_function`.
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention::sm80
