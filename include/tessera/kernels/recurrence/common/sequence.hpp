// The tokens of a sequence in the order in which its state goes through them, for every family of
// recurrences: their kernel args have the same names for the same things.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::recurrence {

/// A sequence of a launch. Steps count from 0 in the order of the recurrence, tokens in the entry.
struct sequence {
  std::int64_t number = 0;
  std::int64_t slot = 0;          ///< of its states
  bool starts_from_zero = false;  ///< whatever lies there
  bool has_states = true;
  bool is_rest = false;  ///< no sequence: the tokens behind all of them
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool reverse = false;
  /// Ids of the tokens' segments, null without; the first step that is no padding.
  const std::int32_t* ids = nullptr;
  std::int64_t id_stride = 0;
  std::int64_t first = 0;

  TESSERA_HD TESSERA_INLINE std::int64_t token(std::int64_t step) const {
    return reverse ? begin + length - 1 - step : begin + step;
  }
  TESSERA_HD TESSERA_INLINE std::int32_t id(std::int64_t step) const {
    return ids[token(step) * id_stride];
  }
  /// No token: it gives 0 and leaves the state alone.
  TESSERA_HD TESSERA_INLINE bool is_padding(std::int64_t step) const {
    return ids != nullptr && id(step) < 0;
  }
  /// The state before this step is 0, whatever came before.
  TESSERA_HD TESSERA_INLINE bool starts_anew(std::int64_t step) const {
    return ids != nullptr && step > first && id(step) != id(step - 1);
  }
};

/// Sequences of a launch, and one for the tokens behind packed ones.
template <class Args>
TESSERA_HD TESSERA_INLINE std::int64_t sequences_with_rest(const Args& args) {
  return args.sequences + (args.cu_seqlens != nullptr ? 1 : 0);
}

/// Entries of the tensors of tokens.
template <class Args>
TESSERA_HD TESSERA_INLINE std::int64_t entries_of(const Args& args) {
  return args.cu_seqlens != nullptr ? 1 : args.sequences;
}

/// Where a row of a token and head begins, in elements.
template <class Rows>
TESSERA_HD TESSERA_INLINE std::int64_t row_of(const Rows& rows, std::int64_t entry,
                                              std::int64_t token, std::int64_t head) {
  return entry * rows.entry + token * rows.token + head * rows.head;
}

/// The states of a sequence that has tokens lie where a pool says. Everything is read before
/// anything is known, since on a GPU nothing else can be asked of memory meanwhile.
template <class Isa, class Args>
TESSERA_HD void find_states(const Args& args, sequence& all) {
  all.slot = all.number;
  if (args.slots == nullptr || all.is_rest) return;
  all.slot = args.slots[all.number * args.slot_stride];
  if constexpr (requires { args.has_initial; }) {
    all.starts_from_zero =
        args.has_initial != nullptr && args.has_initial[all.number * args.has_initial_stride] == 0;
  }
  // Numbers in device memory have not been looked at before.
  all.has_states = all.length > 0 && all.slot >= 0 && all.slot < args.slot_count;
}

/// Sequence n of a launch, below `sequences_with_rest`, inside its tensors whatever the offsets
/// are.
template <class Isa, class Args>
TESSERA_HD sequence sequence_of(const Args& args, std::int64_t n) {
  sequence all;
  all.number = n;
  all.is_rest = n == args.sequences;
  all.reverse = args.reverse;
  if (args.cu_seqlens != nullptr) {
    const auto offset = [&](std::int64_t place) {
      const std::int64_t token = args.cu_seqlens[place];
      return token < 0 ? 0 : token < args.tokens ? token : args.tokens;
    };
    all.begin = offset(n);
    const std::int64_t end = all.is_rest ? args.tokens : offset(n + 1);
    all.length = end > all.begin ? end - all.begin : 0;
    find_states<Isa>(args, all);
    return all;
  }
  all.entry = n;
  all.length = args.tokens;
  find_states<Isa>(args, all);
  if constexpr (requires { args.seg_ids; }) {
    if (args.seg_ids == nullptr) return all;
    all.ids = args.seg_ids + n * args.seg_entry;
    all.id_stride = args.seg_token;
    while (all.first < all.length && all.is_padding(all.first)) ++all.first;
  }
  return all;
}

/// The head of fewer that one of `heads` shares. (Of 32 bits: quotients of 64 were a fourth of the
/// instructions of a step.)
TESSERA_HD TESSERA_INLINE std::int64_t shared_head(std::int64_t head, std::int64_t heads,
                                                   std::int64_t fewer) {
  const auto sharers = static_cast<std::uint32_t>(heads) / static_cast<std::uint32_t>(fewer);
  return static_cast<std::uint32_t>(head) / sharers;
}

/// What a work item owns: a tile of the columns of a state.
struct tile_item {
  std::int64_t tile = 0, head = 0, sequence = 0;

  TESSERA_HD TESSERA_INLINE tile_item(std::uint32_t item, int tiles, std::int64_t heads) {
    const auto all_tiles = static_cast<std::uint32_t>(tiles);
    const std::uint32_t state = item / all_tiles;
    tile = item % all_tiles;
    head = state % static_cast<std::uint32_t>(heads);
    sequence = state / static_cast<std::uint32_t>(heads);
  }
};

}  // namespace tessera::kernels::recurrence
