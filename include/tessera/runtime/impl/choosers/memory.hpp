// Tier memory: what was chosen in the same circumstances before, by this thread or by another. The
// selection keeps the tier and the reason of the chooser that made it.
#pragma once

#include <tessera/runtime/impl/inquiry.hpp>

namespace tessera {

/// Where a demand is remembered: problems of several GPUs lie apart.
inline std::uint64_t hash_for(const inquiry& asked) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  return asked.demand.hash() + static_cast<std::uint64_t>(asked.device.ordinal) * odd;
}

/// What is remembered, or null; valid until this thread remembers again.
inline const selection* recalled(const inquiry& asked) noexcept {
  if (asked.memory == nullptr) return nullptr;
  const std::uint64_t hash = hash_for(asked);
  const circumstances where = asked.where();
  if (const auto* known = asked.memory->recall(asked.demand, hash, where)) return known;
  if (asked.process_memory == nullptr) return nullptr;
  const auto known = asked.process_memory->recall(asked.demand, hash, where);
  return known ? asked.memory->remember(asked.demand, hash, where, *known) : nullptr;
}

inline answer recall_selection(const inquiry& asked) {
  if (const auto* known = recalled(asked)) return {*known, {}};
  note(asked, "no earlier choice is used");
  return {};
}

inline void remember_selection(const inquiry& asked, const selection& chosen) {
  if (asked.memory == nullptr) return;
  const std::uint64_t hash = hash_for(asked);
  const circumstances where = asked.where();
  asked.memory->remember(asked.demand, hash, where, chosen);
  if (asked.process_memory != nullptr) {
    asked.process_memory->remember(asked.demand, hash, where, chosen);
  }
}

}  // namespace tessera
