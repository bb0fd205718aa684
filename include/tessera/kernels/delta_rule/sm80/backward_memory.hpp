// The workspace of the gradients of the delta rules on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/replay.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// What the kernels of a launch know besides its arguments.
struct backward_args {
  delta_rule_kernel_args call{};
  recurrence::sm80::replay_cut cut{};
  float* states = nullptr;  ///< [blocks][floats_of_block]
  /// Gradients of q and k by value head, [rows of tokens][HV][K]; null where a key head has one.
  float *d_query = nullptr, *d_key = nullptr;
  /// Sums over the tokens of a sequence, [sequences][HV][2][channels of the gate]: of dt_bias, and
  /// of A_log by channel. Null: no raw gates.
  double* gate_sums = nullptr;

  TESSERA_HD int gate_channels() const {
    return call.decay_has_channels ? static_cast<int>(call.key_dim) : 1;
  }
};

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
struct backward_scratch {
  backward_args args{};
  std::size_t bytes = 0;

  backward_scratch(const delta_rule_kernel_args& call, const recurrence::sm80::replay_cut& cut,
                   std::byte* base) {
    cuda::workspace_parts parts(base);
    args.call = call;
    args.cut = cut;
    parts.take(args.states, args.cut.blocks * args.cut.floats_of_block());
    if (call.value_heads != call.key_heads) {
      const std::int64_t count =
          recurrence::entries_of(call) * call.tokens * call.value_heads * call.key_dim;
      parts.take(args.d_query, count);
      parts.take(args.d_key, count);
    }
    if (call.gate.raw) {
      parts.take(args.gate_sums, call.sequences * call.value_heads * 2 * args.gate_channels());
    }
    bytes = parts.bytes();
  }
};

}  // namespace tessera::kernels::delta_rule::sm80
