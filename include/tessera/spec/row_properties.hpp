// What a row promises about the bits of its results. Part of every registry entry; a policy may ask
// for it.
#pragma once

#include <cstdint>

namespace tessera {

/// The same inputs on the same device give the same bits, run after run.
enum class determinism : std::uint8_t { none, same_bits };

/// The bits of one batch entry do not depend on the other entries, nor on how many there are:
/// never, always, or where a policy asks for it (`instance::keep_batch_invariant`).
enum class batch_invariance : std::uint8_t { none, same_bits, on_request };

/// Promises of one row. CPU rows keep both: their work is cut without regard to threads and batch.
struct row_properties {
  determinism deterministic = determinism::same_bits;
  batch_invariance batch_invariant = batch_invariance::same_bits;
  friend constexpr bool operator==(const row_properties&, const row_properties&) = default;
};

}  // namespace tessera
