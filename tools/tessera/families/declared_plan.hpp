// Plans behind the interface of families.hpp: on the CPU, and on a GPU with copies of the tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/api/plan.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "../device_tensors.hpp"
#include "../failure.hpp"
#include "../families.hpp"
#include "bench/support/timing.hpp"

namespace tessera::tool {

/// What plans have in common on every device.
class declared_plan : public planned_call {
 public:
  std::string_view row() const override { return plan_.choice().row(); }
  selection_tier tier() const override { return plan_.choice().tier; }
  selection_reason reason() const override { return plan_.choice().reason; }
  int threads() const override { return plan_.threads(); }
  device_id device() const override { return plan_.device(); }
  status run() const override { return launch(); }

 protected:
  declared_plan(operation_plan plan, std::vector<tensor_view> tensors)
      : plan_(std::move(plan)), tensors_(std::move(tensors)) {}
  status launch() const { return plan_.run(tensors_.data()); }

  operation_plan plan_;
  std::vector<tensor_view> tensors_;
};

class host_plan final : public declared_plan {
 public:
  host_plan(operation_plan plan, const std::vector<tensor_view>& tensors)
      : declared_plan(std::move(plan), tensors) {}

  result<double> timed_run() const override {
    const double begin = bench::now_seconds();
    if (status done = launch(); !done) return done;
    return bench::now_seconds() - begin;
  }
  status fetch() const override { return {}; }
};

/// A stream and a clock of the device; fails with the driver's words.
inline device_stream open_stream(device_id device, const std::string& subject) {
  result<device_stream> stream = device_stream::make(device);
  if (!stream) throw failure(subject + ": " + stream.message(), exit_status::no);
  return *std::move(stream);
}

class gpu_plan final : public declared_plan {
 public:
  gpu_plan(device_stream stream, operation_plan plan, std::size_t tensors)
      : declared_plan(std::move(plan), std::vector<tensor_view>(tensors)),
        stream_(std::move(stream)),
        copies_(plan_.device(), stream_.handle()) {}

  /// Copies a tensor of the call to the device.
  void bring(std::size_t tensor, const tensor_view& host, bool is_output,
             const std::string& subject) {
    const result<tensor_view> there = copies_.add(host);
    if (!there) throw failure(subject + ": " + there.message(), exit_status::no);
    tensors_[tensor] = *there;
    if (is_output) outputs_.push_back(host);
  }

  status run() const override {
    if (status done = launch(); !done) return done;
    return wait_for(plan_.device(), stream_.handle());
  }

  result<double> timed_run() const override {
    result<device_timer> timer = device_timer::make(plan_.device());
    if (!timer) return timer.failure();
    if (status done = timer->start(stream_.handle()); !done) return done;
    if (status done = launch(); !done) return done;
    if (status done = timer->stop(stream_.handle()); !done) return done;
    return timer->seconds();
  }

  status fetch() const override {
    for (const tensor_view& output : outputs_) {
      if (status done = copies_.fetch(output); !done) return done;
    }
    return {};
  }

 private:
  device_stream stream_;
  device_tensors copies_;
  std::vector<tensor_view> outputs_;
};

}  // namespace tessera::tool
