// Timing on a machine that is not ours alone: rounds of the timed call, of the call it is compared
// with, and of the limit that binds it, taken in turn, so that whatever the neighbours do meets all
// of them alike. Rounds that other programs disturbed are left out of the medians.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bench/support/tenants.hpp"
#include "bench/support/timing.hpp"

namespace tessera::bench {

/// Part of its core time that a round may lose to other programs and still count.
inline constexpr double tolerable_loss = 0.01;

/// How long to measure.
struct alternation_budget {
  std::size_t warm_ups = 2;
  std::size_t min_rounds = 7;
  std::size_t max_rounds = 200;
  double seconds = 1.0;  ///< no further round starts after this, once there are `min_rounds` clean
  double most_seconds = 3.0;    ///< nor after this, once there are three rounds
  double group_seconds = 3e-3;  ///< short calls are repeated this long within a round

  /// True once no further round starts, after so many rounds, clean ones and seconds.
  bool is_spent(std::size_t rounds, std::size_t clean, double spent) const {
    return rounds >= max_rounds || (spent > seconds && clean >= min_rounds) ||
           (spent > most_seconds && rounds >= 3);
  }
};

/// One round. Seconds are those of one call, the median of the round's group.
struct alternated_round {
  double seconds = 0;
  double cpu_seconds = 0;     ///< of all threads
  double beside_seconds = 0;  ///< of the call it is compared with; 0 if there is none
  double limit = 0;           ///< mean of the clean probes before and after; 0: neither was
  double lost_share = 0;      ///< of the core time of either call, taken by other programs
};

struct alternation {
  std::vector<alternated_round> rounds;  ///< those that count
  std::size_t dropped = 0;               ///< disturbed rounds that do not
  bool disturbed = false;                ///< too few rounds were clean, so that all of them count

  /// Order statistics of `value(round)`.
  template <class Value>
  timing of(const Value& value) const {
    std::vector<double> values;
    for (const alternated_round& round : rounds) values.push_back(value(round));
    return statistics_of(std::move(values));
  }
};

namespace detail {

/// Calls `work(index)` `count` times; the median of a call.
template <class Work>
double median_of_calls(std::size_t count, std::size_t& index, const Work& work) {
  std::vector<double> seconds;
  for (std::size_t call = 0; call < count; ++call) {
    const double start = now_seconds();
    work(index++);
    seconds.push_back(now_seconds() - start);
  }
  return statistics_of(std::move(seconds)).median;
}

/// Warms up; how many calls make a group.
template <class Work>
std::size_t group_size(const alternation_budget& budget, std::size_t& index, const Work& work) {
  double fastest = budget.group_seconds;
  for (std::size_t call = 0; call < std::max<std::size_t>(budget.warm_ups, 1); ++call) {
    const double start = now_seconds();
    work(index++);
    fastest = std::min(fastest, now_seconds() - start);
  }
  return std::clamp<std::size_t>(
      static_cast<std::size_t>(budget.group_seconds / std::max(fastest, 1e-7)), 1, 256);
}

/// Leaves the rounds that others left alone; where these are fewer than `least`, the `least` that
/// suffered least, and says so.
inline void leave_out_disturbed(alternation& all, std::size_t least) {
  const std::size_t taken = all.rounds.size();
  std::stable_sort(all.rounds.begin(), all.rounds.end(),
                   [](const alternated_round& a, const alternated_round& b) {
                     return a.lost_share < b.lost_share;
                   });
  const auto clean = static_cast<std::size_t>(std::count_if(
      all.rounds.begin(), all.rounds.end(),
      [](const alternated_round& round) { return round.lost_share <= tolerable_loss; }));
  all.disturbed = clean < std::min(least, taken);
  all.rounds.resize(std::min(std::max(clean, least), taken));
  all.dropped = taken - all.rounds.size();
}

}  // namespace detail

/// Takes `work(index)`, `beside(index)` and `probe()` in turn. `index` counts the calls from 0, so
/// that the callee can rotate its buffers; `probe` returns the rate of the binding limit, 0 if
/// other programs kept it from measuring. `has_beside` false: `beside` is never called. `threads`
/// is how many cores `work` keeps busy.
template <class Work, class Beside, class Probe>
alternation alternate(const alternation_budget& budget, int threads, const Work& work,
                      bool has_beside, const Beside& beside, const Probe& probe) {
  std::size_t index = 0, beside_index = 0;
  const std::size_t group = detail::group_size(budget, index, work);
  const std::size_t beside_group =
      has_beside ? detail::group_size(budget, beside_index, beside) : 0;
  const tenant_watch tenants;
  alternation all;
  std::size_t clean = 0;
  double before = probe();
  const double begin = now_seconds();
  while (!budget.is_spent(all.rounds.size(), clean, now_seconds() - begin)) {
    alternated_round round;
    // Runs `take` and notes what others took meanwhile.
    const auto watched = [&](const auto& take) {
      const double lost = tenants.lost_seconds();
      const double start = now_seconds();
      const double seconds = take();
      const double share = (tenants.lost_seconds() - lost) / ((now_seconds() - start) * threads);
      round.lost_share = std::max(round.lost_share, share);
      return seconds;
    };
    const auto take_work = [&] {
      const double cpu = cpu_seconds();
      round.seconds = watched([&] { return detail::median_of_calls(group, index, work); });
      round.cpu_seconds = (cpu_seconds() - cpu) / static_cast<double>(group);
    };
    const auto take_beside = [&] {
      round.beside_seconds =
          watched([&] { return detail::median_of_calls(beside_group, beside_index, beside); });
    };
    const bool beside_first = has_beside && all.rounds.size() % 2 == 1;
    if (beside_first) take_beside();
    take_work();
    if (has_beside && !beside_first) take_beside();
    const double after = probe();
    round.limit = before > 0 && after > 0 ? (before + after) / 2 : std::max(before, after);
    if (round.limit <= 0) round.lost_share = 1;
    before = after;
    clean += round.lost_share <= tolerable_loss ? 1 : 0;
    all.rounds.push_back(round);
  }
  detail::leave_out_disturbed(all, std::min<std::size_t>(3, budget.min_rounds));
  return all;
}

}  // namespace tessera::bench
