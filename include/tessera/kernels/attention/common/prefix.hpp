// Groups of sequences that share their first keys: which sequences, how many keys, and their rows
// as those of one sequence. Shared by every backend.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention {

/// Sequences [begin, end).
struct sequence_group {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Those of a group that are in use.
TESSERA_HD TESSERA_INLINE constexpr sequence_group group_of_prefix(
    const attention_kernel_args& args, std::int64_t prefix) noexcept {
  const std::int64_t used = sequences_in_use(args);
  const auto inside = [&](std::int64_t sequence) {
    return sequence < 0 ? 0 : sequence < used ? sequence : used;
  };
  return {inside(args.prefixes.sequences[prefix]), inside(args.prefixes.sequences[prefix + 1])};
}

/// Keys that a group reads at once, in whole steps of `step`: none for a sequence alone.
TESSERA_HD TESSERA_INLINE constexpr std::int64_t keys_of_prefix(const attention_kernel_args& args,
                                                                std::int64_t prefix,
                                                                std::int64_t step = 1) noexcept {
  const sequence_group group = group_of_prefix(args, prefix);
  const std::int64_t pages = args.prefixes.pages[prefix];
  if (group.end - group.begin < 2 || pages <= 0) return 0;
  const std::int64_t keys = pages * args.pages.page_size;
  return (keys < args.kv_len ? keys : args.kv_len) / step * step;
}

/// The group of a sequence; -1: none.
TESSERA_HD TESSERA_INLINE constexpr std::int64_t prefix_of_sequence(
    const attention_kernel_args& args, std::int64_t sequence) noexcept {
  std::int64_t low = 0;
  for (std::int64_t high = args.prefixes.count; low < high;) {
    const std::int64_t middle = (low + high) / 2;
    if (args.prefixes.sequences[middle + 1] <= sequence) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low >= args.prefixes.count) return -1;
  const sequence_group group = group_of_prefix(args, low);
  return group.begin <= sequence && sequence < group.end ? low : -1;
}

/// The rows of a group, and its keys. Launches that are not packed have a row for each sequence, at
/// the distance of rows. `sequence_at(n)` is sequence n.
template <class SequenceAt>
TESSERA_HD TESSERA_INLINE constexpr prim::sequence sequence_of_prefix(
    const attention_kernel_args& args, std::int64_t prefix, std::int64_t step,
    const SequenceAt& sequence_at) noexcept {
  const sequence_group group = group_of_prefix(args, prefix);
  prim::sequence seq{.index = group.begin, .k_len = keys_of_prefix(args, prefix, step)};
  if (seq.k_len == 0) return seq;
  if (args.cu_seqlens_q == nullptr) {
    seq.q_len = group.end - group.begin;
    return seq;
  }
  const prim::sequence first = sequence_at(group.begin);
  const prim::sequence last = sequence_at(group.end - 1);
  const std::int64_t rows = last.q_begin + last.q_len - first.q_begin;
  const std::int64_t most = args.q_len - first.q_begin;
  seq.q_begin = first.q_begin;
  seq.q_len = rows < 0 ? 0 : rows < most ? rows : most;
  return seq;
}

/// All rows of a group see all of its keys.
template <mask_mode Mode>
TESSERA_HD TESSERA_INLINE constexpr prim::row_visibility<Mode> visibility_of_prefix(
    const prim::sequence& seq) noexcept {
  constexpr std::int64_t far = std::int64_t{1} << 31;
  return {seq.k_len, {false, far, far, 0}};
}

/// True if every sequence has one token, at the distance of batch entries.
TESSERA_HD constexpr bool are_rows_apart(const attention_kernel_args& args) noexcept {
  return args.cu_seqlens_q == nullptr && args.q_len == 1;
}

/// The rows of sequences with a token each become rows of one sequence, that of their group.
TESSERA_HD constexpr void join_rows(attention_kernel_args& args) noexcept {
  if (!are_rows_apart(args)) return;
  args.q_strides.row = args.q_strides.batch;
  args.out_strides.row = args.out_strides.batch;
  args.lse.row = args.lse.batch;
}

}  // namespace tessera::kernels::attention
