// Where the states of a sequence lie: at its number, or in the slot of a pool.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::selective_scan {

inline constexpr std::int64_t no_states = -1;

/// The entry of sequence n, of so many tokens, in tensors of states.
template <class Isa>
TESSERA_HD std::int64_t states_entry(const scan_sequences& sequences, std::int64_t n,
                                     std::int64_t length) {
  recurrence::sequence own;
  own.number = n;
  own.length = length;
  recurrence::find_states<Isa>(sequences, own);
  return own.has_states ? own.slot : no_states;
}

}  // namespace tessera::kernels::selective_scan
