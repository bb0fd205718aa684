// From the arguments of a launch to the plain numbers of one sequence: where it lies, how long it
// is, which keys its rows see. Shared by every backend.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention {

/// An entry with a range of keys of its own. Keys outside the tensor are nobody's.
TESSERA_HD constexpr prim::sequence range_of(const attention_kernel_args& args,
                                             std::int64_t index) noexcept {
  const auto inside = [&](std::int64_t key) {
    return key < 0 ? 0 : (key < args.kv_len ? key : args.kv_len);
  };
  const std::int64_t begin = inside(args.kv_start[index]), end = inside(args.kv_end[index]);
  return {index, 0, begin, args.q_len, end > begin ? end - begin : 0};
}

/// Sequences of a packed launch that have rows; `cu_seqlens_q` says where the last of them ends.
TESSERA_HD constexpr std::int64_t sequences_in_use(const attention_kernel_args& args) noexcept {
  if (args.num_seqs == nullptr) return args.batch;
  const std::int64_t used = *args.num_seqs;
  return used < 0 ? 0 : used < args.batch ? used : args.batch;
}

/// A packed sequence. Its keys are packed as well, or have lengths.
TESSERA_HD constexpr prim::sequence packed_sequence_of(const attention_kernel_args& args,
                                                       std::int64_t index) noexcept {
  if (index >= sequences_in_use(args)) return {.index = index};
  const std::int64_t begin = args.cu_seqlens_q[index];
  const std::int64_t length = args.cu_seqlens_q[index + 1] - begin;
  if (args.cu_seqlens_k == nullptr) return {index, begin, 0, length, args.seqlens_k[index]};
  const std::int64_t first_key = args.cu_seqlens_k[index];
  return {index, begin, first_key, length, args.cu_seqlens_k[index + 1] - first_key};
}

/// The sequence number `index` of a launch.
TESSERA_HD constexpr prim::sequence sequence_of(const attention_kernel_args& args,
                                                std::int64_t index) noexcept {
  if (args.cu_seqlens_q != nullptr) return packed_sequence_of(args, index);
  if (args.kv_end != nullptr) return range_of(args, index);
  return {index, 0, 0, args.seqlens_q != nullptr ? args.seqlens_q[index] : args.q_len,
          args.seqlens_k != nullptr ? args.seqlens_k[index] : args.kv_len};
}

/// Diagonal and window of a sequence. With bottom-right alignment its last row sees its last key,
/// or stands where the range says, be it behind the keys there are.
template <mask_mode Mode>
TESSERA_HD constexpr prim::row_visibility<Mode> visibility_of(const attention_kernel_args& args,
                                                              const prim::sequence& seq) noexcept {
  const std::int64_t end =
      args.kv_end != nullptr ? args.kv_end[seq.index] - seq.k_begin : seq.k_len;
  return {seq.k_len,
          {args.causal, args.window_left, args.window_right, args.top_left ? 0 : end - seq.q_len}};
}

/// Query heads that share one key/value head.
TESSERA_HD constexpr int group_of(const attention_kernel_args& args) noexcept {
  return args.kv_heads > 0 ? args.q_heads / args.kv_heads : 0;
}

}  // namespace tessera::kernels::attention
