// A workload of an operation in the memory of a GPU.
#pragma once

#include <algorithm>
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

inline std::span<tensor_view> views_of(std::vector<tensor_view>& tensors) noexcept {
  return tensors;
}
template <class Args>
std::span<tensor_view> views_of(Args& args) noexcept {
  return {tensors_of(args), sizeof(args) / sizeof(tensor_view)};
}

/// Tensors of a problem, filled on the host and copied. `Host` is a workload, with the structs of a
/// family or without.
template <class Host>
class gpu_workload {
  using host_type = Host;
  using args_type = decltype(std::declval<const Host&>().args());

 public:
  /// Everything is copied in the stream of the stopwatch, which outlives it.
  static result<gpu_workload> make(host_type host, gpu_stopwatch& watch) {
    gpu_workload copied(std::move(host), watch);
    for (const memory_block& block : copied.host_.blocks()) {
      status done =
          block.is_read ? copied.there_.add(block.bytes) : copied.there_.reserve(block.bytes);
      if (!done) return done;
    }
    return copied;
  }

  args_type args(std::size_t round) const {
    args_type theirs = host_.args(round);
    for (tensor_view& view : views_of(theirs)) view = there_.at(view);
    return theirs;
  }

  /// The tensors in host memory, with the outputs of the device's last run.
  result<const host_type*> fetched() const {
    for (const memory_block& block : host_.blocks()) {
      if (!block.is_written) continue;
      if (status done = there_.fetch(block.bytes); !done) return done;
    }
    return &host_;
  }

  /// Seconds of one of `runs` calls of `run(args)`, which puts its work into the stream; another
  /// round each.
  template <class Run>
  result<double> seconds_of(std::size_t runs, const Run& run) {
    // Made beforehand: a short call must not wait for the host.
    std::vector<args_type> calls;
    for (std::size_t n = 0; n < runs; ++n) calls.push_back(args(round_++));
    const result<double> took = watch_->seconds_of([&] {
      for (const args_type& args : calls) {
        if (status done = run(args); !done) return done;
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
  gpu_workload(host_type host, gpu_stopwatch& watch)
      : host_(std::move(host)), watch_(&watch), there_(watch.device(), watch.stream()) {}

  host_type host_;
  gpu_stopwatch* watch_;
  device_mirror there_;
  std::size_t round_ = 0;
};

template <class Problem>
using gpu_workload_of = gpu_workload<workload_of<Problem>>;

}  // namespace tessera::bench
