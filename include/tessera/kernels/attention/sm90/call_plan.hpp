// What the host settles of a launch: how the call is cut, and where the workspace holds what.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/sm90/segment_runs.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/values_across.hpp>
#include <tessera/prim/common/hooks.hpp>

namespace tessera::kernels::attention::sm90 {

using schedule_sm90::schedule;

/// How tiles of keys are classified, and for how many words there is room.
struct class_plan {
  schedule_sm90::class_schedule classes{};
  std::int64_t room = 0;
};

/// Nothing where nothing hides whole tiles, and where there would be too many words.
template <class Kernel, class Hooks>
class_plan classes_for(const attention_kernel_args& args, const schedule& cut) {
  using traits = kernel_traits<Kernel, Hooks>;
  constexpr bool masks = traits::has(attention_feature::mask);
  constexpr bool segments = traits::has(attention_feature::segments);
  constexpr bool asks = prim::classifies_tiles<decltype(Hooks::mask)> && !traits::whole_tiles;
  const bool masked = masks && args.mask.data != nullptr;
  if (!asks && !masked && !(segments && args.q_segments.data != nullptr)) return {};
  const schedule_sm90::call_sizes sizes = schedule_sm90::sizes_of(args);
  const bool by_head = asks || (masked && args.mask.head != 0);
  return {schedule_sm90::classes_of(Kernel::config, sizes, cut, by_head),
          schedule_sm90::room_for_classes(Kernel::config, sizes, cut)};
}

/// Bytes of values that lie across.
template <class Traits>
std::size_t values_across_bytes(const attention_kernel_args& args) {
  if constexpr (!Traits::codes_of_heads) return 0;
  const std::int64_t tiles = value_tiles_of(args, Traits::block_kv);
  return static_cast<std::size_t>(tiles) * static_cast<std::size_t>(args.kv_heads) *
         Traits::v_bytes;
}

/// How a call is cut, and where its workspace holds what.
struct call_plan {
  schedule cut{};
  class_plan classes{};
  schedule_sm90::split_schedule split{};
  schedule_sm80::schedule listed{};  ///< its list is used: instead of `cut`
  /// Where these lie; of all.
  std::size_t values = 0, parts = 0, runs = 0, list = 0, bytes = 0;
};

template <class Kernel, class Hooks>
call_plan plan_of(const attention_kernel_args& args, int multiprocessors) {
  const schedule_sm90::call_sizes sizes = schedule_sm90::sizes_of(args);
  call_plan plan;
  plan.cut = schedule_sm90::schedule_of(Kernel::config, sizes);
  plan.classes = classes_for<Kernel, Hooks>(args, plan.cut);
  if constexpr (kernel_traits<Kernel, Hooks>::shares_keys) {
    plan.split = schedule_sm90::splits_of(Kernel::config, sizes, plan.cut,
                                          args.causal && args.top_left, multiprocessors);
  }
  plan.values = schedule_sm90::workspace_of(plan.classes.room);
  plan.parts = plan.values + values_across_bytes<kernel_traits<Kernel, Hooks>>(args);
  plan.runs = plan.parts + schedule_sm90::part_bytes(Kernel::config, plan.split);
  plan.list = plan.bytes = plan.runs;
  if constexpr (finds_runs<kernel_traits<Kernel, Hooks>>) plan.bytes += run_bytes(args);
  if constexpr (kernel_traits<Kernel, Hooks>::lists) {
    plan.listed = schedule_sm90::listed_of(Kernel::config, sizes, multiprocessors);
    if (plan.listed.list.used) {
      plan.bytes += schedule_sm80::workspace_of(plan.listed, args.v_head_dim);
    }
  }
  return plan;
}

/// Bytes of device memory that `launch_with` needs.
template <class Kernel, class Hooks>
std::size_t workspace_bytes_with(const attention_kernel_args& args, int multiprocessors) {
  return plan_of<Kernel, Hooks>(args, multiprocessors).bytes;
}

/// Bytes of device memory that `launch` needs.
template <class Kernel>
std::size_t workspace_bytes(const attention_kernel_args& args, int multiprocessors) {
  return workspace_bytes_with<Kernel, flash_hooks<>>(args, multiprocessors);
}

}  // namespace tessera::kernels::attention::sm90
