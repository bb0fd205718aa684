// Entry points of the wgmma kernels (compute capability 9.0, compiled for sm_90a): workspace,
// preparation and launch, with the signatures that the table of rows has. Rows whose keys lie in
// pages want launch.hpp, which has this and the kernels of sm80 that such launches queue besides.
//
//   struct my_row {
//     static constexpr tessera::attention_config config{.target = tessera::backend::cuda_sm90,
//                                                   .type = tessera::dtype::bf16, .head_dim = 128};
//   };
//   tessera::kernels::attention::sm90::launch<my_row>(args, {.threads = multiprocessors, .stream =
//   stream, ...});
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/common/dropout_mask.hpp>
#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/sm90/call_plan.hpp>
#include <tessera/kernels/attention/sm90/classify.hpp>
#include <tessera/kernels/attention/sm90/forward_kernel.hpp>
#include <tessera/kernels/attention/sm90/launch_args.hpp>
#include <tessera/kernels/attention/sm90/segment_runs.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::sm90 {

/// What rows over pages launch besides (launch_listed.hpp).
template <class Kernel, class Hooks>
struct page_launches;

/// The kernels of a row.
template <class Kernel, class Hooks>
struct row_kernels {
  using traits = kernel_traits<Kernel, Hooks>;
  static auto entries() {
    const prim::cuda::kernel_entry forward{
        reinterpret_cast<const void*>(&forward_kernel<Kernel, Hooks>),
        static_cast<int>(sizeof(shared_plan<traits>))};
    if constexpr (finds_runs<traits>) {
      using plain = kernel_traits<run_row<Kernel>>;
      return std::array{
          forward,
          prim::cuda::kernel_entry{reinterpret_cast<const void*>(&classify_tiles<Kernel, traits>)},
          prim::cuda::kernel_entry{reinterpret_cast<const void*>(&find_runs<Kernel>)},
          prim::cuda::kernel_entry{
              reinterpret_cast<const void*>(&forward_kernel<run_row<Kernel>, flash_hooks<>>),
              static_cast<int>(sizeof(shared_plan<plain>))}};
    } else if constexpr (traits::classifies && !traits::whole_tiles) {
      return std::array{
          forward,
          prim::cuda::kernel_entry{reinterpret_cast<const void*>(&classify_tiles<Kernel, traits>)}};
    } else if constexpr (traits::codes_of_heads) {
      return std::array{forward, prim::cuda::kernel_entry{reinterpret_cast<const void*>(
                                     &lay_values_across<Kernel, traits>)}};
    } else if constexpr (traits::lists) {
      return page_launches<Kernel, Hooks>::entries(forward);
    } else {
      return std::array{forward};
    }
  }
};
template <class Kernel, class Hooks>
using device_readiness = prim::cuda::readiness<row_kernels<Kernel, Hooks>>;

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

/// Readies the current device for launches of the row: raises the kernel's limit of shared memory,
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

/// Writes the bits of dropout to a [B, Hq, Sq, Sk] mask in device memory; see
/// `flash_dropout_mask_function`.
template <class Kernel>
status write_dropout_mask(const tensor_view& mask, const attention_kernel_args& args,
                          void* stream) {
  return launch_dropout_mask<Kernel>(mask, args, stream);
}

/// The last work tiles become parts.
inline void share_last_tiles(launch_args& launched, const call_plan& plan, std::byte* workspace) {
  const int tiles = plan.split.tiles;
  launched.whole_tiles = launched.tiles - tiles;
  launched.shared_tiles = divisor::of(static_cast<std::uint32_t>(std::max(1, tiles)));
  launched.parts = divisor::of(static_cast<std::uint32_t>(plan.split.parts));
  launched.units = divisor::of(static_cast<std::uint32_t>(plan.split.units));
  launched.units_of_part = plan.split.units_of_part;
  launched.sums_of_parts = reinterpret_cast<float4*>(workspace + plan.parts);
  launched.tiles += tiles * (plan.split.parts - 1);
}

/// Queues the kernel that finds the keys of rows, and that which makes rows if there are such.
template <class Kernel>
cudaError_t launch_runs(launch_args& launched, const launch_context& context, std::byte* workspace,
                        bool dependent) {
  using runs = run_row<Kernel>;
  using traits = kernel_traits<runs>;
  const attention_kernel_args& args = launched.call;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  launched.run_keys = reinterpret_cast<row_keys*>(workspace);
  launched.scattered = reinterpret_cast<int*>(launched.run_keys + args.batch * args.q_len);
  const schedule cut = schedule_sm90::schedule_of(runs::config, schedule_sm90::sizes_of(args));
  launch_args own = launch_args_of<runs, flash_hooks<>>(args, cut);
  own.whole_tiles = own.tiles;
  own.run_keys = launched.run_keys;
  own.scattered = launched.scattered;
  const tensor_maps maps = maps_of<traits>(args, cut, own);
  cudaError_t code = set_counter<runs>(own, context.workspace, stream);
  const bool counts_beside = own.counter_place >= 0;
  if (code == cudaSuccess) {
    const auto chunks = static_cast<int>((args.q_len + run_threads - 1) / run_threads);
    code = prim::cuda::launch_kernel(&find_runs<Kernel>,
                                     dim3(static_cast<unsigned>(args.batch * chunks)), run_threads,
                                     0, stream, dependent && counts_beside, launched, chunks);
  }
  if (code != cudaSuccess) return code;
  const auto blocks = static_cast<unsigned>(std::min(own.tiles, std::max(1, context.threads)));
  return prim::cuda::launch_kernel(&forward_kernel<runs, flash_hooks<>>, dim3(blocks),
                                   traits::threads, static_cast<int>(sizeof(shared_plan<traits>)),
                                   stream, dependent, own, maps, flash_hooks<>{});
}

/// Queues the kernel that classifies tiles, where there is something to classify by.
template <class Kernel, class Hooks>
cudaError_t launch_classify(launch_args& launched, const Hooks& hooks,
                            const schedule_sm90::class_schedule& classes, std::byte* workspace,
                            cudaStream_t stream, bool dependent) {
  using traits = kernel_traits<Kernel, Hooks>;
  if constexpr (traits::classifies && !traits::whole_tiles) {
    if (classes.words() == 0) return cudaSuccess;
    if constexpr (traits::walks_tiles) {
      launched.planner_asks = hooks.mask.is_quick() && classes.words_of_row <= near_words;
      if (launched.planner_asks) return cudaSuccess;
    }
    launched.classes = reinterpret_cast<class_words*>(workspace + schedule_sm90::counter_bytes);
    launched.words_of_row = classes.words_of_row;
    launched.class_blocks = classes.blocks;
    launched.classes_by_head = classes.heads > 1;
    return prim::cuda::launch_kernel(
        &classify_tiles<Kernel, traits>, dim3(static_cast<unsigned>(classes.words())),
        classify_threads<traits>, 0, stream, dependent, launched, hooks);
  }
  return cudaSuccess;
}

/// Queues the kernel that lays values of 8 bits across.
template <class Kernel, class Traits>
cudaError_t launch_across(launch_args& launched, std::byte* workspace, cudaStream_t stream,
                          bool dependent) {
  if constexpr (Traits::codes_of_heads) {
    const std::int64_t tiles = value_tiles_of(launched.call, Traits::block_kv);
    launched.values = workspace;
    launched.value_tiles = static_cast<int>(tiles);
    if (launched.call.kv_len == 0) return cudaSuccess;
    const auto blocks = std::min(tiles * launched.call.kv_heads, most_across_blocks);
    return prim::cuda::launch_kernel(&lay_values_across<Kernel, Traits>,
                                     dim3(static_cast<unsigned>(blocks)), across_threads<Traits>, 0,
                                     stream, dependent, launched);
  }
  return cudaSuccess;
}

/// Bytes of shared memory that a launch uses.
template <class Traits>
int used_shared_memory(const launch_args& launched) {
  std::size_t bytes = sizeof(shared_plan<Traits>);
  if constexpr (Traits::brings_biases) {
    if (launched.bias.bytes == 0) bytes -= sizeof(bias_places<Traits>);
  }
  return static_cast<int>(bytes);
}

/// Runs the row's kernel with user hooks on `context.stream` of the current device, whose number of
/// multiprocessors is `context.threads`. Returns before the work is done. Can be captured in a
/// graph once the device is ready (see `prepare`).
template <class Kernel, class Hooks>
status launch_with(const attention_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  using traits = kernel_traits<Kernel, Hooks>;
  const call_plan plan = plan_of<Kernel, Hooks>(args, context.threads);
  const schedule& cut = plan.cut;
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, plan.bytes);
      !done) {
    return done;
  }
  // Packed tensors without sequences have rows all the same: behind the last.
  if (cut.work_tiles == 0 || args.q_len == 0) return {};
  if (status done = check_lengths(args, cut); !done) return done;
  int device = 0;
  if (status done = device_readiness<Kernel, Hooks>::ready_current(device); !done) return done;
  if (!tokens_are_aligned(args, sizeof(typename traits::stored))) {
    return {status_code::ineligible_row,
            "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs"};
  }
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (traits::paged) {
    using pages = page_launches<Kernel, Hooks>;
    if (status done = pages::write_tokens(args, stream); !done) return done;
    if constexpr (traits::lists) {
      if (plan.listed.list.used) {
        return pages::launch(args, hooks, context, plan, device,
                             device_readiness<Kernel, Hooks>::dependent(device));
      }
    }
  }
  launch_args launched = launch_args_of<Kernel, Hooks>(args, cut);
  share_last_tiles(launched, plan, context.workspace);
  const tensor_maps maps = maps_of<traits>(args, cut, launched);
  cudaError_t code = set_counter<Kernel>(launched, context.workspace, stream);
  const bool dependent =
      launched.counter_place >= 0 && device_readiness<Kernel, Hooks>::dependent(device);
  if constexpr (finds_runs<traits>) {
    if (code == cudaSuccess && plan.bytes > plan.runs) {
      code = launch_runs<Kernel>(launched, context, context.workspace + plan.runs, dependent);
    }
  }
  if (code == cudaSuccess) {
    code = launch_classify<Kernel>(launched, hooks, plan.classes.classes, context.workspace, stream,
                                   dependent);
  }
  if (code == cudaSuccess) {
    code =
        launch_across<Kernel, traits>(launched, context.workspace + plan.values, stream, dependent);
  }
  const auto blocks = static_cast<unsigned>(std::min(launched.tiles, std::max(1, context.threads)));
  if (code == cudaSuccess) {
    code = prim::cuda::launch_kernel(&forward_kernel<Kernel, Hooks>, dim3(blocks), traits::threads,
                                     used_shared_memory<traits>(launched), stream, dependent,
                                     launched, maps, hooks);
  }
  if (code == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return prim::cuda::device_failure("kernel launch", code);
}

/// Runs the row's kernel; see `attention_launch_function`.
template <class Kernel>
status launch(const attention_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention::sm90
