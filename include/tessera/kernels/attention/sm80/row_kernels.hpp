// The kernels that a row of attention consists of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/split_kv.hpp>
#include <tessera/kernels/attention/sm80/split_kv_listed.hpp>
#include <tessera/kernels/attention/sm80/weights.hpp>
#include <tessera/kernels/attention/sm80/work_planner.hpp>
#include <tessera/kernels/kv_cache/sm80/append.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Kernel>
constexpr bool takes_any_head_dim = Kernel::config.head_dim == 0;

/// Rows with a kernel of their own for one query of each sequence.
template <class Kernel>
constexpr bool has_single_tokens =
    !takes_any_head_dim<Kernel> && Kernel::config.keys == key_storage::paged &&
    Kernel::config.phase == attention_phase::decode;

/// And for such of a few heads of a group.
template <class Kernel, class Hooks>
constexpr bool has_group_tokens = schedule_sm80::has_group_tokens(Kernel::config) &&
                                  !Hooks::has_logits && !Hooks::has_mask;

/// Rows of wgmma whose kernel beside them (own_row) has such tokens: on the multiprocessors that it
/// has for itself it waits for products.
template <class Kernel, class Hooks>
constexpr bool has_grouped_own_tokens =
    Kernel::config.target ==
        backend::cuda_sm90&& schedule_sm80::has_group_tokens(own_row<Kernel>::config) &&
    !Hooks::has_logits && !Hooks::has_mask;

/// How the tokens of such calls are read, of 8 bits if the row's pools are; all types of 8 bits
/// take as much memory.
template <class Kernel, bool Listed, class Code = f8_e4m3>
using group_tokens_of = std::conditional_t<Kernel::config.keys == key_storage::coded,
                                           group_codes<Code, Listed>, group_tokens<Listed>>;

/// Warps with parts of the keys that a block may have on a device, each with memory of its own.
template <class Traits>
int parts_on(int device) {
  int bytes = 0;
  const cudaError_t code =
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return code == cudaSuccess ? std::clamp((bytes - most_static_bytes) / Traits::shared_bytes, 1,
                                          schedule_sm80::most_group_warps)
                             : 1;
}

template <class Kernel, int Width, class Tokens, class Hooks>
prim::cuda::kernel_entry entry_of() {
  using traits = kernel_traits<Kernel, Width, Tokens>;
  int parts = 1, device = 0;
  if (traits::grouped && cudaGetDevice(&device) == cudaSuccess) parts = parts_on<traits>(device);
  return {reinterpret_cast<const void*>(&forward_kernel<Kernel, Width, Tokens, Hooks>),
          parts * traits::shared_bytes};
}

/// The forward kernels of a row.
template <class Kernel, class Hooks>
auto forward_entries() {
  if constexpr (takes_any_head_dim<Kernel>) {
    return std::array{entry_of<Kernel, any_widths[0], aligned_tokens, Hooks>(),
                      entry_of<Kernel, any_widths[1], aligned_tokens, Hooks>(),
                      entry_of<Kernel, any_widths[2], aligned_tokens, Hooks>(),
                      entry_of<Kernel, any_widths[0], any_tokens, Hooks>(),
                      entry_of<Kernel, any_widths[1], any_tokens, Hooks>(),
                      entry_of<Kernel, any_widths[2], any_tokens, Hooks>()};
  } else if constexpr (Kernel::config.keys == key_storage::coded) {
    const auto of_codes = []<class... Code>(Code...) {
      if constexpr (has_group_tokens<Kernel, Hooks>) {
        return std::array{entry_of<Kernel, 0, aligned_codes<Code>, Hooks>()...,
                          entry_of<Kernel, 0, group_codes<Code, false>, Hooks>()...,
                          entry_of<Kernel, 0, group_codes<Code, true>, Hooks>()...};
      } else {
        return std::array{entry_of<Kernel, 0, aligned_codes<Code>, Hooks>()...};
      }
    };
    return of_codes(f8_e4m3{}, f8_e5m2{}, std::int8_t{});
  } else if constexpr (has_group_tokens<Kernel, Hooks>) {
    return std::array{entry_of<Kernel, 0, aligned_tokens, Hooks>(),
                      entry_of<Kernel, 0, single_tokens, Hooks>(),
                      entry_of<Kernel, 0, group_tokens<false>, Hooks>(),
                      entry_of<Kernel, 0, group_tokens<true>, Hooks>()};
  } else if constexpr (has_single_tokens<Kernel>) {
    return std::array{entry_of<Kernel, 0, aligned_tokens, Hooks>(),
                      entry_of<Kernel, 0, single_tokens, Hooks>()};
  } else {
    return std::array{entry_of<Kernel, 0, aligned_tokens, Hooks>()};
  }
}

/// Every kernel of a row.
template <class Kernel, class Hooks>
struct row_kernels {
  static std::vector<prim::cuda::kernel_entry> entries() {
    const auto forward = forward_entries<Kernel, Hooks>();
    std::vector<prim::cuda::kernel_entry> all(forward.begin(), forward.end());
    all.push_back({reinterpret_cast<const void*>(&combine_splits<Kernel>)});
    if constexpr (are_paged(Kernel::config.keys)) {
      using element = element_t<Kernel::config.type>;
      all.push_back(
          {reinterpret_cast<const void*>(&kv_cache::sm80::append_tokens<1, element, element>)});
      all.push_back({reinterpret_cast<const void*>(&plan_work<Kernel>)});
      all.push_back({reinterpret_cast<const void*>(&combine_listed<Kernel>)});
      if constexpr (has_group_tokens<Kernel, Hooks>) {
        all.push_back({reinterpret_cast<const void*>(&combine_planned<Kernel>)});
      }
      if constexpr (schedule_sm80::has_own_kernel(Kernel::config)) {
        all.push_back(entry_of<own_row<Kernel>, 0, aligned_tokens, Hooks>());
      }
    }
    if constexpr (Kernel::config.features.has(attention_feature::weights)) {
      all.push_back({reinterpret_cast<const void*>(&write_weights<Kernel, Hooks>)});
    }
    return all;
  }
};

}  // namespace tessera::kernels::attention::sm80
