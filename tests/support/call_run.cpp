#include "call_run.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../reference/operations.hpp"

namespace tessera::support {

status call_here(const family& kind, const problem_view& call, const context& where) {
  return run_here(call, where, [&](const tensor_view* tensors, const context& there) {
    return call_operation(kind, *call.op, tensors, call.options, there);
  });
}

std::vector<tested_operation> tested_operations() {
  std::vector<tested_operation> all;
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) all.push_back({kind, &op});
  }
  return all;
}

std::string why_not_here(const family& kind) {
  const bool on_host = kind_here() == device_kind::cpu;
  const bool has_rows = std::ranges::any_of(
      kind.rows(), [&](const instance& row) { return is_cpu(row.target) == on_host; });
  if (has_rows) return {};
  return std::string(kind.name) + " has no rows for " + (on_host ? "the CPU" : "CUDA devices");
}

std::vector<tested_row> tested_rows() {
  std::vector<tested_row> all;
  for (const family* kind : families()) {
    for (const instance& row : kind->rows()) {
      if (is_cpu(row.target) == (kind_here() == device_kind::cpu)) all.push_back({kind, &row});
    }
  }
  return all;
}

std::unique_ptr<call_data> call_for(const tested_row& row, const operation& op,
                                    random_source& random, call_wishes wishes,
                                    memory_wishes memory) {
  wishes.kind = row.kind;
  wishes.row = row.row;
  const std::optional<owned_problem> problem = drawn_problem(op, random, wishes);
  if (!problem) return nullptr;
  problem_view unaligned = problem->view();
  unaligned.unaligned = true;
  memory.aligned = !runs(*row.kind, *row.row, unaligned);
  auto data = std::make_unique<call_data>(*problem, random, memory);
  return data->refusal() && runs(*row.kind, *row.row, problem_here(data->problem()))
             ? std::move(data)
             : nullptr;
}

namespace {

/// What a row was compiled for of the operation's dims, 0: any extent.
std::vector<std::int64_t> extents_of(const operation& op, const instance& row) {
  std::vector<std::int64_t> extents(op.form->dims.size());
  const reference::operation_reference* const known = reference::reference_of(op.name);
  if (known == nullptr || known->row_extent == nullptr) return extents;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i] = std::max<std::int64_t>(0, known->row_extent(row.config, op.form->dims[i].symbol));
  }
  return extents;
}

/// What calls that a row runs are like.
struct calls_of_row {
  std::vector<std::int64_t> extents{};
  bool aligned = false;  ///< rows of tensors begin at multiples of 16 bytes
};

/// Those of each row here that runs calls of the operation; none if some row takes any.
std::vector<calls_of_row> calls_here(const tested_operation& tested) {
  std::vector<calls_of_row> all;
  for (const bool fixed : {false, true}) {
    for (const instance& row : tested.kind->rows()) {
      const std::vector<std::int64_t> extents = extents_of(*tested.op, row);
      const bool has_some = std::ranges::any_of(extents, [](std::int64_t x) { return x > 0; });
      if (!runs_here(row.target) || has_some != fixed) continue;
      random_source random(3);
      const call_wishes wishes{.density = 0.0, .attempts = 60, .kind = tested.kind, .row = &row};
      const std::optional<owned_problem> problem = drawn_problem(*tested.op, random, wishes);
      if (!problem) continue;
      if (!fixed) return {};
      problem_view unaligned = problem->view();
      unaligned.unaligned = true;
      all.push_back({extents, !runs(*tested.kind, row, unaligned)});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<call_data> call_here_for(const tested_operation& tested, random_source& random,
                                         call_wishes wishes, memory_wishes memory) {
  static std::map<const operation*, std::vector<calls_of_row>> known;
  const auto [at, is_new] = known.try_emplace(tested.op);
  if (is_new) at->second = calls_here(tested);
  if (!at->second.empty()) {
    const calls_of_row& like = random.pick(std::span(std::as_const(at->second)));
    for (std::size_t i = 0; i < like.extents.size(); ++i) {
      if (like.extents[i] > 0 && !wishes.extents[i]) wishes.extents[i] = like.extents[i];
    }
    memory.aligned = memory.aligned || like.aligned;
  }
  return drawn_call(*tested.op, random, wishes, memory);
}

namespace {

/// The row that runs the call there; null if none does.
const instance* row_of(const family& kind, const call_data& data, const context& where) {
  const result<operation_plan> plan =
      plan_operation(kind, problem_here(data.problem()), context_here(where));
  return plan ? plan->choice().instance : nullptr;
}

/// Whether it promises the same bits in every run.
bool repeats_its_bits(const instance* row) {
  return row == nullptr || row->properties.deterministic == determinism::same_bits;
}

/// What is wrong with what it computed.
std::string complaints_of(const call_expectation& expectation, const call_data& data,
                          const instance* row) {
  const auto* known = reference::reference_of(data.problem().op->name);
  const bool told = row != nullptr && known != nullptr && known->rounded_numbers != nullptr;
  return expectation.complaints(data.tensors(), told ? known->rounded_numbers(row->config) : 1);
}

}  // namespace

std::string complaints_of_call(const family& kind, call_data& data,
                               const call_expectation& expectation, const context& where,
                               std::vector<std::vector<std::byte>>& first) {
  data.reset();
  const status done = call_here(kind, data.problem(), where);
  if (!done) return "refused: " + done.message();
  std::string text;
  if (first.empty()) {
    text = complaints_of(expectation, data, row_of(kind, data, where));
    first = data.output_bytes();
  }
  if (!data.intact()) text += "bytes outside the outputs were written\n";
  if (data.output_bytes() != first) {
    const instance* row = row_of(kind, data, where);
    text +=
        repeats_its_bits(row) ? "other bits than before\n" : complaints_of(expectation, data, row);
  }
  return text;
}

std::string complaints_of_plan(const family& kind, call_data& data,
                               const call_expectation& expectation, const context& where) {
  const context there = context_here(where);
  random_source random(7);
  const call_data other(owned_problem(data.problem()), random, data.wishes());
  if (!other.refusal()) return "other values: " + other.refusal().message();
  problem_view problem = other.problem();
  problem.unaligned = problem_here(data.problem()).unaligned;
  const result<operation_plan> plan = plan_operation(kind, problem, there);
  if (!plan) return "no plan: " + plan.message();
  data.reset();
  const status done =
      run_here(data.problem(), where, [&](const tensor_view* tensors, const context& place) {
        return place.stream != nullptr ? plan->run(tensors, place.stream) : plan->run(tensors);
      });
  if (!done) return "planned run: " + done.message();
  std::string text = complaints_of(expectation, data, plan->choice().instance);
  if (!data.intact()) text += "planned run: bytes outside the outputs were written\n";
  const result<explanation> why = explain_operation(kind, problem, there);
  if (!why) return text + "no explanation: " + why.message();
  if (why->row != plan->choice().row()) {
    text += "explained row: " + why->row + ", planned: " + std::string(plan->choice().row());
  }
  return text;
}

}  // namespace tessera::support
