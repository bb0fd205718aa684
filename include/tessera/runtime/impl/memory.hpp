// Remembered selections: a fixed number of slots per thread, and behind them a fixed number for the
// process. Everything a choice depends on is compared in full on a hit.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/copy.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Grows whenever remembered selections no longer hold: other tables, other rows, another overlay
/// of the process. A choice is remembered under the number read before it began.
std::uint64_t selection_generation() noexcept;

/// Makes every thread forget its selections.
void forget_selections() noexcept;

/// What a choice depends on besides the demand and the rows of the build, without padding.
struct circumstances {
  const family* kind = nullptr;
  std::uint64_t generation = 0;
  std::uint64_t overlay_of_call = 0;  ///< its number; 0: none
  std::uint64_t overlay_of_thread = 0;
  std::uint64_t application_rows = 0;
  std::int32_t ordinal = 0;  ///< of the device
  std::int32_t threads = 1;
  selection_policy policy{};
  device_kind device = device_kind::cpu;
  bool may_tune = false;
  std::array<std::uint8_t, 6> unused{};
  friend bool operator==(const circumstances& a, const circumstances& b) noexcept {
    return equal_words(a, b);
  }
};

/// One remembered choice.
struct remembered {
  tessera::demand demand{};
  circumstances where{};
  selection chosen{};

  bool is_for(const tessera::demand& other, const circumstances& there) const noexcept {
    return chosen.instance != nullptr && where == there && demand == other;
  }
  void set(const tessera::demand& asked, const circumstances& there,
           const selection& choice) noexcept {
    copy_words(&demand, asked);
    copy_words(&where, there);
    copy_words(&chosen, choice);
    chosen.remembered = true;
  }
};

/// Slots in memory that starts as zeros, so that empty memos take no room in a program's file. A
/// slot of zeros has no instance and is for nobody.
template <std::size_t Count>
class remembered_slots {
 public:
  static_assert(std::is_trivially_copyable_v<remembered> &&
                std::is_trivially_destructible_v<remembered>);

  remembered& operator[](std::size_t index) noexcept {
    return *std::launder(reinterpret_cast<remembered*>(bytes_.data() + index * sizeof(remembered)));
  }
  const remembered& operator[](std::size_t index) const noexcept {
    return *std::launder(
        reinterpret_cast<const remembered*>(bytes_.data() + index * sizeof(remembered)));
  }

 private:
  alignas(remembered) std::array<std::byte, Count * sizeof(remembered)> bytes_{};
};

/// The memo of one thread, for all families. Holds the selections of the demands seen last; a
/// demand always maps to the same slot.
class selection_memory {
 public:
  /// The remembered selection, or null.
  const selection* recall(const demand& asked, std::uint64_t hash,
                          const circumstances& where) const noexcept {
    const remembered& slot = slots_[hash >> (64 - bits)];
    return slot.is_for(asked, where) ? &slot.chosen : nullptr;
  }

  /// Returns what is remembered from now on.
  const selection* remember(const demand& asked, std::uint64_t hash, const circumstances& where,
                            const selection& chosen) noexcept {
    remembered& slot = slots_[hash >> (64 - bits)];
    slot.set(asked, where, chosen);
    return &slot.chosen;
  }

 private:
  static constexpr int bits = 6;
  remembered_slots<1u << bits> slots_{};
};

/// The memo that threads share. Asked when a thread does not remember; the slots of a shard have a
/// lock, so that no thread waits for another one's problem of a different shard.
class shared_memory {
 public:
  std::optional<selection> recall(const demand& asked, std::uint64_t hash,
                                  const circumstances& where) noexcept {
    shard& part = shard_of(hash);
    const std::lock_guard lock(part.guard);
    const remembered& slot = part.slots[slot_of(hash)];
    if (!slot.is_for(asked, where)) return std::nullopt;
    return slot.chosen;
  }

  void remember(const demand& asked, std::uint64_t hash, const circumstances& where,
                const selection& chosen) noexcept {
    shard& part = shard_of(hash);
    const std::lock_guard lock(part.guard);
    part.slots[slot_of(hash)].set(asked, where, chosen);
  }

 private:
  static constexpr int shard_bits = 4;
  static constexpr int slot_bits = 5;

  struct shard {
    std::mutex guard;
    remembered_slots<1u << slot_bits> slots{};
  };

  shard& shard_of(std::uint64_t hash) noexcept { return shards_[hash >> (64 - shard_bits)]; }
  static constexpr std::size_t slot_of(std::uint64_t hash) noexcept {
    return static_cast<std::size_t>(hash << shard_bits >> (64 - slot_bits));
  }

  std::array<shard, 1u << shard_bits> shards_{};
};

}  // namespace tessera
