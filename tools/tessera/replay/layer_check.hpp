// Whether a step has computed what it must: pages hold what their sequences have written since they
// began, and outputs are those of the definition on what pages hold.
#pragma once

#include <cstdint>
#include <string>

#include "paged_layer.hpp"
#include "tests/support/compare.hpp"

namespace tessera::tool {

struct layer_verdict {
  std::int64_t sequences = 0;  ///< that were looked at
  support::comparison worst{.passed = true};
  std::string complaint{};  ///< what is wrong first; empty: nothing

  /// The worse of both.
  void add(const layer_verdict& other);
};

/// Judges every sequence of the step that a layer has run last and fetched, pools included: all
/// keys in its pages, and of its rows the first and the last ones.
layer_verdict checked(const paged_layer& layer, const step_lists& lists, const replay::step& step,
                      const replay::trace& served);

}  // namespace tessera::tool
