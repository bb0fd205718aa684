// A tunable problem of any declared operation.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <omp.h>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/lower.hpp>

#include "bench/support/workload.hpp"
#include "compare_tensors.hpp"
#include "measuring_place.hpp"
#include "tests/reference/elements.hpp"
#include "tests/reference/operations.hpp"
#include "tests/support/compare.hpp"
#include "tunable_problem.hpp"

namespace tessera::tuner {
namespace {

/// The args of a kernel.
class lowered_args {
 public:
  explicit lowered_args(const operation& op)
      : words_(op.how->bytes / sizeof(std::max_align_t) + 1) {}
  void* data() noexcept { return words_.data(); }

 private:
  std::vector<std::max_align_t> words_;
};

/// An output that rows are compared by.
struct result_tensor {
  std::size_t tensor = 0;
  tensor_view shape{};

  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(shape.elements()) * size_of(shape.type);
  }
  tensor_view at(std::byte* data, device_id device = {}) const noexcept {
    tensor_view view = shape;
    view.data = data;
    view.device = device;
    return view;
  }
};

class declared_problem final : public tunable_problem {
 public:
  static result<std::unique_ptr<tunable_problem>> open(const family& kind,
                                                       const owned_problem& asked,
                                                       const conditions& where) {
    auto opened = std::unique_ptr<declared_problem>(new declared_problem(kind, asked, where));
    lowered_args lowered(*opened->problem_.op);
    bound_call call{.op = opened->problem_.op,
                    .tensors = opened->problem_.tensors.data(),
                    .options = opened->problem_.options.data()};
    const status done = lower_problem(call, opened->problem_.tensors.data(),
                                      *opened->problem_.op->how, lowered.data());
    if (!done) return done;
    opened->describe(where);
    opened->find_candidates(where);
    if (!opened->candidates_.empty()) return std::unique_ptr<tunable_problem>(std::move(opened));
    return status(status_code::no_row, "no " + std::string(kind.name) + " row of this build runs " +
                                           opened->text_ + " on " + opened->place_name());
  }

  const std::string& text() const noexcept override { return text_; }
  const problem_key& key() const noexcept override { return key_; }
  std::span<const candidate> candidates() const noexcept override { return candidates_; }
  /// The cost model takes the lowest predicted time, and of equals the first name.
  std::size_t default_row() const noexcept override { return 0; }
  std::size_t reference_row() const noexcept override { return reference_; }
  bool shares_processor() const noexcept override { return device_.kind == device_kind::cpu; }
  bool shares_process() const noexcept override { return device_.kind != device_kind::cpu; }

  status make_inputs(std::uint64_t seed) override {
    place_->drop();
    inputs_ = std::make_unique<bench::workload>(
        problem_.view(), bench::workload_wishes{.cold_bytes = 3 * place_->cache_bytes(),
                                                .lengths = bench::length_profile::ragged,
                                                .seed = seed,
                                                .outputs = false});
    if (!inputs_->refusal()) return inputs_->refusal();
    find_results();
    return {};
  }
  void drop_inputs() override {
    inputs_.reset();
    place_->drop();
  }

  status prepare(std::size_t row) override {
    row_ = instances_[row];
    std::vector<std::span<const std::byte>> blocks;
    for (const bench::memory_block& block : inputs_->blocks()) blocks.push_back(block.bytes);
    if (status done = place_->bring(blocks); !done) return done;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (status done = place_->reset(i, results_[i].bytes()); !done) return done;
      // What is written in place holds what it holds before the call.
      const auto* const before = static_cast<const std::byte*>(results_[i].shape.data);
      if (before == nullptr) continue;
      if (status done = place_->fill(i, {before, results_[i].bytes()}); !done) return done;
    }
    lowered_args lowered(*problem_.op);
    const std::vector<tensor_view> tensors = tensors_of_round(0);
    if (status done = lower(tensors, lowered); !done) return done;
    scratch_bytes_ = row_->workspace_bytes(lowered.data(), workers_);
    if (status done = place_->reset(scratch(), scratch_bytes_); !done) return done;
    if (row_->prepare == nullptr) return {};
    return place_->run([&] { return row_->prepare(); });
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
    for (const result_tensor& output : results_) bytes += output.bytes();
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
      if (!place_->intact(i)) return "writes beyond " + std::string(name_of(results_[i]));
    }
    return difference(expected);
  }

  std::string against_definition(bool thorough) const override {
    const reference::sample_plan plan{.rows_per_head = thorough ? 16 : 3,
                                      .heads = thorough ? 4 : 2};
    return inputs_->verdict(computed().data(), plan, thorough).complaint();
  }

 private:
  declared_problem(const family& kind, const owned_problem& asked, const conditions& where)
      : kind_(kind),
        problem_(asked),
        text_(text_of(asked.view())),
        device_(where.device != nullptr ? *where.device : this_device()),
        workers_(workers_of(device_, where.threads)),
        place_(place_on(device_)) {}

  /// What a choice depends on, and the key of the table.
  void describe(const conditions& where) {
    problem_.op->form->demand_of(problem_.view(), demand_);
    const key_text spelled = key_text_of(kind_, demand_, workers_, device_.kind);
    key_ = {
        .family = std::string(kind_.name),
        .semantic_version = kind_.semantic_version,
        .code_version = std::string(kind_.code_version(device_.kind)),
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
    return tessera::text_of(device_.id());
  }
  std::string_view name_of(const result_tensor& output) const {
    return problem_.op->form->tensors[output.tensor].name;
  }

  void find_candidates(const conditions& where) {
    std::span<const instance> mine;
    if (where.rows != nullptr) mine = where.rows->rows();
    const auto wanted = [&](const instance& row) {
      return where.only.empty() || std::ranges::count(where.only, row.name) > 0;
    };
    for (const instance& row : mine) {
      if (row.family == kind_.name && wanted(row)) add(row);
    }
    for (const instance& row : kind_.rows()) {
      if (wanted(row) && std::ranges::count(mine, row.name, &instance::name) == 0) add(row);
    }
    std::ranges::sort(fitting_, [](const auto& a, const auto& b) {
      if (a.first.predicted_seconds != b.first.predicted_seconds) {
        return a.first.predicted_seconds < b.first.predicted_seconds;
      }
      return a.first.name < b.first.name;
    });
    for (auto& [row, entry] : fitting_) {
      candidates_.push_back(std::move(row));
      instances_.push_back(entry);
    }
    fitting_.clear();
    choose_reference();
  }

  void add(const instance& row) {
    if (!kind_.runs_on(row.config, device_) || !kind_.runs(row.config, demand_)) return;
    demand_facts facts;
    kind_.facts_of(demand_, facts);
    const bool portable = row.target == backend::cpu_generic;
    fitting_.push_back(
        {{.name = std::string(row.name),
          .predicted_seconds = predicted_seconds(kind_.estimate(row.config, facts, workers_),
                                                 row.target, device_, workers_),
          .resources = static_cast<double>(row.object_bytes),
          .fallback =
              kind_.is_generic(row.config) || (portable && device_.highest != backend::cpu_generic),
          .compile_seconds = static_cast<double>(row.compile_seconds)},
         &row});
  }

  /// Portable code that takes any problem, else what comes closest to it; of rows that are alike in
  /// that the one that rounds the fewest numbers on the way.
  void choose_reference() {
    std::pair best{-1, 0};
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      const int plainness = (instances_[i]->target == backend::cpu_generic ? 2 : 0) +
                            (kind_.is_generic(instances_[i]->config) ? 1 : 0);
      const std::pair merits{plainness, -rounded_numbers(*instances_[i])};
      if (merits > best) reference_ = i;
      best = std::max(best, merits);
    }
  }

  /// On the way to a result, as the judge of the definition has it.
  int rounded_numbers(const instance& row) const {
    const auto* known = reference::reference_of(problem_.op->name);
    const bool told = known != nullptr && known->rounded_numbers != nullptr;
    return told ? known->rounded_numbers(row.config) : 1;
  }

  std::size_t scratch() const noexcept { return results_.size(); }

  void find_results() {
    results_.clear();
    const std::vector<tensor_view> tensors = inputs_->tensors(0);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].present() || !problem_.op->form->tensors[i].is_output()) continue;
      results_.push_back({i, tensors[i]});
    }
  }

  /// The tensors of a round where the rows run.
  std::vector<tensor_view> tensors_of_round(std::size_t round) const {
    std::vector<tensor_view> tensors = inputs_->tensors(round);
    if (device_.kind != device_kind::cpu) {
      for (tensor_view& view : tensors) view = place_->brought(view);
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
      tensors[results_[i].tensor] = results_[i].at(place_->data(i), device_.id());
    }
    return tensors;
  }

  status lower(const std::vector<tensor_view>& tensors, lowered_args& lowered) const {
    bound_call call{
        .op = problem_.op, .tensors = tensors.data(), .options = problem_.options.data()};
    device_id device;
    return lower_call(call, *problem_.op->how, lowered.data(), &device);
  }

  /// Launches the prepared row on the inputs of a round.
  status launch(std::size_t round) const {
    lowered_args lowered(*problem_.op);
    if (status done = lower(tensors_of_round(round), lowered); !done) return done;
    if (result_bytes() == 0) return {};
    const launch_context where{.threads = workers_,
                               .workspace = place_->data(scratch()),
                               .workspace_bytes = scratch_bytes_,
                               .stream = place_->stream()};
    return row_->launch(lowered.data(), where);
  }

  /// The tensors of round 0 in host memory, as the row left them.
  std::vector<tensor_view> computed() const {
    std::vector<tensor_view> tensors = inputs_->tensors(0);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      tensors[results_[i].tensor] = results_[i].at(place_->bytes(i).data());
    }
    return tensors;
  }

  /// Both rows may be as far from the truth as tests let them, in opposite directions. What is
  /// rounded on the way is off by a share of terms that may cancel in a row of elements; nothing
  /// here knows them but the tensor's largest element.
  std::string difference(std::span<const std::byte> expected) const {
    if (expected.empty()) return {};
    // Those of the results among them.
    const int roundings = rounded_numbers(*row_) + rounded_numbers(*instances_[reference_]) + 2;
    const bool by_terms = roundings > 4;
    const std::vector<tensor_view> tensors = computed();
    const dtype operands = reference::operand_type(*problem_.op, problem_.tensors);
    std::size_t begin = 0;
    for (const result_tensor& output : results_) {
      const tensor_view ours = tensors[output.tensor];
      const tensor_view theirs = output.at(const_cast<std::byte*>(expected.data()) + begin);
      begin += output.bytes();
      const std::string_view name = name_of(output);
      const support::error_scale named = support::scale_of(name);
      const bool is_row = named == support::error_scale::row;
      const support::comparison compared = support::judged(
          compare_tensors(ours, theirs, by_terms && is_row ? support::error_scale::tensor : named),
          0, support::floor_of(name, operands) * roundings / 2);
      if (!compared.passed) {
        return support::sentence_of(compared, name, output.shape.shape());
      }
    }
    return {};
  }

  const family& kind_;
  owned_problem problem_;
  demand demand_;
  std::string text_;
  device_facts device_;
  int workers_;
  std::unique_ptr<measuring_place> place_;
  problem_key key_;
  std::vector<result_tensor> results_;
  std::vector<std::pair<candidate, const instance*>> fitting_;
  std::vector<candidate> candidates_;
  std::vector<const instance*> instances_;
  std::size_t reference_ = 0;
  const instance* row_ = nullptr;
  std::unique_ptr<bench::workload> inputs_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

result<std::unique_ptr<tunable_problem>> open_problem(std::string_view text,
                                                      const conditions& where) {
  const family* kind = nullptr;
  const result<owned_problem> problem = parse_problem(text, kind);
  if (!problem) return problem.failure();
  return declared_problem::open(*kind, *problem, where);
}

}  // namespace tessera::tuner
