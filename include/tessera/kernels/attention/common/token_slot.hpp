// Where the keys and values of new tokens go, for calls that write to the pool before they attend.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention {

/// A slot of the pool, in elements from the slot of page 0 that is its first; absent for tokens
/// that belong to no sequence in use, and for slots outside of table and pool.
struct token_slot {
  bool present = false;
  std::int64_t k = 0, v = 0;
};

/// The packed sequence in use that row `token` of q belongs to, or the last one before it.
TESSERA_HD constexpr prim::sequence sequence_with(const attention_kernel_args& args,
                                                  std::int64_t token) noexcept {
  std::int64_t least = 0, most = sequences_in_use(args);
  while (most - least > 1) {
    const std::int64_t middle = (least + most) / 2;
    (args.cu_seqlens_q[middle] <= token ? least : most) = middle;
  }
  return packed_sequence_of(args, least);
}

TESSERA_HD constexpr token_slot slot_of(const attention_kernel_args& args,
                                        std::int64_t token) noexcept {
  const prim::sequence seq = sequence_with(args, token);
  const std::int64_t row = token - seq.q_begin;
  const std::int64_t position = seq.k_len - seq.q_len + row;
  if (row < 0 || row >= seq.q_len || position < 0 || position >= args.kv_len) return {};
  const page_table& pages = args.pages;
  const std::int64_t index = position / pages.page_size;
  const std::int64_t page = pages.numbers[seq.index * pages.row + index];
  if (page < 0 || page >= pages.page_count) return {};
  const std::int64_t slot = position - index * pages.page_size;
  return {true, page * args.k_strides.batch + slot * args.k_strides.row,
          page * args.v_strides.batch + slot * args.v_strides.row};
}

/// One channel of a slot: the keys or the values of a head, or nothing that anybody reads.
struct slot_channel {
  std::int64_t source = 0;  ///< elements from the first of k or v
  std::int64_t target = 0;  ///< elements from the pool's first key or value
  bool is_value = false;
  int copied = 0;            ///< columns from the source; 0: nothing
  std::int64_t columns = 0;  ///< in all: those behind become 0
};

/// Channels of a slot that are written.
TESSERA_HD constexpr std::int64_t channels_of(const attention_kernel_args& args) noexcept {
  const std::int64_t used = 2 * std::int64_t{args.kv_heads};
  return args.written.channels > used ? args.written.channels : used;
}

TESSERA_HD constexpr slot_channel channel_of(const attention_kernel_args& args,
                                             const token_slot& slot, std::int64_t token,
                                             std::int64_t channel) noexcept {
  const new_tokens& written = args.written;
  slot_channel to;
  to.columns = written.columns;
  const std::int64_t head = channel / 2;
  if (head >= args.kv_heads) {  // behind all heads
    to.target = slot.k + channel * written.channel_stride;
    return to;
  }
  to.is_value = channel % 2 != 0;
  to.copied = to.is_value ? args.v_head_dim : args.head_dim;
  if (to.columns < to.copied) to.columns = to.copied;
  const row_strides& from = to.is_value ? written.v_strides : written.k_strides;
  to.source = token * from.row + head * from.head;
  to.target =
      to.is_value ? slot.v + head * args.v_strides.head : slot.k + head * args.k_strides.head;
  return to;
}

}  // namespace tessera::kernels::attention
