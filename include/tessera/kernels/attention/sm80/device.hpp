// What a row's kernels need of a device before they are launched there: code, and the limit of
// shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>

#include <cuda_runtime.h>

#include <tessera/kernels/attention/sm80/forward.hpp>
#include <tessera/kernels/attention/sm80/merge.hpp>
#include <tessera/kernels/attention/sm80/weights.hpp>
#include <tessera/kernels/cuda_launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::sm80 {

using namespace kernels::cuda;

template <class Row>
constexpr bool takes_any_head_dim = Row::config.head_dim == 0;

template <class Row, int Width, class Tokens, class Hooks>
kernel_entry entry_of() {
  return {reinterpret_cast<const void*>(&forward_kernel<Row, Width, Tokens, Hooks>),
          kernel_traits<Row, Width, Tokens>::shared_bytes};
}

/// The forward kernels of a row.
template <class Row, class Hooks>
auto forward_entries() {
  if constexpr (takes_any_head_dim<Row>) {
    return std::array{entry_of<Row, any_widths[0], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[1], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[2], aligned_tokens, Hooks>(),
                      entry_of<Row, any_widths[0], any_tokens, Hooks>(),
                      entry_of<Row, any_widths[1], any_tokens, Hooks>(),
                      entry_of<Row, any_widths[2], any_tokens, Hooks>()};
  } else {
    return std::array{entry_of<Row, 0, aligned_tokens, Hooks>()};
  }
}

/// All kernels of a row.
template <class Row, class Hooks>
struct row_kernels {
  static auto entries() {
    constexpr bool weights = Row::config.features.has(attention_feature::weights);
    constexpr auto forward = std::tuple_size_v<decltype(forward_entries<Row, Hooks>())>;
    std::array<kernel_entry, forward + 1 + (weights ? 1 : 0)> all{};
    std::ranges::copy(forward_entries<Row, Hooks>(), all.begin());
    all[forward].kernel = reinterpret_cast<const void*>(&merge_splits<Row>);
    if constexpr (weights) {
      all[forward + 1].kernel = reinterpret_cast<const void*>(&write_weights<Row, Hooks>);
    }
    return all;
  }
};

template <class Row, class Hooks>
using device_readiness = kernels::cuda::readiness<row_kernels<Row, Hooks>>;

/// `device_readiness` of the current device, whose number becomes `device`.
template <class Row, class Hooks>
status ready_current(int& device) {
  return device_readiness<Row, Hooks>::ready_current(device);
}

}  // namespace tessera::kernels::attention::sm80
