#include "statistics.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::tuner {
namespace {

/// The noise of a comparison: the larger MAD of both sides.
double noise_between(const timed_row& a, const timed_row& b) {
  return std::max(a.time.mad, b.time.mad);
}

bool beats(const timed_row& row, const timed_row& standard, const decision_rules& rules) {
  return standard.time.median >= rules.min_gain * row.time.median &&
         standard.time.median - row.time.median > rules.noise_factor * noise_between(row, standard);
}

/// True if `row` cannot be told from the fastest row. Noise counts up to the minimum gain only:
/// beyond it rows differ, however loud the machine.
bool ties(const timed_row& row, const timed_row& fastest, const decision_rules& rules) {
  const double noise = rules.noise_factor * noise_between(row, fastest);
  const double most = (rules.min_gain - 1) * fastest.time.median;
  const double margin = std::max(rules.tie_margin * fastest.time.median, std::min(noise, most));
  return row.time.median - fastest.time.median <= margin;
}

/// Fewer resources first, then the name.
bool preferred(const timed_row& a, const timed_row& b) {
  return a.resources != b.resources ? a.resources < b.resources : a.name < b.name;
}

std::size_t fastest_of(std::span<const timed_row> rows, std::size_t except) {
  std::size_t best = no_row;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == except || rows[i].time.count == 0) continue;
    const bool better =
        best == no_row || rows[i].time.median < rows[best].time.median ||
        (rows[i].time.median == rows[best].time.median && preferred(rows[i], rows[best]));
    if (better) best = i;
  }
  return best;
}

/// The row preferred among those that tie with the fastest and that `may_win` admits.
template <class Admit>
std::size_t preferred_among_equals(std::span<const timed_row> rows, std::size_t fastest,
                                   const decision_rules& rules, Admit may_win) {
  std::size_t best = fastest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].time.count == 0 || !may_win(rows[i])) continue;
    if (ties(rows[i], rows[fastest], rules) && preferred(rows[i], rows[best])) best = i;
  }
  return best;
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

sample_statistics statistics_of(std::span<const double> seconds) {
  if (seconds.empty()) return {};
  sample_statistics found;
  std::vector<double> values(seconds.begin(), seconds.end());
  found.median = median_of(values);
  for (double& value : values) value = std::fabs(value - found.median);
  found.mad = median_of(std::move(values));
  found.least = *std::min_element(seconds.begin(), seconds.end());
  found.count = seconds.size();
  return found;
}

double sample_statistics::error() const noexcept {
  // 1.4826 MADs are a standard deviation, and a median's error is 1.2533 times a mean's.
  return count == 0 ? 0 : 1.4826 * 1.2533 * mad / std::sqrt(static_cast<double>(count));
}

std::string_view name_of(decision_reason reason) noexcept {
  switch (reason) {
    case decision_reason::faster:
      return "faster";
    case decision_reason::default_best:
      return "default_best";
    case decision_reason::gain_too_small:
      return "gain_too_small";
    case decision_reason::within_noise:
      return "within_noise";
    case decision_reason::default_failed:
      return "default_failed";
    case decision_reason::nothing_timed:
      return "nothing_timed";
    case decision_reason::disturbed:
      return "disturbed";
    case decision_reason::not_repeated:
      return "not_repeated";
  }
  return "invalid";
}

decision_reason decision_reason_named(std::string_view name) noexcept {
  constexpr auto last = static_cast<std::uint8_t>(decision_reason::not_repeated);
  for (std::uint8_t n = 0; n <= last; ++n) {
    if (name_of(static_cast<decision_reason>(n)) == name) return static_cast<decision_reason>(n);
  }
  return decision_reason::nothing_timed;
}

decision decide(std::span<const timed_row> rows, std::size_t default_row,
                const decision_rules& rules) {
  decision verdict;
  const std::size_t fastest = fastest_of(rows, no_row);
  if (fastest == no_row) return verdict;
  if (default_row == no_row || rows[default_row].time.count == 0) {
    verdict.winner =
        preferred_among_equals(rows, fastest, rules, [](const timed_row&) { return true; });
    verdict.reason = decision_reason::default_failed;
    verdict.runner_up = fastest_of(rows, verdict.winner);
    return verdict;
  }
  const timed_row& standard = rows[default_row];
  if (beats(rows[fastest], standard, rules)) {
    verdict.winner = preferred_among_equals(
        rows, fastest, rules, [&](const timed_row& row) { return beats(row, standard, rules); });
    verdict.reason = decision_reason::faster;
    verdict.gain = standard.time.median / rows[verdict.winner].time.median;
  } else {
    verdict.winner = default_row;
    const double gain = standard.time.median / rows[fastest].time.median;
    verdict.reason = fastest == default_row  ? decision_reason::default_best
                     : gain < rules.min_gain ? decision_reason::gain_too_small
                                             : decision_reason::within_noise;
  }
  verdict.runner_up = fastest_of(rows, verdict.winner);
  return verdict;
}

double geometric_mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 1 : std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace tessera::tuner
