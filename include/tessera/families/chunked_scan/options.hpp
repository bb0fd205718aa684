// Options of linear attention with decay, under the names that tools and files use.
#pragma once

#include <optional>

namespace tessera {

struct recurrent_options {
  /// Multiplies q. Unset: 1 / sqrt(K). Must be finite.
  std::optional<double> scale{};
  /// Tokens go from the last of a sequence to its first.
  bool reverse = false;

  friend bool operator==(const recurrent_options&, const recurrent_options&) = default;
};

}  // namespace tessera
