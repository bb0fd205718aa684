// The rounds of a case: the call, the call beside it and the limit that binds it, in turn, with the
// probe and the ceilings of this run.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <tessera/spec/backend.hpp>

#include "bench/support/alternate.hpp"
#include "bench/support/measured.hpp"
#include "bench/support/roofline.hpp"
#include "bench/support/tenants.hpp"
#include "bench/support/this_run.hpp"

namespace tessera::bench {

/// A call to compare with: `run(index)` is false where it is refused.
template <class Run>
struct call_beside {
  static constexpr bool present = true;
  Run run;
  double flops = 0;
};
template <class Run>
call_beside(Run, double) -> call_beside<Run>;

struct nothing_beside {
  static constexpr bool present = false;
  static bool run(std::size_t) { return true; }
  double flops = 0;
};

namespace detail {

/// Repeats `probe` until other programs leave it alone; 0 if they never do.
template <class Probe>
double undisturbed(const tenant_watch& tenants, int threads, const Probe& probe) {
  constexpr int attempts = 6;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double lost = tenants.lost_seconds();
    const double start = now_seconds();
    const double rate = probe();
    const double spent = (now_seconds() - start) * threads;
    if (tenants.lost_seconds() - lost <= tolerable_loss * spent) return rate;
  }
  return 0;
}

}  // namespace detail

/// Times `run(index)` and fills `found`, which must know flops, bytes and threads. The limit that
/// binds a row of backend `target` is probed between the rounds, the other one before and after
/// them, so that reading for a probe does not empty the caches of a call bound by computing. Where
/// no probe was left alone the ceilings of the run stand in.
template <class Run, class Beside>
void take_rounds(measured_case& found, backend target, const Run& run, const Beside& beside) {
  limit_probe& probe = this_run_probe();
  const chains::chain_loop chain = chain_of(target);
  const int threads = found.threads;
  const roofs of_run = roofs_of(target, this_run_ceilings());
  const bool reading = bound_by_reading(found.flops, found.bytes, of_run);
  const tenant_watch tenants;
  const auto limit = [&](bool of_reading) {
    return detail::undisturbed(tenants, threads, [&] {
      return of_reading ? probe.read_rate(threads) : probe.rate_of(chain, threads);
    });
  };
  std::vector<double> other;
  const auto note_other = [&] {
    for (int n = 0; n < 3; ++n) {
      if (const double rate = limit(!reading); rate > 0) other.push_back(rate);
    }
  };
  bool refused = false;
  note_other();
  const double stolen = tenants.stolen_seconds();
  const double start = now_seconds();
  const alternation taken = alternate(
      {}, threads, [&](std::size_t index) { refused = !run(index) || refused; }, Beside::present,
      [&](std::size_t index) { refused = !beside.run(index) || refused; },
      [&] { return limit(reading); });
  found.steal_share = (tenants.stolen_seconds() - stolen) / (now_seconds() - start) / threads;
  note_other();
  if (refused) found.failure = "a timed run was refused";
  roofs stand_in = of_run;
  if (!other.empty()) {
    (reading ? stand_in.peak_gflops : stand_in.read_gbytes) =
        statistics_of(std::move(other)).median;
  }
  summarise(found, taken, reading, stand_in, beside.flops);
}

}  // namespace tessera::bench
