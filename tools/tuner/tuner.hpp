// Tuning inside a program, for those who want it: the first call of a problem that no table knows
// measures the rows that fit, and later calls use the fastest. Link tessera::tuner, hand the hook
// over and allow it:
//
//   tessera::online_tuner tuner;
//   tessera::context context{.policy = tessera::selection_policy{
//                                .autotune = tessera::autotune_use::on_miss},
//                            .tuner = &tuner.hook()};
//
// Rows run in child processes (forks) while they are measured, so that one that crashes or hangs
// does not end the program. The call that waits takes seconds. `tessera tune` does the same ahead
// of time, with more care; prefer it. Problems on a GPU are declined: forks of a program that uses
// one cannot, so `tessera tune --backend cuda` measures them.
#pragma once

#include <memory>
#include <string>

#include <tessera/runtime/policy.hpp>

namespace tessera {

struct autotune_settings {
  double seconds = 1;             ///< timing of one problem, beside checking its rows
  int most_candidates = 6;        ///< rows by predicted time, the default on top
  double limit_seconds = 30;      ///< a row that is silent this long counts as hanging
  bool accept_disturbed = false;  ///< decide also where other programs took much of the time
  bool store = true;              ///< append winners to the user's lookup table
  std::string table{};            ///< instead of the user's lookup table; empty: that
  const application_rows* rows = nullptr;  ///< the application's own rows, as in its contexts
};

/// Owns the state behind a hook. One may serve any number of contexts and threads; problems are
/// measured one at a time.
class online_tuner {
 public:
  explicit online_tuner(autotune_settings settings = {});
  ~online_tuner();
  online_tuner(const online_tuner&) = delete;
  online_tuner& operator=(const online_tuner&) = delete;

  /// What context.tuner points to; lives as long as this object.
  const autotuner& hook() const noexcept;

  /// Why the last request was declined; empty if it was not.
  std::string last_refusal() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace tessera
