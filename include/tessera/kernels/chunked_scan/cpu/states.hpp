// Tiles of states in scratch memory and the tensors they come from and go to.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// A block of value channels of the state of a sequence and head.
struct state_place {
  std::int64_t sequence = 0, head = 0;
  std::int64_t value = 0;   ///< the first of the block
  std::int64_t values = 0;  ///< of the block that the tensor has

  std::int64_t of_key(const chunked_scan_states& states, std::int64_t key) const noexcept {
    return sequence * states.sequence + head * states.head + key * states.key + value;
  }
};

/// The tile of a state; zeros where there is none, in value channels that the tensor lacks, and in
/// the rows of keys from `keys` to `padded`.
template <class Kernel>
void load_state(const chunked_scan_states& states, const state_place& place, std::int64_t keys,
                std::int64_t padded, float* tile) {
  using shape = traits<Kernel>;
  const std::int64_t given = states.data == nullptr ? 0 : keys;
  std::fill_n(tile + given * shape::block, (padded - given) * shape::block, 0.0f);
  for (std::int64_t key = 0; key < given; ++key) {
    load_row<Kernel>(states.data + place.of_key(states, key), place.values, 1.0f, shape::block,
                     tile + key * shape::block);
  }
}

template <class Kernel>
void store_state(const chunked_scan_states& states, const state_place& place, std::int64_t keys,
                 const float* tile) {
  if (states.data == nullptr) return;
  for (std::int64_t key = 0; key < keys; ++key) {
    std::copy_n(tile + key * traits<Kernel>::block, place.values,
                states.data + place.of_key(states, key));
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
