// New keys and values to the pool, before anybody attends to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/token_slot.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::attention::cpu {

/// Writes args.written, a token a work item; nothing where a launch has none.
template <class Kernel>
void write_tokens(const attention_kernel_args& args, int threads) {
  using element = typename traits<Kernel>::element;
  using isa_type = typename traits<Kernel>::isa_type;
  if (args.written.k == nullptr || sequences_in_use(args) == 0) return;
  // The declaration says that the pool is input and output.
  auto* const keys = static_cast<element*>(const_cast<void*>(args.k));
  auto* const values = static_cast<element*>(const_cast<void*>(args.v));
  const std::int64_t channels = channels_of(args);
  prim::parallel_items<isa_type>(args.q_len, threads, [&](std::int64_t token, int) {
    const token_slot slot = slot_of(args, token);
    for (std::int64_t c = 0; slot.present && c < channels; ++c) {
      const slot_channel channel = channel_of(args, slot, token, c);
      element* const to = (channel.is_value ? values : keys) + channel.target;
      const void* const from = channel.is_value ? args.written.v : args.written.k;
      if (channel.copied > 0) {
        std::memcpy(to, static_cast<const element*>(from) + channel.source,
                    static_cast<std::size_t>(channel.copied) * sizeof(element));
      }
      for (std::int64_t d = channel.copied; d < channel.columns; ++d) to[d] = element{};
    }
  });
}

}  // namespace tessera::kernels::attention::cpu
