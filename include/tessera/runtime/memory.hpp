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

#include <tessera/runtime/selection.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Grows whenever remembered selections no longer hold: other tables, other rows, another overlay
/// of the process. A choice is remembered under the number read before it began.
std::uint64_t selection_generation() noexcept;

/// Makes every thread forget its selections.
void forget_selections() noexcept;

/// What a choice depends on besides the demand and the rows of the build.
struct circumstances {
  std::uint64_t generation = 0;
  std::uint64_t overlay_of_call = 0;  ///< its number; 0: none
  std::uint64_t overlay_of_thread = 0;
  std::uint64_t application_rows = 0;
  device_id device{};
  std::int32_t threads = 1;
  bool may_tune = false;
  selection_policy policy{};
  friend constexpr bool operator==(const circumstances&, const circumstances&) = default;
};

/// Mixes one number into a hash.
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  hash = (hash ^ value) * odd;
  return hash ^ hash >> 29;
}

/// A hash of whole words: each times its own odd constant, so that no product waits for another.
template <std::same_as<std::uint64_t>... Words>
constexpr std::uint64_t hash_of_words(Words... words) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  std::uint64_t factor = odd;
  std::uint64_t sum = 0;
  ((sum += words * factor, factor = factor * 0xD1342543DE82EF95u + 2), ...);
  sum = (sum ^ sum >> 32) * odd;
  return sum ^ sum >> 29;
}

/// One remembered choice.
template <class Family>
struct remembered {
  typename Family::demand_type demand{};
  circumstances where{};
  selection<typename Family::instance_type> chosen{};

  bool is_for(const typename Family::demand_type& other,
              const circumstances& there) const noexcept {
    return chosen.instance != nullptr && where == there && demand == other;
  }
};

/// Slots in memory that starts as zeros, so that empty memos take no room in a program's file. A
/// slot of zeros has no instance and is for nobody.
template <class Family, std::size_t Count>
class remembered_slots {
 public:
  using slot = remembered<Family>;
  static_assert(std::is_trivially_copyable_v<slot> && std::is_trivially_destructible_v<slot>);

  slot& operator[](std::size_t index) noexcept {
    return *std::launder(reinterpret_cast<slot*>(bytes_.data() + index * sizeof(slot)));
  }
  const slot& operator[](std::size_t index) const noexcept {
    return *std::launder(reinterpret_cast<const slot*>(bytes_.data() + index * sizeof(slot)));
  }

 private:
  alignas(slot) std::array<std::byte, Count * sizeof(slot)> bytes_{};
};

/// The memo of one thread for one family and registry. Holds the selections of the
/// demands seen last; a demand always maps to the same slot.
template <class Family>
class selection_memory {
 public:
  using demand_type = typename Family::demand_type;
  using selection_type = selection<typename Family::instance_type>;

  /// The remembered selection, or null.
  const selection_type* recall(const demand_type& demand, std::uint64_t hash,
                               const circumstances& where) const noexcept {
    const remembered<Family>& one = slots_[hash >> (64 - bits)];
    return one.is_for(demand, where) ? &one.chosen : nullptr;
  }

  /// Returns what is remembered from now on.
  const selection_type* remember(const demand_type& demand, std::uint64_t hash,
                                 const circumstances& where,
                                 const selection_type& chosen) noexcept {
    remembered<Family>& one = slots_[hash >> (64 - bits)];
    one = {demand, where, chosen};
    one.chosen.remembered = true;
    return &one.chosen;
  }

 private:
  static constexpr int bits = 6;
  remembered_slots<Family, 1u << bits> slots_{};
};

/// The memo that threads share. Asked when a thread does not remember; the slots of a shard have a
/// lock, so that no thread waits for another one's problem of a different shard.
template <class Family>
class shared_memory {
 public:
  using demand_type = typename Family::demand_type;
  using selection_type = selection<typename Family::instance_type>;

  std::optional<selection_type> recall(const demand_type& demand, std::uint64_t hash,
                                       const circumstances& where) noexcept {
    shard& part = shard_of(hash);
    const std::lock_guard lock(part.guard);
    const remembered<Family>& one = part.slots[slot_of(hash)];
    if (!one.is_for(demand, where)) return std::nullopt;
    return one.chosen;
  }

  void remember(const demand_type& demand, std::uint64_t hash, const circumstances& where,
                const selection_type& chosen) noexcept {
    shard& part = shard_of(hash);
    const std::lock_guard lock(part.guard);
    remembered<Family>& one = part.slots[slot_of(hash)];
    one = {demand, where, chosen};
    one.chosen.remembered = true;
  }

 private:
  static constexpr int shard_bits = 4;
  static constexpr int slot_bits = 5;

  struct shard {
    std::mutex guard;
    remembered_slots<Family, 1u << slot_bits> slots{};
  };

  shard& shard_of(std::uint64_t hash) noexcept { return shards_[hash >> (64 - shard_bits)]; }
  static constexpr std::size_t slot_of(std::uint64_t hash) noexcept {
    return static_cast<std::size_t>(hash << shard_bits >> (64 - slot_bits));
  }

  std::array<shard, 1u << shard_bits> shards_{};
};

}  // namespace tessera
