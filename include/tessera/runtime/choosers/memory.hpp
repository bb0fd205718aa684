// Tier memory: what was chosen for the same demand before. The selection keeps the tier and the
// reason of the chooser that made it.
#pragma once

#include <tessera/runtime/inquiry.hpp>

namespace tessera {

template <class Family>
answer<Family> recall_selection(const inquiry<Family>& asked) {
  if (asked.memory != nullptr) {
    if (const auto* known = asked.memory->recall(asked.demand, asked.threads)) {
      note(asked, selection_tier::memory, true, "the same problem was chosen for before");
      return {*known, {}};
    }
  }
  note(asked, selection_tier::memory, false, "no earlier choice is used");
  return {};
}

}  // namespace tessera
