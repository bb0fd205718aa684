// Options of the mean pooling operations, under the names that tools and files use.
#pragma once

#include <cstdint>

namespace tessera {

/// Options of `mean_pooling_chunks` and its gradient; `mean_pooling` takes none but the default.
struct mean_pooling_options {
  /// Tokens of a chunk. Chunks restart in every sequence; the last one of a sequence may be
  /// shorter and is divided by its own length. At least 1.
  std::int64_t chunk_size = 32;

  friend bool operator==(const mean_pooling_options&, const mean_pooling_options&) = default;
};

}  // namespace tessera
