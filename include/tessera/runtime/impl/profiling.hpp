// The profiler of the process, and ranges around launches.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include <tessera/runtime/profiling.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera {

namespace {

constinit std::atomic<const profiler*> process_profiler{nullptr};

/// A range around a launch, if somebody profiles.
class launch_range {
 public:
  launch_range(const instance& row, const problem_view& problem) : to_(installed_profiler()) {
    if (to_ != nullptr) [[unlikely]]
      begin(row, problem);
  }
  ~launch_range() {
    if (to_ != nullptr && to_->end != nullptr) [[unlikely]]
      to_->end(to_->state);
  }
  launch_range(const launch_range&) = delete;
  launch_range& operator=(const launch_range&) = delete;

 private:
  [[gnu::cold, gnu::noinline]] void begin(const instance& row, const problem_view& problem) {
    if (to_->begin == nullptr) return;
    if (to_->names == range_names::row) return to_->begin(to_->state, row.name);
    to_->begin(to_->state, std::string(row.name) + " " + text_of(problem));
  }

  const profiler* to_;
};

}  // namespace

const profiler* set_profiler(const profiler* one) noexcept {
  return process_profiler.exchange(one, std::memory_order_acq_rel);
}

const profiler* installed_profiler() noexcept {
  if (process_profiler.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return process_profiler.load(std::memory_order_acquire);
}

}  // namespace tessera
