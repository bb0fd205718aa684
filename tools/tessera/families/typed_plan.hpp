// Plans of one family behind the interface of families.hpp: on the CPU, and on a GPU with copies of
// the tensors.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/reflect.hpp>

#include "../command.hpp"
#include "../device_tensors.hpp"
#include "../families.hpp"
#include "bench/support/timing.hpp"

namespace tessera::tool {

/// What plans have in common on every device.
template <class Plan>
class typed_plan : public planned_call {
 public:
  std::string_view row() const override { return plan_.choice().row(); }
  selection_tier tier() const override { return plan_.choice().tier; }
  selection_reason reason() const override { return plan_.choice().reason; }
  int threads() const override { return plan_.threads(); }
  device_id device() const override { return plan_.device(); }

 protected:
  explicit typed_plan(Plan plan) : plan_(std::move(plan)) {}
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
};

template <class Plan, class Args>
class host_plan final : public typed_plan<Plan> {
 public:
  host_plan(Plan plan, const Args& args) : typed_plan<Plan>(std::move(plan)), args_(args) {}

  status run() const override { return this->plan().run(args_); }
  result<double> timed_run() const override {
    const double begin = bench::now_seconds();
    if (status done = run(); !done) return done;
    return bench::now_seconds() - begin;
  }
  status fetch() const override { return {}; }

 private:
  Args args_;
};

/// A stream and a clock of the device; fails with the driver's words.
inline device_stream open_stream(device_id device, const std::string& subject) {
  result<device_stream> made = device_stream::make(device);
  if (!made) throw failure(subject + ": " + made.message(), exit_status::no);
  return *std::move(made);
}

template <class Plan, class Args>
class gpu_plan final : public typed_plan<Plan> {
 public:
  gpu_plan(device_stream stream, Plan plan)
      : typed_plan<Plan>(std::move(plan)),
        stream_(std::move(stream)),
        tensors_(this->plan().device(), stream_.handle()) {}

  /// Copies a tensor of the call to the device.
  void bring(std::string_view name, const tensor_view& host, bool is_output,
             const std::string& subject) {
    const result<tensor_view> there = tensors_.add(host);
    if (!there) throw failure(subject + ": " + there.message(), exit_status::no);
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      if (member == name) view = *there;
    });
    if (is_output) outputs_.push_back(host);
  }

  status run() const override {
    if (status done = this->plan().run(args_); !done) return done;
    return wait_for(this->plan().device(), stream_.handle());
  }

  result<double> timed_run() const override {
    result<device_timer> timer = device_timer::make(this->plan().device());
    if (!timer) return timer.failure();
    if (status done = timer->start(stream_.handle()); !done) return done;
    if (status done = this->plan().run(args_); !done) return done;
    if (status done = timer->stop(stream_.handle()); !done) return done;
    return timer->seconds();
  }

  status fetch() const override {
    for (const tensor_view& output : outputs_) {
      if (status done = tensors_.fetch(output); !done) return done;
    }
    return {};
  }

 private:
  device_stream stream_;
  device_tensors tensors_;
  Args args_{};
  std::vector<tensor_view> outputs_;
};

}  // namespace tessera::tool
