// A tunable problem of any family that the run time can execute. What is left to a family is its
// workload: inputs, the list of outputs, and the definition of the operation.
//
// A Workload has
//   Workload(const problem_type&, std::uint64_t seed, std::size_t cold_bytes)
//                                 inputs; in memory of at least `cold_bytes`, used piece by piece
//   args_type args(round)         the inputs of a round, without outputs
//   blocks()                      the memory in which they lie, all rounds: a vector of spans
//   static outputs(problem)       a vector of result_tensor<args_type>
//   static dtype type_of(problem) the dtype whose precision bounds the results
//   std::string disagreement(args, thorough)
//                                 how the computed args of round 0 differ from the definition on a
//                                 sample of their elements; empty if within bounds
//
// All of it is host memory: the place of the problem brings it where the rows run.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <omp.h>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/reflect.hpp>

#include "measuring_place.hpp"
#include "tests/reference/elements.hpp"
#include "tests/support/compare.hpp"
#include "tunable_family.hpp"

namespace tessera::tuner {

/// One output of a call: the member of the args and its shape.
template <class Args>
struct result_tensor {
  std::string_view name;
  tensor_view Args::*member = nullptr;
  tensor_shape shape{};

  std::size_t bytes() const noexcept {
    std::size_t count = size_of(shape.type);
    for (int axis = 0; axis < shape.rank; ++axis) {
      count *= static_cast<std::size_t>(shape.extent[static_cast<std::size_t>(axis)]);
    }
    return count;
  }
  tensor_view at(std::byte* data, device_id device = {}) const noexcept {
    tensor_view view;
    view.data = data;
    view.device = device;
    view.type = shape.type;
    view.rank = shape.rank;
    view.extent = shape.extent;
    view.stride = contiguous_strides(shape.extent, shape.rank);
    return view;
  }
};

template <executable_family Family, class Workload>
class family_problem final : public tunable_problem {
 public:
  using problem_type = typename Family::problem_type;
  using instance_type = typename Family::instance_type;
  using args_type = typename Family::args_type;

  static result<std::unique_ptr<tunable_problem>> open(std::string_view text,
                                                       const conditions& where) {
    result<problem_type> problem = Family::parse(text);
    if (!problem) return problem.failure();
    auto made = std::unique_ptr<family_problem>(new family_problem(*problem, where));
    if (status done = Family::lower_problem(made->problem_, made->planned_); !done) return done;
    made->find_candidates(where);
    if (!made->candidates_.empty()) return std::unique_ptr<tunable_problem>(std::move(made));
    return status(status_code::no_row, "no " + std::string(Family::name) +
                                           " row of this build runs " + made->text_ + " on " +
                                           made->place_name());
  }

  const std::string& text() const noexcept override { return text_; }
  const problem_key& key() const noexcept override { return key_; }
  std::span<const candidate> candidates() const noexcept override { return candidates_; }
  /// The cost model takes the lowest predicted time, and of equals the first name.
  std::size_t default_row() const noexcept override { return 0; }
  std::size_t reference_row() const noexcept override { return reference_; }
  bool shares_processor() const noexcept override { return device_.kind == device_kind::cpu; }

  status make_inputs(std::uint64_t seed) override {
    place_->drop();
    workload_ = std::make_unique<Workload>(problem_, seed, 3 * place_->cache_bytes());
    return {};
  }
  void drop_inputs() override {
    workload_.reset();
    place_->drop();
  }

  status prepare(std::size_t row) override {
    const instance_type& instance = *instances_[row];
    if (status done = place_->bring(workload_->blocks()); !done) return done;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (status done = place_->reset(i, results_[i].bytes()); !done) return done;
    }
    scratch_bytes_ = instance.workspace_bytes(planned_, workers_);
    if (status done = place_->reset(scratch(), scratch_bytes_); !done) return done;
    row_ = row;
    if constexpr (requires { instance.prepare; }) {
      if (instance.prepare != nullptr) return place_->run([&] { return instance.prepare(); });
    }
    return {};
  }

  status run(std::size_t round) override {
    if (status done = place_->run([&] { return launch(round); }); !done) return done;
    return round == 0 ? place_->fetch() : status();
  }

  result<double> time(std::size_t round, std::size_t repeats) override {
    return place_->seconds_of([&] {
      for (std::size_t i = 0; i < repeats; ++i) {
        if (status done = launch(round + i); !done) return done;
      }
      return status();
    });
  }

  std::size_t result_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& output : results_) bytes += output.bytes();
    return bytes;
  }

  void copy_results(std::span<std::byte> results) const override {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const std::span<const std::byte> output = place_->bytes(i);
      std::memcpy(results.data() + begin, output.data(), output.size());
      begin += output.size();
    }
  }

  std::string complaint(std::span<const std::byte> expected) const override {
    if (!place_->intact(scratch())) return "writes beyond its workspace";
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (!place_->intact(i)) return "writes beyond " + std::string(results_[i].name);
    }
    std::string text = difference(expected);
    if (text.empty()) text = workload_->disagreement(computed(), expected.empty());
    return text;
  }

 private:
  family_problem(const problem_type& problem, const conditions& where)
      : problem_(problem),
        demand_(Family::demand_of(problem)),
        text_(Family::text_of(problem)),
        device_(where.device != nullptr ? *where.device : this_device()),
        workers_(workers_of(device_, where.threads)),
        place_(place_on(device_)),
        tensors_(Family::plan_tensors(problem, device_.id())),
        results_(Workload::outputs(problem)) {
    const key_text spelled = key_text_of<Family>(demand_, workers_, device_.kind);
    key_ = {
        .family = std::string(Family::name),
        .semantic_version = Family::semantic_version,
        .code_version = std::string(Family::code_version(device_.kind)),
        .device_class = std::string(device_class_of(device_).view()),
        .identity = std::string(where.identity.empty() ? spelled.identity.view() : where.identity),
        .size = std::string(spelled.size.view())};
  }

  /// Threads, or the multiprocessors of a GPU.
  static int workers_of(const device_facts& device, int threads) {
    if (device.kind == device_kind::cuda) return device.multiprocessors;
    return threads > 0 ? threads : omp_get_max_threads();
  }

  std::string place_name() const {
    if (device_.kind == device_kind::cpu) return "this machine";
    return std::string(text_of(device_.id()).view());
  }

  bool runs(const instance_type& row) const {
    return Family::runs_on(row.config, device_) && Family::runs(row.config, demand_);
  }

  void find_candidates(const conditions& where) {
    std::span<const instance_type> mine;
    if (where.rows != nullptr) mine = where.rows->template of<instance_type>();
    const auto named_by_application = [&](const instance_type& row) {
      return std::any_of(mine.begin(), mine.end(),
                         [&](const instance_type& one) { return one.name == row.name; });
    };
    const auto wanted = [&](const instance_type& row) {
      return where.only.empty() ||
             std::find(where.only.begin(), where.only.end(), row.name) != where.only.end();
    };
    for (const instance_type& row : mine) {
      if (wanted(row)) add(row);
    }
    for (const instance_type& row : Family::registry()) {
      if (wanted(row) && !named_by_application(row)) add(row);
    }
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      if (a.first.predicted_seconds != b.first.predicted_seconds) {
        return a.first.predicted_seconds < b.first.predicted_seconds;
      }
      return a.first.name < b.first.name;
    });
    for (auto& [row, instance] : found_) {
      candidates_.push_back(std::move(row));
      instances_.push_back(instance);
    }
    found_.clear();
    choose_reference();
  }

  void add(const instance_type& row) {
    if (!runs(row)) return;
    const auto work = Family::estimate(row.config, Family::facts_of(demand_), workers_);
    const bool portable = row.config.target == backend::cpu_generic;
    found_.push_back(
        {{.name = std::string(row.name),
          .predicted_seconds = predicted_seconds(work, row.config.target, device_, workers_),
          .resources = static_cast<double>(row.object_bytes),
          .fallback = Family::is_generic(row.config) ||
                      (portable && device_.highest != backend::cpu_generic),
          .compile_seconds = static_cast<double>(row.compile_seconds)},
         &row});
  }

  /// Portable code that takes any problem, else what comes closest to it.
  void choose_reference() {
    int best = -1;
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      const auto& config = instances_[i]->config;
      const int plainness =
          (config.target == backend::cpu_generic ? 2 : 0) + (Family::is_generic(config) ? 1 : 0);
      if (plainness > best) reference_ = i;
      best = std::max(best, plainness);
    }
  }

  std::size_t scratch() const noexcept { return results_.size(); }

  /// Launches the prepared row on the inputs of a round, where they were brought.
  status launch(std::size_t round) const {
    args_type args = workload_->args(round);
    if (device_.kind != device_kind::cpu) {
      for_each_member(args,
                      [&](std::string_view, tensor_view& view) { view = place_->brought(view); });
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
      args.*results_[i].member = results_[i].at(place_->data(i), device_.id());
    }
    typename Family::kernel_args_type lowered = planned_;
    if (status done = Family::lower_run(problem_, tensors_, planned_, args, lowered); !done) {
      return done;
    }
    if (Family::is_empty(lowered)) return {};
    const launch_context where{.threads = workers_,
                               .workspace = place_->data(scratch()),
                               .workspace_bytes = scratch_bytes_,
                               .stream = place_->stream()};
    return instances_[row_]->launch(lowered, where);
  }

  /// The tensors of round 0 in host memory, as the row left them.
  args_type computed() const {
    args_type args = workload_->args(0);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      args.*results_[i].member = results_[i].at(place_->bytes(i).data());
    }
    return args;
  }

  /// Both rows may be as far from the truth as the floor of their precision, in opposite
  /// directions.
  std::string difference(std::span<const std::byte> expected) const {
    if (expected.empty()) return {};
    const args_type args = computed();
    std::size_t begin = 0;
    for (const auto& output : results_) {
      const tensor_view ours = args.*output.member;
      const tensor_view theirs = output.at(const_cast<std::byte*>(expected.data()) + begin);
      begin += output.bytes();
      const auto width = ours.extent[static_cast<std::size_t>(ours.rank - 1)];
      const support::comparison found = support::judged(
          support::compare(reference::to_doubles(ours), reference::to_doubles(theirs), width,
                           support::scale_of(output.name)),
          0, 2 * support::floor_of(output.name, Workload::type_of(problem_)));
      if (!found.passed) return support::sentence_of(found, output.name, output.shape);
    }
    return {};
  }

  problem_type problem_;
  typename Family::demand_type demand_;
  std::string text_;
  device_facts device_;
  int workers_;
  std::unique_ptr<measuring_place> place_;
  problem_key key_;
  typename Family::kernel_args_type planned_{};
  typename Family::planned_type tensors_;
  std::vector<result_tensor<args_type>> results_;
  std::vector<std::pair<candidate, const instance_type*>> found_;
  std::vector<candidate> candidates_;
  std::vector<const instance_type*> instances_;
  std::size_t reference_ = 0;
  std::size_t row_ = 0;
  std::unique_ptr<Workload> workload_;
  std::size_t scratch_bytes_ = 0;
};

/// A family of such problems.
template <executable_family Family, class Workload>
class family_adapter final : public tunable_family {
 public:
  std::string_view name() const noexcept override { return Family::name; }
  std::span<const std::string_view> ops() const noexcept override { return Family::ops; }
  result<std::unique_ptr<tunable_problem>> open(std::string_view text,
                                                const conditions& where) const override {
    return family_problem<Family, Workload>::open(text, where);
  }
};

}  // namespace tessera::tuner
