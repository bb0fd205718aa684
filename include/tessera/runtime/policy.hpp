// What a program may say about choices: policies, rows of its own, a tuner. A policy is a small
// value that is never changed in place. The process has one, swapped as a whole; a thread may put
// another over it for a scope; a call may bring its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <tessera/spec/instance.hpp>

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
/// Families declare how far (see `family::max_log2_distance`); the reason always says so.
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

/// A number that no two scopes of a process share; 0 is none. Remembered choices carry it, so that
/// they never outlive what they were made from.
std::uint64_t next_scope_number() noexcept;

/// Rows that an application compiled itself: its own tile, its own kernel behind the same launcher.
/// They are asked beside the rows of the build, in the same way.
///
///   constexpr std::array mine{tessera::row_of<my_tile>("my_app.f32.d80")};
///   const tessera::application_rows rows(mine);
///   auto plan = tessera::plan(problem, tessera::with_rows({}, rows));
///
/// Instances of any families. Refers to the instances, which must outlive every plan made with
/// them. Where a name is also in the build, the application's row is meant.
class application_rows {
 public:
  explicit application_rows(std::span<const instance> rows) noexcept : rows_(rows) {}
  application_rows(const application_rows&) = delete;
  application_rows& operator=(const application_rows&) = delete;

  std::span<const instance> rows() const noexcept { return rows_; }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::span<const instance> rows_;
  std::uint64_t number_ = next_scope_number();
};

/// What there is to measure. The views are valid during the call only.
struct autotune_request {
  std::string_view family;          ///< "attention"
  std::string_view problem;         ///< problem text, with the operation's name
  std::string_view device_class;    ///< see key.hpp
  std::string_view identity, size;  ///< key text, as in a lookup record
  std::string_view code_version;
  std::string_view default_row;  ///< what the cost model would take
  std::string_view hint;         ///< row of a stale table line: worth trying first; may be empty
  std::span<const std::string_view> rows;  ///< every row that fits, in the order of their names
  int threads = 1;
};

/// What was found.
struct autotune_answer {
  std::size_t row = 0;    ///< index into `rows`
  double median_us = 0;   ///< of that row; more than 0
  double default_us = 0;  ///< of the default row in the same session; 0: not measured
};

/// The hook of a tuner. The library never measures: a program that links a tuner hands it over in
/// context.tuner and allows it by policy.autotune; then a problem without a measured row is given
/// to the tuner before the cost model decides.
///
/// Measures and answers, or returns false to decline. May take seconds; runs on the thread of the
/// call; must not call an operation with this tuner in its context.
struct autotuner {
  bool (*tune)(void* state, const autotune_request& asked,
               autotune_answer& answer) noexcept = nullptr;
  void* state = nullptr;
};

}  // namespace tessera
