// A problem whose rows take the time, and make the mistakes, that a test tells them to.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quick_tune.hpp"
#include "tests/support/random.hpp"
#include "tools/tuner/tune.hpp"

namespace tessera::testing {

using namespace tessera::tuner;

enum class behaviour {
  right,
  wrong,             ///< writes another number
  hangs,             ///< does not come back from its first run
  crashes,           ///< ends its process at its first run
  refuses,           ///< returns an error
  hangs_when_timed,  ///< passes the gate, then does not come back
  crashes_when_timed,
  slow_elsewhere,                 ///< fast on the inputs of seed 1, three times slower on others
  wrong_elsewhere,                ///< right on the inputs of seed 1
  wrong_by_definition_elsewhere,  ///< there it agrees with the reference row, not the definition
  takes_its_time,                 ///< 0.6 s for each step of the gate
  spoils,  ///< is right, and leaves its process so that what runs behind it is wrong
};

struct pretended_row {
  std::string name;
  double seconds = 1e-3;  ///< of one run, on a clock that is not the machine's
  behaviour does = behaviour::right;
  double resources = 1;
};

/// The first row is the default, the last one the reference. What is right is 42.
class pretended_problem final : public tunable_problem {
 public:
  pretended_problem(std::string text, std::vector<pretended_row> rows, bool shares = false)
      : text_(std::move(text)), rows_(std::move(rows)), shares_(shares) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      candidates_.push_back({rows_[i].name, 1e-3 * static_cast<double>(i + 1), rows_[i].resources});
    }
    key_ = {"pretended", 1, "c0de", "here", "problem=" + std::to_string(text_.size()), "length=8"};
  }

  const std::string& text() const noexcept override { return text_; }
  const problem_key& key() const noexcept override { return key_; }
  std::span<const candidate> candidates() const noexcept override { return candidates_; }
  std::size_t default_row() const noexcept override { return 0; }
  std::size_t reference_row() const noexcept override { return rows_.size() - 1; }
  status make_inputs(std::uint64_t seed) override {
    seed_ = seed;
    return {};
  }
  void drop_inputs() override { seed_ = 0; }
  status prepare(std::size_t row) override {
    row_ = row;
    return {};
  }

  status run(std::size_t round) override {
    const pretended_row& row = rows_[row_];
    const bool timed = round > 1;
    switch (row.does) {
      case behaviour::crashes:
        std::raise(SIGABRT);
        break;
      case behaviour::hangs:
        hang();
        break;
      case behaviour::crashes_when_timed:
        if (timed) std::raise(SIGSEGV);
        break;
      case behaviour::hangs_when_timed:
        if (timed) hang();
        break;
      case behaviour::refuses:
        return {status_code::device, "the device is not there"};
      case behaviour::right:
      case behaviour::wrong:
      case behaviour::slow_elsewhere:
      case behaviour::wrong_elsewhere:
      case behaviour::wrong_by_definition_elsewhere:
      case behaviour::spoils:
        break;
      case behaviour::takes_its_time:
        take_time();
        break;
    }
    const bool wrong = spoiled_ || row.does == behaviour::wrong ||
                       (row.does == behaviour::wrong_elsewhere && seed_ != 1);
    result_ = wrong ? 41 : 42;
    spoiled_ = row.does == behaviour::spoils;
    return {};
  }

  /// What the row was told to take, with a little noise that follows from the round: no test
  /// depends on the machine it runs on.
  result<double> time(std::size_t round, std::size_t repeats) override {
    if (status done = run(round); !done) return done;
    const pretended_row& row = rows_[row_];
    const bool slow = row.does == behaviour::slow_elsewhere && seed_ != 1;
    support::random_source noise = support::stream(seed_ * 1000 + row_, round);
    const double factor = 1 + 0.004 * static_cast<double>(noise.bell());
    return (slow ? 3 : 1) * row.seconds * factor * static_cast<double>(repeats);
  }

  std::size_t result_bytes() const override { return sizeof result_; }
  void copy_results(std::span<std::byte> results) const override {
    std::memcpy(results.data(), &result_, sizeof result_);
  }
  std::string complaint(std::span<const std::byte> expected) const override {
    take_time();
    int want = result_;
    if (expected.size() == sizeof want) std::memcpy(&want, expected.data(), sizeof want);
    return unless_it_is(want, "reference");
  }
  std::string against_definition(bool) const override {
    take_time();
    const bool wrong = rows_[row_].does == behaviour::wrong_by_definition_elsewhere && seed_ != 1;
    return wrong ? "the definition says no" : unless_it_is(42, "definition");
  }
  bool shares_process() const noexcept override { return shares_; }

 private:
  std::string unless_it_is(int want, const std::string& judge) const {
    if (result_ == want) return "";
    return "out is " + std::to_string(result_) + ", the " + judge + " says " + std::to_string(want);
  }
  void take_time() const {
    if (rows_[row_].does != behaviour::takes_its_time) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
  static void hang() { std::this_thread::sleep_for(std::chrono::hours(1)); }

  std::string text_;
  std::vector<pretended_row> rows_;
  std::vector<candidate> candidates_;
  problem_key key_;
  std::uint64_t seed_ = 0;
  std::size_t row_ = 0;
  int result_ = 0;
  bool shares_ = false;
  bool spoiled_ = false;
};

/// Opens every text as a problem with these rows.
inline problem_opener opener_of(std::vector<pretended_row> rows) {
  return [rows = std::move(rows)](std::string_view text,
                                  const conditions&) -> result<std::unique_ptr<tunable_problem>> {
    return std::unique_ptr<tunable_problem>(
        std::make_unique<pretended_problem>(std::string(text), rows));
  };
}

}  // namespace tessera::testing
