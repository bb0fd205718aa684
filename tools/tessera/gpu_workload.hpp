// A workload of attention in the memory of a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/flash_attention/lower_memory.hpp>
#include <tessera/spec/flash_attention/problem.hpp>

#include "bench/support/timing.hpp"
#include "bench/support/workload.hpp"
#include "command.hpp"
#include "device_tensors.hpp"

namespace tessera::tool {

/// Tensors of a problem, filled on the host and copied; keys and values several times where they
/// would stay in the cache.
class gpu_workload {
 public:
  /// The copies of keys and values have `cold_bytes` together, or are as many as is sensible.
  gpu_workload(const flash_problem& problem, std::size_t cold_bytes, device_id device, void* stream,
               std::string subject)
      : host_(problem),
        device_(device),
        stream_(stream),
        subject_(std::move(subject)),
        tensors_(device, stream) {
    constexpr std::size_t most_copies = 16;
    const flash_attention_args ours = host_.args();
    flash_attention_args theirs;
    for (const checks::flash_tensor_role& role : checks::flash_tensor_roles) {
      theirs.*role.member = brought(ours.*role.member);
    }
    rounds_.push_back(theirs);
    const std::size_t once = bytes_of(ours.k) + bytes_of(ours.v);
    const std::size_t copies = once > 0 ? cold_bytes / once + 1 : 1;
    while (rounds_.size() < std::min(copies, most_copies)) {
      theirs.k = brought(ours.k);
      theirs.v = brought(ours.v);
      rounds_.push_back(theirs);
    }
  }

  const flash_attention_options& options() const noexcept { return host_.options(); }
  flash_attention_args args(std::size_t round) const { return rounds_[round % rounds_.size()]; }

  /// The arguments in host memory, with the output of the device's last run.
  flash_attention_args fetched() const {
    const flash_attention_args ours = host_.args();
    require(tensors_.fetch(ours.out), subject_);
    return ours;
  }

  /// Times `run(round)`, which puts its work into the stream: batches of runs of a millisecond or
  /// more, by the clock of the device.
  template <class Run>
  bench::timing measure(const Run& run) const {
    result<device_timer> timer = device_timer::make(device_);
    if (!timer) require(timer.failure(), subject_);
    std::size_t round = 0;
    const auto seconds_of = [&](std::size_t runs) {
      require(timer->start(stream_), subject_);
      for (std::size_t n = 0; n < runs; ++n) require(run(round++), subject_);
      require(timer->stop(stream_), subject_);
      const result<double> took = timer->seconds();
      if (!took) require(took.failure(), subject_);
      return *took / static_cast<double>(runs);
    };
    constexpr double batch_seconds = 1e-3;
    const double first = seconds_of(1);
    const auto runs = static_cast<std::size_t>(std::clamp(batch_seconds / first, 1.0, 1000.0));
    std::vector<double> seconds;
    const double begin = bench::now_seconds();
    while (seconds.size() < 5 || (seconds.size() < 200 && bench::now_seconds() - begin < 0.25)) {
      seconds.push_back(seconds_of(runs));
    }
    return bench::statistics_of(std::move(seconds));
  }

 private:
  static std::size_t bytes_of(const tensor_view& view) {
    return static_cast<std::size_t>(view.elements()) * size_of(view.type);
  }

  tensor_view brought(const tensor_view& ours) {
    const result<tensor_view> there = tensors_.add(ours);
    if (!there) throw failure(subject_ + ": " + there.message(), exit_status::no);
    return *there;
  }

  bench::workload host_;
  device_id device_;
  void* stream_;
  std::string subject_;
  device_tensors tensors_;
  std::vector<flash_attention_args> rounds_;
};

}  // namespace tessera::tool
