// User functors compiled into the tile loop: the C++ form of "flex" attention. The same functor
// text runs on every backend when it is marked TESSERA_HD.
//
// The idea follows PyTorch's FlexAttention (score_mod, mask_mod).
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera {

/// Which score a functor is asked about. Query and key count from 0 within the batch entry or
/// packed sequence.
struct position {
  std::int64_t batch = 0;  ///< batch entry, or sequence number when packed
  int head = 0;            ///< query head
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t query_position = 0;  ///< key position the row is aligned to (see `alignment`)
  /// By how much the key lies behind one that many scores share; GPUs know it when they compile.
  int ahead = 0;

  /// How far before the row's position the key lies, of lengths below 2^31, as all GPU rows have:
  /// GPUs convert 32 bits to floating point four times as fast as 64.
  TESSERA_HD constexpr int distance() const noexcept {
    return static_cast<int>(query_position - key);
  }

  /// factor * distance(), where neighbouring scores share all but one operation.
  TESSERA_HD constexpr float distance_times(float factor) const noexcept {
    const float shared = factor * static_cast<float>(distance() + ahead);
    return ahead == 0 ? shared : shared - factor * static_cast<float>(ahead);
  }
};

namespace prim {

/// Leaves every logit as it is.
struct no_logit_modifier {};
/// Hides nothing.
struct no_mask_functor {};

}  // namespace prim

/// `logits(s, at) -> float` replaces the scaled, biased and capped logit s (natural units);
/// `mask(at) -> bool` says whether the row sees the key. Both are called for visible intervals only
/// (after lengths, causal and window), possibly several times, and must be pure.
/// A logit modifier that makes s + f * at.distance(), with an f of the row, may have a member
/// `distance_factor(const position& row) -> float`, f (the key of `row` is any): rows of Hopper
/// then add it for one operation a score. A mask may have a member `classify(const
/// prim::score_tile&) -> prim::tile_visibility`, which lets the kernel skip tiles; it must never
/// call a partly visible tile full or skip.
template <class Logits = prim::no_logit_modifier, class Mask = prim::no_mask_functor>
struct flash_hooks {
  Logits logits;
  Mask mask;

  flash_hooks() = default;
  constexpr flash_hooks(Logits logits_functor, Mask mask_functor)
      : logits(std::move(logits_functor)), mask(std::move(mask_functor)) {}

  static constexpr bool has_logits = !std::is_same_v<Logits, prim::no_logit_modifier>;
  static constexpr bool has_mask = !std::is_same_v<Mask, prim::no_mask_functor>;
};

/// Hooks with a logit modifier only.
template <class Logits>
constexpr auto with_logits(Logits logits) {
  return flash_hooks<Logits, prim::no_mask_functor>(std::move(logits), {});
}

/// Hooks with a mask only.
template <class Mask>
constexpr auto with_mask(Mask mask) {
  return flash_hooks<prim::no_logit_modifier, Mask>({}, std::move(mask));
}

namespace prim {

template <class Candidate>
inline constexpr bool is_hooks = false;
template <class Logits, class Mask>
inline constexpr bool is_hooks<flash_hooks<Logits, Mask>> = true;

template <class Logits>
concept adds_distances = requires(const Logits& logits, const position& row) {
  { logits.distance_factor(row) } -> std::convertible_to<float>;
};

template <class Mask>
concept classifies_tiles = requires(const Mask& mask, const score_tile& tile) {
  { mask.classify(tile) } -> std::same_as<tile_visibility>;
};

}  // namespace prim
}  // namespace tessera
