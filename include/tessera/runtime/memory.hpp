// Remembered selections: a fixed number of slots per thread, compared in full on a hit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/runtime/selection.hpp>
#include <tessera/spec/flash_attention/eligibility.hpp>

namespace tessera {

/// Grows whenever remembered selections no longer hold. One relaxed atomic load.
std::uint64_t selection_generation() noexcept;

/// Makes every thread forget its selections.
void forget_selections() noexcept;

/// Mixes the fields of a demand; equal demands have equal hashes.
constexpr std::uint64_t hash_of(const flash_demand& demand) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  std::uint64_t hash = static_cast<std::uint64_t>(demand.type) |
                       static_cast<std::uint64_t>(demand.mask) << 8 |
                       static_cast<std::uint64_t>(demand.features.bits) << 16 |
                       static_cast<std::uint64_t>(demand.causal) << 32 |
                       static_cast<std::uint64_t>(demand.top_left) << 33;
  const auto mix = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * odd;
    hash ^= hash >> 29;
  };
  mix(demand.window_left);
  mix(demand.window_right);
  mix(demand.sizes.batch);
  mix(demand.sizes.q_len);
  mix(demand.sizes.kv_len);
  mix(demand.sizes.q_heads << 32 ^ demand.sizes.kv_heads);
  mix(std::int64_t{demand.sizes.head_dim} << 32 ^ demand.sizes.v_head_dim);
  return hash;
}

/// The memo of one thread for one family, on one device and registry. Holds the selections of the
/// demands seen last; a demand always maps to the same slot.
template <class Family>
class selection_memory {
 public:
  using demand_type = typename Family::demand_type;
  using selection_type = selection<typename Family::instance_type>;

  /// The remembered selection, or null.
  const selection_type* recall(const demand_type& demand, int threads) const noexcept {
    const slot& one = slots_[index_of(demand)];
    const bool hit = one.chosen.instance != nullptr && one.threads == threads &&
                     one.generation == selection_generation() && one.demand == demand;
    return hit ? &one.chosen : nullptr;
  }

  void remember(const demand_type& demand, int threads, const selection_type& chosen) noexcept {
    slots_[index_of(demand)] = {demand, threads, selection_generation(), chosen};
    slots_[index_of(demand)].chosen.remembered = true;
  }

 private:
  static constexpr std::size_t size = 64;

  struct slot {
    demand_type demand{};
    int threads = 0;
    std::uint64_t generation = 0;
    selection_type chosen{};
  };

  static constexpr std::size_t index_of(const demand_type& demand) noexcept {
    return static_cast<std::size_t>(hash_of(demand) >> 58);
  }

  std::array<slot, size> slots_{};
};

}  // namespace tessera
