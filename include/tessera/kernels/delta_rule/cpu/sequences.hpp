// The tokens of a sequence in the order in which its state goes through them.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// A sequence of a launch. Steps count from 0 in the order of the recurrence, tokens in the entry.
struct sequence {
  std::int64_t number = 0;
  std::int64_t slot = 0;          ///< of its states
  bool starts_from_zero = false;  ///< whatever lies there
  bool has_states = true;
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool reverse = false;
  /// Ids of the tokens' segments, null without; the first step that is no padding.
  const std::int32_t* ids = nullptr;
  std::int64_t id_stride = 0;
  std::int64_t first = 0;

  TESSERA_INLINE std::int64_t token(std::int64_t step) const {
    return reverse ? begin + length - 1 - step : begin + step;
  }
  TESSERA_INLINE std::int32_t id(std::int64_t step) const { return ids[token(step) * id_stride]; }
  /// No token: it gives 0 and leaves the state alone.
  TESSERA_INLINE bool is_padding(std::int64_t step) const { return ids != nullptr && id(step) < 0; }
  /// The state before this step is 0, whatever came before.
  TESSERA_INLINE bool starts_anew(std::int64_t step) const {
    return ids != nullptr && step > first && id(step) != id(step - 1);
  }
};

/// The states of a sequence that has tokens lie where a pool says.
template <class Isa>
void find_states(const delta_rule_kernel_args& args, sequence& all) {
  all.slot = all.number;
  if (args.slots == nullptr || all.number == args.sequences) return;
  all.has_states = all.length > 0;
  if (!all.has_states) return;
  all.slot = args.slots[all.number * args.slot_stride];
  all.starts_from_zero =
      args.has_initial != nullptr && args.has_initial[all.number * args.has_initial_stride] == 0;
}

/// What a sequence starts from; null: 0.
template <class Isa>
delta_rule_states<const void> initial_states(const delta_rule_kernel_args& args,
                                             const sequence& tokens) {
  return tokens.starts_from_zero ? delta_rule_states<const void>() : args.initial;
}

/// Sequence n of a launch; n = `sequences` of a packed one: the tokens behind all sequences.
template <class Isa>
sequence sequence_of(const delta_rule_kernel_args& args, std::int64_t n) {
  sequence all;
  all.number = n;
  all.reverse = args.reverse;
  if (args.cu_seqlens != nullptr) {
    all.begin = args.cu_seqlens[n];
    all.length = (n < args.sequences ? args.cu_seqlens[n + 1] : args.tokens) - all.begin;
    find_states<Isa>(args, all);
    return all;
  }
  all.entry = n;
  all.length = args.tokens;
  find_states<Isa>(args, all);
  if (args.seg_ids == nullptr) return all;
  all.ids = args.seg_ids + n * args.seg_entry;
  all.id_stride = args.seg_token;
  while (all.first < all.length && all.is_padding(all.first)) ++all.first;
  return all;
}

}  // namespace tessera::kernels::delta_rule::cpu
