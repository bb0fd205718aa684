// What the chain of choosers answers: which row, who decided, and why. The selection of a call has
// codes only; an explanation is the same choice taken apart, for `tessera explain` and for the text
// that TESSERA_EXPLAIN prints.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/policy.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/names.hpp>

namespace tessera {

/// Who may decide, in the order they are asked.
enum class selection_tier : std::uint8_t {
  none,        ///< nobody decided
  override,    ///< the call or TESSERA_ROW named the row
  overlay,     ///< a scoped rule named it
  memory,      ///< remembered; a remembered selection keeps the tier that first made it
  persistent,  ///< a measured line of a lookup table
  autotune,    ///< measured now, on request
  heuristic,   ///< the cost model
};

inline constexpr std::array<std::string_view, 7> selection_tier_names{
    "none", "override", "overlay", "memory", "persistent", "autotune", "heuristic"};
constexpr std::string_view name_of(selection_tier tier) noexcept {
  return name_in(selection_tier_names, tier);
}

/// Why the row was chosen.
enum class selection_reason : std::uint8_t {
  none,
  named_by_call,         ///< context.row
  named_by_environment,  ///< TESSERA_ROW
  overlay_rule,          ///< a rule of an overlay matches
  measured,              ///< a table has a line for this bucket
  measured_nearby,       ///< a table has a line for a near bucket; see `distance`
  tuned,                 ///< measured by this process, on request
  cheapest,              ///< lowest predicted time among the rows that fit
  only_row,              ///< no other row of this build fits
  generic_fallback,      ///< only rows that take any problem fit; see the `fallback` event
};

inline constexpr std::array<std::string_view, 10> selection_reason_names{"none",
                                                                         "named_by_call",
                                                                         "named_by_environment",
                                                                         "overlay_rule",
                                                                         "measured",
                                                                         "measured_nearby",
                                                                         "tuned",
                                                                         "cheapest",
                                                                         "only_row",
                                                                         "generic_fallback"};
constexpr std::string_view name_of(selection_reason reason) noexcept {
  return name_in(selection_reason_names, reason);
}

/// A row of the registry, the tier that chose it and why. Trivially copyable.
struct selection {
  const tessera::instance* instance = nullptr;  ///< lives as long as the registry
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  bool remembered = false;  ///< answered by the memo; tier and reason are the first answer's
  /// Predicted seconds of the cost model; 0 where it was not asked.
  double predicted_seconds = 0;
  /// Measured median where a table or the tuner chose; else 0.
  double measured_seconds = 0;
  /// Base-2 logarithms between the sizes asked for and those measured, in sum; 0 but for
  /// measured_nearby.
  float distance = 0;
  /// The row that came closest to fitting better, where `reason` is generic_fallback.
  const tessera::instance* near_miss = nullptr;
  /// Counts the calls of this choice while a trace is recorded; else null.
  std::atomic<std::int64_t>* calls = nullptr;

  std::string_view row() const noexcept {
    return instance != nullptr ? instance->name : std::string_view{};
  }
};

/// One tier's answer.
struct tier_answer {
  selection_tier tier = selection_tier::none;
  bool decided = false;  ///< this is the answer that holds
  std::string row;       ///< what the tier would take; empty if it declines
  std::string reason;    ///< "no row was named", "lowest predicted time of 5 rows", ...
};

/// A line of a lookup table that is not used as an answer.
struct stale_line {
  std::string row;
  std::string reason;  ///< "user table: was measured with other kernels (code 0123...)"
};

/// A time that a lookup table has for this problem.
struct row_measurement {
  std::string row;
  double seconds = 0;
};

/// One row that fits, with its predicted time.
struct row_estimate {
  std::string_view row;
  double seconds = 0;
};

/// One row that does not fit, and the difference: "head_dim is 96, the row has 128".
struct row_rejection {
  std::string_view row;
  std::string reason;
};

/// Everything there is to say about one choice.
struct explanation {
  std::string op;
  std::string problem;  ///< problem text: "flash_attention q=[1,1,32,128]bf16 ..."
  std::string row;      ///< the row that runs; empty if none does
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  std::string reason_text;   ///< "user table, measured 59.7 ms; decode, 8 work items for 2 threads"
  std::string refusal;       ///< why no row runs; empty if one does
  std::string device_class;  ///< with identity and size, the key in lookup tables
  std::string identity, size;
  std::vector<tier_answer> tiers;         ///< in the order they were asked
  std::vector<stale_line> stale;          ///< lines for this key that only hint at a row
  std::vector<row_measurement> measured;  ///< of the line that answers: its row and the ones beaten
  std::vector<row_estimate> eligible;     ///< cheapest first
  std::vector<row_rejection> rejected;    ///< in the order of the registry
  std::string better_row;  ///< table line that would serve this problem better; empty if none
};

/// "12.3 us", "59.69 ms", "1.2 s".
std::string duration_text(double seconds);

/// Cheapest first; rows of the same time stay in their order.
void sort_by_time(std::vector<row_estimate>& rows);

/// The text of TESSERA_EXPLAIN=`level`, without a final newline. 1: one line, problem -> row (tier:
/// reason). 2: and a line per tier. 3: and a line per row with its time or what it lacks.
std::string to_text(const explanation& what, int level);

}  // namespace tessera
