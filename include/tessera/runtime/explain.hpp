// A selection taken apart: what each tier said, what each row costs or lacks. Data for `tessera
// explain`, and the text that TESSERA_EXPLAIN prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/selection.hpp>

namespace tessera {

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
