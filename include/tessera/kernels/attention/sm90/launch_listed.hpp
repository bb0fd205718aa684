// Launches over pages whose work is a list that the device writes first, those of sm80 (see there:
// work_list.hpp, work_planner.hpp, split_kv_listed.hpp) with wgmma for the items: long sequences
// are cut by their keys, and pages that sequences share are read once.
//
// Single tokens of sequences that share pages: what a group shares is a prompt's worth of products
// for each of its keys. It is done here, on some of the multiprocessors, while a kernel of mma.sync
// reads what sequences have of their own on the others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/common/written_tokens.hpp>
#include <tessera/kernels/attention/sm80/launch.hpp>
#include <tessera/kernels/attention/sm90/call_plan.hpp>
#include <tessera/kernels/attention/sm90/forward_kernel.hpp>
#include <tessera/kernels/attention/sm90/launch_args.hpp>
#include <tessera/kernels/attention/sm90/launch_rows.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::sm90 {

/// How items are cut: the heads of a group share a tile.
inline schedule cut_of_items(const attention_kernel_args& args, const schedule_sm80::listing& list,
                             int block_q) {
  const std::int64_t items = list.apart ? list.group_items : list.items;
  schedule cut;
  cut.heads_of_tile = args.q_heads / args.kv_heads;
  cut.tokens_of_tile = block_q / cut.heads_of_tile;
  cut.work_tiles = cut.busy_tiles = items * args.kv_heads;
  return cut;
}

/// Single tokens of sequences become rows of one tensor. Several of a sequence stay in its entry.
inline attention_kernel_args with_joined_rows(attention_kernel_args args) {
  if (!are_rows_apart(args)) return args;
  join_rows(args);
  args.q_strides.batch = args.out_strides.batch = args.lse.batch = 0;
  return args;
}

template <class Kernel, class Hooks>
struct page_launches {
  using traits = kernel_traits<Kernel, Hooks>;

  /// The row's kernel and those beside it.
  static auto entries(const prim::cuda::kernel_entry& forward) {
    using prim::cuda::kernel_entry;
    using own_row = sm80::own_row<Kernel>;
    const kernel_entry plan{reinterpret_cast<const void*>(&sm80::plan_work<Kernel>)};
    const kernel_entry combine{reinterpret_cast<const void*>(&sm80::combine_listed<Kernel>)};
    const kernel_entry own = sm80::entry_of<own_row, 0, sm80::aligned_tokens, Hooks>();
    if constexpr (sm80::has_grouped_own_tokens<Kernel, Hooks>) {
      return std::array{forward, plan, combine, own,
                        sm80::entry_of<own_row, 0, sm80::group_tokens<true>, Hooks>()};
    } else {
      return std::array{forward, plan, combine, own};
    }
  }

  /// Queues the writes of new tokens, before the launch attends to them.
  static status write_tokens(const attention_kernel_args& args, cudaStream_t stream) {
    return write_new_tokens<Kernel>(args, stream);
  }

  /// Queues the list, the work and what combines it. `ready`: kernels may start before those that
  /// they wait for end.
  static status launch(const attention_kernel_args& args, const Hooks& hooks,
                       const launch_context& context, const call_plan& plan, int device,
                       bool ready) {
    const auto forward = &forward_kernel<Kernel, Hooks>;
    const auto stream = static_cast<cudaStream_t>(context.stream);
    const schedule_sm80::listing& list = plan.listed.list;
    const schedule cut = cut_of_items(args, list, traits::block_q);
    attention_kernel_args joined = with_joined_rows(args);
    launch_args launched = launch_args_of<Kernel, Hooks>(joined, cut);
    launched.aligned_out =
        rows_are_aligned(args.out, args.out_strides, args.batch, args.q_len, args.q_heads, 2);
    if (are_rows_apart(args)) {
      joined.q_len = joined.batch;
      joined.batch = 1;
    }
    const tensor_maps maps = maps_of<traits>(joined, cut, launched);
    if (const cudaError_t code = set_counter<Kernel>(launched, context.workspace, stream);
        code != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return prim::cuda::device_failure("clearing a counter", code);
    }
    const bool dependent = ready && launched.counter_place >= 0;
    const auto listed =
        sm80::launch_args_of<Kernel, Hooks>(args, plan.listed, context.workspace + plan.list);
    launched.call.prefixes = listed.call.prefixes;
    launched.partial_out = listed.partial_out;
    launched.partial_stats = listed.partial_stats;
    launched.partial_stride = listed.partial_stride;
    const auto launch_items = [&](const sm80::launch_args& part) {
      launched.list = part.list;
      const int most = list.apart ? list.group_slots : std::max(1, context.threads);
      return prim::cuda::launch_kernel(
          forward, dim3(static_cast<unsigned>(std::min(launched.tiles, most))), traits::threads,
          static_cast<int>(sizeof(shared_plan<traits>)), stream, dependent, launched, maps, hooks);
    };
    const sm80::launch_place place{plan.listed, stream, device};
    return sm80::launch_with_list<Kernel>(listed, place, dependent, [&] {
      return list.apart ? sm80::launch_apart<Kernel>(reinterpret_cast<const void*>(forward),
                                                     launch_items, listed, hooks, place, dependent)
                        : launch_items(listed);
    });
  }
};

}  // namespace tessera::kernels::attention::sm90
