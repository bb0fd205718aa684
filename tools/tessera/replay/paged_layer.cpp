#include "paged_layer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/runtime/operation.hpp>

#include "../failure.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/random.hpp"

namespace tessera::tool {
namespace {

/// A row-major tensor: `first`, then the extents behind it.
tensor_view view_of(const void* data, dtype type, std::int64_t first,
                    const std::vector<std::int64_t>& behind) {
  tensor_view view = shaped(type, {first});
  for (const std::int64_t extent : behind) {
    view.extent[static_cast<std::size_t>(view.rank++)] = extent;
  }
  view.stride = contiguous_strides(view.extent, view.rank);
  view.data = const_cast<void*>(data);
  return view;
}

}  // namespace

paged_layer::paged_layer(paged_form form, dtype type, dtype pool_type, const replay::trace& served,
                         run_place& place, const execution_flags& flags, std::string subject)
    : form_(std::move(form)),
      type_(type),
      pool_type_(pool_type),
      served_(served),
      place_(place),
      flags_(flags),
      subject_(std::move(subject)),
      operation_(operation_named(form_.operation)),
      problem_(value_of(parse_problem(*operation_.op, form_.options), subject_)) {
  add_inputs(form_.queries, queries_);
  add_inputs(form_.fresh, fresh_);
  const auto tokens = static_cast<std::size_t>(served.limits.tokens);
  out_ = place_.block(tokens * static_cast<std::size_t>(form_.out.elements()) * size_of(type_));
  const std::int64_t slots = served.limits.pages * served.limits.page_size;
  for (std::size_t n = 0; n < form_.pools.size(); ++n) {
    const auto elements = static_cast<std::size_t>(slots * form_.pools[n].columns);
    pools_.push_back(place_.block(elements * size_of(this->pool_type(n))));
  }
  if (!form_.sinks.empty()) make_sinks();
}

void paged_layer::add_inputs(const std::vector<token_tensor>& tensors, std::vector<input>& inputs) {
  for (const token_tensor& tensor : tensors) {
    // Another seed for each tensor of the layer.
    token_rows rows(tensor.elements(), type_, queries_.size() + 16 * fresh_.size() + 1);
    const auto bytes = static_cast<std::size_t>(served_.limits.tokens) * rows.bytes();
    inputs.push_back({tensor, std::move(rows), place_.block(bytes)});
  }
}

void paged_layer::make_sinks() {
  const std::int64_t elements = form_.sinks[0] * form_.sinks[1];
  sinks_ = place_.block(static_cast<std::size_t>(elements) * sizeof(float));
  const tensor_view sinks = view_of(sinks_.data(), dtype::f32, elements, {});
  support::random_source random(0);
  for (std::int64_t n = 0; n < elements; ++n) {
    reference::store(sinks, n, static_cast<double>(random.bell()));
  }
  place_.send(sinks_);
}

std::size_t paged_layer::pool_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const std::span<std::byte> pool : pools_) bytes += pool.size();
  return bytes;
}

std::vector<tensor_view> paged_layer::call(const step_lists& lists, std::int64_t tokens) const {
  const auto forms = op().form->tensors;
  std::vector<tensor_view> tensors(forms.size());
  const auto put = [&](const std::string& name, const tensor_view& tensor) {
    const auto known = std::ranges::find(forms, name, &tensor_form::name);
    if (known != forms.end()) tensors[static_cast<std::size_t>(known - forms.begin())] = tensor;
  };
  for (const std::vector<input>* inputs : {&queries_, &fresh_}) {
    for (const input& given : *inputs) {
      put(given.form.name, view_of(given.memory.data(), type_, tokens, given.form.shape));
    }
  }
  put(form_.out.name, view_of(out_.data(), type_, tokens, form_.out.shape));
  for (std::size_t n = 0; n < pools_.size(); ++n) {
    put(form_.pools[n].name,
        view_of(pools_[n].data(), pool_type(n), served_.limits.pages, form_.pools[n].page));
  }
  if (!form_.sinks.empty()) {
    put("sinks", view_of(sinks_.data(), dtype::f32, form_.sinks[0], {form_.sinks[1]}));
  }
  put(form_.table, lists.table());
  put(form_.lengths, lists.lengths());
  put("cu_seqlens_q", lists.starts());
  put(form_.count, lists.counts(form_.counts));
  if (lists.shape().groups > 0) {
    put("cu_prefix_seqs", lists.group_starts());
    put("prefix_pages", lists.group_pages());
  }
  return tensors;
}

std::vector<tensor_view> paged_layer::call_there(const step_lists& lists) const {
  std::vector<tensor_view> tensors = call(lists, lists.shape().tokens);
  for (tensor_view& tensor : tensors) tensor = place_.there(tensor);
  return tensors;
}

status paged_layer::plan_step(const step_lists& lists) const {
  const std::vector<tensor_view> tensors = call_there(lists);
  const result<operation_plan> planned = plan_operation(
      *operation_.kind, problem_of(op(), tensors.data(), options(), place_.device()),
      {.threads = flags_.threads, .device = place_.device(), .stream = place_.stream()});
  return planned ? status{} : planned.failure();
}

void paged_layer::load(const replay::step& step) {
  std::size_t row = 0;
  for (const replay::token_range& range : step.ranges) {
    const replay::request& asked = served_.requests[range.request];
    for (std::int64_t position = range.begin; position < range.keys(); ++position, ++row) {
      const std::uint64_t identity = identity_of(asked, range.request, position);
      for (const std::vector<input>* inputs : {&queries_, &fresh_}) {
        for (const input& of : *inputs) {
          std::memcpy(of.memory.data() + row * of.rows.bytes(), of.rows.row(identity),
                      of.rows.bytes());
        }
      }
    }
  }
  for (const std::vector<input>* inputs : {&queries_, &fresh_}) {
    for (const input& of : *inputs) place_.send(of.memory.first(row * of.rows.bytes()));
  }
}

std::size_t paged_layer::number_of_row(const selection& choice) {
  auto row = std::ranges::find(rows_, choice.row(), &row_use::row);
  if (row == rows_.end()) {
    rows_.push_back(
        {.row = std::string(choice.row()), .tier = choice.tier, .reason = choice.reason});
    row = rows_.end() - 1;
  }
  return static_cast<std::size_t>(row - rows_.begin());
}

paged_layer::chosen_plan& paged_layer::plan_of(const step_lists& lists) {
  const auto known = plans_.find(lists.shape());
  if (known != plans_.end()) return known->second;
  const std::vector<tensor_view> tensors = call_there(lists);
  operation_plan ready =
      plan_for(*operation_.kind, problem_of(op(), tensors.data(), options(), place_.device()),
               flags_, place_.device(), place_.stream(), subject_);
  const std::size_t row = number_of_row(ready.choice());
  return plans_.emplace(lists.shape(), chosen_plan{std::move(ready), row}).first->second;
}

layer_call_cost paged_layer::run(const step_lists& lists, const replay::step& step) {
  chosen_plan& chosen = plan_of(lists);
  const std::vector<tensor_view> tensors = call_there(lists);
  layer_call_cost cost;
  cost.seconds = place_.seconds_of([&] { return chosen.plan.run(tensors.data()); }, subject_);
  const std::vector<tensor_view> counted = call(lists, step.tokens);
  cost.work = reference::work_of(
      problem_view{.op = &op(), .tensors = counted.data(), .options = options()});
  row_use& row = rows_[chosen.row];
  ++row.steps;
  row.seconds += cost.seconds;
  return cost;
}

void paged_layer::fetch(const replay::step& step, bool with_pools) {
  const auto width = static_cast<std::size_t>(form_.out.elements()) * size_of(type_);
  place_.fetch(out_.first(static_cast<std::size_t>(step.tokens) * width));
  for (const std::span<std::byte> pool : pools_) {
    if (with_pools) place_.fetch(pool);
  }
}

std::int64_t paged_layer::wild_elements(const replay::step& step) const {
  const std::int64_t elements = step.tokens * form_.out.elements();
  // All bits of the exponent are set in NaN and infinities.
  const auto count = [&]<class Bits>(Bits exponent) {
    const auto* const bits = reinterpret_cast<const Bits*>(out_.data());
    return std::count_if(bits, bits + elements,
                         [&](Bits element) { return (element & exponent) == exponent; });
  };
  if (type_ == dtype::f32) return count(std::uint32_t{0x7f800000});
  return count(static_cast<std::uint16_t>(type_ == dtype::f16 ? 0x7c00 : 0x7f80));
}

}  // namespace tessera::tool
