// What the words of all recurrences are for the delta rules, and what a sequence starts from.
#pragma once

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule {

using recurrence::row_of;
using recurrence::sequence;
using recurrence::sequence_of;
using recurrence::sequences_with_rest;

/// What a sequence starts from; null: 0.
template <class Isa>
TESSERA_HD delta_rule_states<const void> initial_states(const delta_rule_kernel_args& args,
                                                        const sequence& tokens) {
  return tokens.starts_from_zero ? delta_rule_states<const void>() : args.initial;
}

}  // namespace tessera::kernels::delta_rule
