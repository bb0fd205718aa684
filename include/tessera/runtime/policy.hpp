// How choices are made: a small value that is never changed in place. The process has one, swapped
// as a whole; a thread may put another over it for a scope; a call may bring its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tessera {

/// What to do with a row that was asked for by name (or by an overlay) and cannot run the problem.
enum class ineligible_override : std::uint8_t {
  error,         ///< refuse the call and say what differs
  fall_through,  ///< choose as if no row had been named, and raise an event
};

/// Which lookup tables are asked.
enum class table_use : std::uint8_t {
  all,           ///< user, then site, then shipped
  shipped_only,  ///< the one inside the library: the same on every machine of a class
  none,
};

/// Whether a table may answer with the measurement of a near size where the exact one is missing.
/// Families declare how far (see `selectable_family`); the reason always says so.
enum class nearest_use : std::uint8_t { declared, never };

/// Whether a problem without a measured row is measured now. Needs `context.tuner`.
enum class autotune_use : std::uint8_t { never, on_miss };

/// Whether a row that takes any problem may stand in where no special one fits.
enum class generic_use : std::uint8_t { allow, refuse };

/// Properties of rows that a choice must keep to; see row_properties.
enum class bits_promise : std::uint8_t {
  none,
  deterministic,    ///< only rows that repeat their bits
  batch_invariant,  ///< and neither row nor bits depend on the other entries of the batch
};

/// Plain data, compared as a whole wherever a choice is remembered.
struct alignas(8) selection_policy {  // as a whole word, clang too reads it without libatomic
  ineligible_override on_ineligible = ineligible_override::error;
  table_use tables = table_use::all;
  nearest_use nearest = nearest_use::declared;
  autotune_use autotune = autotune_use::never;
  generic_use generic = generic_use::allow;
  bits_promise promise = bits_promise::none;
  std::uint16_t reserved = 0;  ///< keeps the value a whole word
  friend constexpr bool operator==(const selection_policy&, const selection_policy&) = default;
};
static_assert(std::has_unique_object_representations_v<selection_policy>);
static_assert(std::atomic<selection_policy>::is_always_lock_free);

/// The policy of calls that bring none, outside every scope.
selection_policy process_policy() noexcept;

/// Replaces it for calls that start afterwards and returns the one before.
selection_policy set_process_policy(selection_policy policy) noexcept;

/// The policy in force on this thread: that of the innermost scope, else of the process.
selection_policy policy_in_force() noexcept;

/// While it lives, calls on this thread that bring no policy use this one. Scopes nest; they end in
/// the reverse order of their beginning.
class policy_scope {
 public:
  explicit policy_scope(selection_policy policy) noexcept;
  ~policy_scope();
  policy_scope(const policy_scope&) = delete;
  policy_scope& operator=(const policy_scope&) = delete;

  selection_policy policy() const noexcept { return policy_; }

 private:
  selection_policy policy_;
  const policy_scope* outer_;
};

}  // namespace tessera
