// A workload of an operation in the memory of a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/problem.hpp>

#include "bench/support/device_ceilings.hpp"
#include "bench/support/device_mirror.hpp"
#include "bench/support/timing.hpp"
#include "bench/support/workload.hpp"

namespace tessera::bench {

/// Tensors of a problem, filled on the host (`Host`) and copied.
template <class Host>
class basic_gpu_workload {
  using args_type = decltype(std::declval<const Host&>().args());

 public:
  /// Everything is copied in the stream of the stopwatch, which outlives it.
  static result<basic_gpu_workload> make(Host host, gpu_stopwatch& watch) {
    basic_gpu_workload made(std::move(host), watch);
    for (const auto& block : made.host_.input_blocks()) {
      if (status done = made.there_.add(block); !done) return done;
    }
    for (const auto& block : made.host_.output_blocks()) {
      if (status done = made.there_.reserve(block); !done) return done;
    }
    return made;
  }

  const auto& options() const noexcept { return host_.options(); }

  args_type args(std::size_t round) const {
    args_type theirs = host_.args(round);
    const std::span views(tensors_of(theirs), sizeof(theirs) / sizeof(tensor_view));
    for (tensor_view& view : views) view = there_.at(view);
    return theirs;
  }

  /// The arguments of the first round in host memory, with the outputs of the device's last run.
  result<args_type> fetched() const {
    for (const std::span<std::byte> block : host_.output_blocks()) {
      if (status done = there_.fetch(block); !done) return done;
    }
    return host_.args();
  }

  /// Seconds of one of `runs` calls of `run(args)`, which puts its work into the stream; another
  /// round each.
  template <class Run>
  result<double> seconds_of(std::size_t runs, const Run& run) {
    // Made beforehand: a short call must not wait for the host.
    std::vector<args_type> calls;
    for (std::size_t n = 0; n < runs; ++n) calls.push_back(args(round_++));
    const result<double> took = watch_->seconds_of([&] {
      for (const args_type& one : calls) {
        if (status done = run(one); !done) return done;
      }
      return status();
    });
    if (!took) return took.failure();
    return *took / static_cast<double>(runs);
  }

  /// Calls that take a millisecond together, or one.
  template <class Run>
  result<std::size_t> group_size(const Run& run) {
    constexpr double group_seconds = 1e-3;
    result<double> took = seconds_of(1, run);  // warms up
    if (took) took = seconds_of(1, run);
    if (!took) return took.failure();
    return static_cast<std::size_t>(std::clamp(group_seconds / *took, 1.0, 500.0));
  }

  /// Times `run(args)` in groups of calls.
  template <class Run>
  result<timing> measure(const Run& run) {
    const result<std::size_t> runs = group_size(run);
    if (!runs) return runs.failure();
    std::vector<double> seconds;
    const double begin = now_seconds();
    while (seconds.size() < 5 || (seconds.size() < 200 && now_seconds() - begin < 0.25)) {
      const result<double> took = seconds_of(*runs, run);
      if (!took) return took.failure();
      seconds.push_back(*took);
    }
    return statistics_of(std::move(seconds));
  }

 private:
  basic_gpu_workload(Host host, gpu_stopwatch& watch)
      : host_(std::move(host)), watch_(&watch), there_(watch.device(), watch.stream()) {}

  Host host_;
  gpu_stopwatch* watch_;
  device_mirror there_;
  std::size_t round_ = 0;
};

using gpu_workload = basic_gpu_workload<workload>;

}  // namespace tessera::bench
