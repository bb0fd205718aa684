// Launches with a list of work: the kernel that writes it, those that do it, the one that combines
// what they leave.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/common/prefix.hpp>
#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/row_kernels.hpp>
#include <tessera/kernels/attention/sm80/split_kv_listed.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_planner.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::sm80 {

using schedule_sm80::schedule;

/// Where the list of a launch's work lies in its workspace, and partial results behind it.
inline void set_list(const schedule& cut, std::byte* workspace, launch_args& to) {
  const schedule_sm80::listing& list = cut.list;
  to.list.items = reinterpret_cast<work_item*>(workspace);
  static_assert(sizeof(work_item) == schedule_sm80::bytes_of_item);
  to.list.tiles = reinterpret_cast<planned_tile*>(to.list.items + list.items);
  static_assert(sizeof(planned_tile) == schedule_sm80::bytes_of_tile);
  int* numbers = reinterpret_cast<int*>(to.list.tiles + list.tiles);
  const auto take = [&numbers](std::int64_t count) {
    int* const first = numbers;
    numbers += count;
    return first;
  };
  to.list.order = take(list.items);
  to.list.first_items = take(list.tiles + 1);
  to.list.first_places = take(list.tiles + 1);
  to.list.first_large = take(list.tiles + 1);
  to.list.first_tiles = take(list.entries + 1);
  to.list.tile_count = take(4);
  to.list.most_tiles = static_cast<int>(list.tiles);
  to.list.most_items = static_cast<int>(list.items);
  to.list.apart = list.apart;
  to.list.group_slots = list.group_slots;
  to.list.place_rows = list.place_rows;
  to.list.most_places = static_cast<int>(list.places);
  to.partial_out = reinterpret_cast<float*>(workspace + schedule_sm80::list_bytes(list));
  to.partial_stats = to.partial_out + cut.partial_rows * to.partial_stride;
  join_rows(to.call);
}

/// Where and how the kernels of one call are launched.
struct launch_place {
  schedule cut{};
  cudaStream_t stream = nullptr;
  int device = 0;
};

/// Blocks that combine what items leave, each of some of them: three on each of 132
/// multiprocessors.
inline constexpr unsigned combine_blocks = 396;

/// Blocks for so many items or tiles of rows.
inline dim3 blocks_of(const launch_args& args, std::int64_t count) {
  return dim3(static_cast<unsigned>(count * args.call.kv_heads));
}

/// Kernels that run beside each other ask for all shared memory of a multiprocessor, once on a
/// device: the share that it has is not changed while blocks run there. Hidden, because shared
/// objects that hold the same row have kernels of their own.
template <class Kernel, class Tokens, class Hooks>
class __attribute__((visibility("hidden"))) shared_memory_of_both {
 public:
  static cudaError_t ask(const void* row, const void* own, int device) {
    const std::uint64_t bit = device >= 0 && device < 64 ? std::uint64_t{1} << device : 0;
    if ((asked_.load(std::memory_order_acquire) & bit) != 0) return cudaSuccess;
    for (const void* const kernel : {row, own}) {
      const cudaError_t code = cudaFuncSetAttribute(
          kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
      if (code != cudaSuccess) return code;
    }
    asked_.fetch_or(bit, std::memory_order_release);
    return cudaSuccess;
  }

 private:
  static inline std::atomic<std::uint64_t> asked_{0};
};

/// The keys that groups of sequences share, by `launch_groups(part of the list)`, which queues
/// `forward`, and beside them those that sequences have of their own: the second kernel starts when
/// the blocks of the first have, which multiply more than they read. `Tokens`: of the second.
template <class Kernel, class Tokens, class Hooks, class LaunchGroups>
cudaError_t launch_beside(const void* forward, const LaunchGroups& launch_groups, launch_args args,
                          const Hooks& hooks, const launch_place& place, bool dependent) {
  using own_traits = kernel_traits<own_row<Kernel>, 0, Tokens>;
  const auto own = &forward_kernel<own_row<Kernel>, 0, Tokens, Hooks>;
  const schedule_sm80::listing& list = place.cut.list;
  cudaError_t code = shared_memory_of_both<Kernel, Tokens, Hooks>::ask(
      forward, reinterpret_cast<const void*>(own), place.device);
  if (code != cudaSuccess) return code;
  args.list.part = work_part::groups;
  code = launch_groups(args);
  if (code != cudaSuccess) return code;
  args.list.part = work_part::sequences;
  return prim::cuda::launch_kernel(own, blocks_of(args, list.items - list.group_items),
                                   own_traits::threads, own_traits::shared_bytes, place.stream,
                                   dependent, args, hooks);
}

/// The same by the kernel beside that suits the call.
template <class Kernel, class Hooks, class LaunchGroups>
cudaError_t launch_apart(const void* forward, const LaunchGroups& launch_groups,
                         const launch_args& args, const Hooks& hooks, const launch_place& place,
                         bool dependent) {
  if constexpr (has_grouped_own_tokens<Kernel, Hooks>) {
    if (schedule_sm80::are_grouped(own_row<Kernel>::config, schedule_sm80::sizes_of(args.call))) {
      return launch_beside<Kernel, group_tokens<true>>(forward, launch_groups, args, hooks, place,
                                                       dependent);
    }
  }
  return launch_beside<Kernel, aligned_tokens>(forward, launch_groups, args, hooks, place,
                                               dependent);
}

/// The list of the work, the work, by `launch_work()`, and the combination of what it leaves.
template <class Kernel, class LaunchWork>
status launch_with_list(const launch_args& args, const launch_place& place, bool dependent,
                        const LaunchWork& launch_work) {
  const schedule_sm80::listing& list = place.cut.list;
  cudaError_t code = prim::cuda::launch_kernel(
      &plan_work<Kernel>, dim3(planner_blocks_for(list.items)), planner_threads, 0, place.stream,
      dependent, args, list.slots, list.least_tiles);
  if (code == cudaSuccess) code = launch_work();
  if (code == cudaSuccess) {
    // Tiles of a kernel beside the row's have few rows: all blocks run at once if they are small.
    const int warps = list.apart ? combine_warps / 2 : combine_warps;
    const dim3 blocks = shares_combining<Kernel>(list.apart)
                            ? dim3(std::min(blocks_of(args, list.items).x, combine_blocks))
                            : blocks_of(args, list.tiles);
    code = prim::cuda::launch_kernel(&combine_listed<Kernel>, blocks, warps * 32, 0, place.stream,
                                     dependent, args);
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();
  return prim::cuda::device_failure("kernel launch", code);
}

/// The same of a row of this folder.
template <class Kernel, class Hooks>
status launch_listed(void (*forward)(launch_args, Hooks), const launch_args& args,
                     const Hooks& hooks, const launch_place& place, int shared_bytes,
                     bool dependent) {
  const schedule_sm80::listing& list = place.cut.list;
  const auto launch_items = [&](const launch_args& part, std::int64_t items) {
    return prim::cuda::launch_kernel(forward, blocks_of(part, items),
                                     resolved(Kernel::config).tiling.warps * 32, shared_bytes,
                                     place.stream, dependent, part, hooks);
  };
  return launch_with_list<Kernel>(args, place, dependent, [&] {
    if constexpr (schedule_sm80::has_own_kernel(Kernel::config)) {
      if (list.apart) {
        return launch_apart<Kernel>(
            reinterpret_cast<const void*>(forward),
            [&](const launch_args& part) { return launch_items(part, list.group_items); }, args,
            hooks, place, dependent);
      }
    }
    return launch_items(args, list.items);
  });
}

}  // namespace tessera::kernels::attention::sm80
