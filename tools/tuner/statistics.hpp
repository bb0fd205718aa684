// What timed rounds say, and which row they justify. Nothing here measures: decisions are a pure
// function of numbers, the same numbers always give the same row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tuner {

/// Robust centre and spread of the rounds of one row, in seconds. All 0 without rounds.
struct sample_statistics {
  double median = 0;
  double mad = 0;  ///< median absolute deviation from the median, not scaled
  double least = 0;
  std::size_t count = 0;

  /// Standard error of the median, estimated from the MAD of normally distributed rounds.
  double error() const noexcept;
};

/// The middle value; the mean of the two middle ones for an even number; 0 for none.
double median_of(std::vector<double> values);

sample_statistics statistics_of(std::span<const double> seconds);

/// When a row may replace the default.
struct decision_rules {
  double min_gain = 1.05;    ///< median of the default over median of the row
  double noise_factor = 3;   ///< and the difference exceeds this many MADs of the noisier of both
  double tie_margin = 0.01;  ///< rows this close to the fastest, or within the noise, are equal
};

/// One row that was timed.
struct timed_row {
  std::string_view name;
  sample_statistics time{};
  double resources = 0;  ///< less is better among equals: bytes of code
};

enum class decision_reason : std::uint8_t {
  faster,          ///< beats the default by the minimum gain and beyond the noise
  default_best,    ///< no row is faster than the default
  gain_too_small,  ///< the fastest row gains less than the minimum
  within_noise,    ///< the gain is not beyond the noise
  default_failed,  ///< the default could not be timed; the fastest row wins
  nothing_timed,   ///< no row could be timed
  disturbed,       ///< other programs took the machine: nothing was decided
  not_repeated,    ///< the gain was gone when both rows were measured again
};

/// "faster", ...: stable names for files and JSON.
std::string_view name_of(decision_reason reason) noexcept;

/// The reason of that name; nothing_timed if there is none.
decision_reason decision_reason_named(std::string_view name) noexcept;

inline constexpr std::size_t no_row = static_cast<std::size_t>(-1);

/// Which row is to be used.
struct decision {
  std::size_t winner = no_row;
  std::size_t runner_up = no_row;  ///< fastest row besides the winner
  double gain = 1;                 ///< default's median over the winner's; 1 for the default
  decision_reason reason = decision_reason::nothing_timed;
};

/// Decides among rows; `default_row` is the index of the default, no_row if it was not timed. Rows
/// without rounds are passed over. Equals go to the default, then to fewer resources, then to the
/// first name.
decision decide(std::span<const timed_row> rows, std::size_t default_row,
                const decision_rules& rules);

/// exp of the mean logarithm of positive values; 1 for none.
double geometric_mean(std::span<const double> values);

}  // namespace tessera::tuner
