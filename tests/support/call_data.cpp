#include "call_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "../reference/operations.hpp"
#include "call_contents.hpp"
#include "random_layout.hpp"

namespace tessera::support {

namespace {

/// A value of a type that has no arithmetic here, or is whole.
double whole_number(dtype type, random_source& random) {
  switch (type) {
    case dtype::u8:
    case dtype::u32:
      return static_cast<double>(random.pick({0, 1, 1, 2, 255}));
    case dtype::i8:
      return static_cast<double>(random.between(-128, 127));
    default:
      return static_cast<double>(random.between(-2, 7));
  }
}

void fill_with_bits(const tensor_view& view, random_source& random) {
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    static_cast<std::byte*>(view.data)[offset] = static_cast<std::byte>(random.bits() & 0xFFu);
  });
}

void fill_with_numbers(const tensor_view& view, random_source& random, double scale, double shift) {
  const bool floating = reference::is_floating(view.type);
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const double bell = static_cast<double>(random.bell()) * scale + shift;
    store(view, offset, floating ? bell : whole_number(view.type, random));
  });
}

void fill_with_positive(const tensor_view& view, random_source& random) {
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    store(view, offset, random.pick({0.5, 1.0, 0.03, 2.7}));
  });
}

/// Overwrites what nobody looks at. Minus infinity may be what hides it, and stays.
void poison_unseen(const tensor_view& view, const reference::seen_elements& seen,
                   random_source& random) {
  reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    if (seen[offset] || reference::read(view, offset) == -HUGE_VAL) return;
    store(view, offset, random.chance(0.5) ? std::nan("") : HUGE_VAL);
  });
}

}  // namespace

call_data::call_data(owned_problem problem, random_source& random, const memory_wishes& wishes)
    : problem_(std::move(problem)), wishes_(wishes) {
  call_ = {
      .op = problem_.op, .tensors = problem_.tensors.data(), .options = problem_.options.data()};
  if (!checks::are_shapes(call_, 0, refusal_)) return;
  const signature& form = call_.form();
  const auto is_late = [&](std::size_t tensor) {
    return (form.tensors[tensor].late_layouts >> call_.layout & 1) != 0;
  };
  const std::size_t count = form.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    const bool checked = reference::decides_what_is_read(form, i) || is_positive(i);
    if (call_.has(i) && !is_late(i) && checked) place(i, random);
    if (call_.has(i) && is_positive(i)) fill_with_positive(problem_.tensors[i], random);
  }
  fill_contents(call_, wishes.even ? nullptr : &random);
  status other;  // late extents, which are not known yet
  static_cast<void>(checks::are_contents(call_, other));
  for (std::size_t i = 0; i < count; ++i) {
    if (!call_.has(i) || memory_[i].present()) continue;
    if (is_late(i)) place_late(i, random);
    if (!place_in_shared(i, random)) place(i, random);
  }
  if (!checks::is_call(call_, nullptr, refusal_)) return;
  for (std::size_t i = 0; i < count; ++i) fill(i, random);
  if (wishes.poison) poison(random);
  remember();
}

bool call_data::is_positive(std::size_t tensor) const {
  return call_.form().tensors[tensor].holds == tensor_contents::positive;
}

bool call_data::is_written(std::size_t tensor) const {
  return (written_ >> tensor & 1u) != 0;
}

tensor_layout call_data::drawn_layout(std::size_t tensor, random_source& random) const {
  const tensor_form& form = call_.form().tensors[tensor];
  const tensor_view& view = problem_.tensors[tensor];
  const reference::operation_reference* const known = reference::reference_of(op().name);
  const bool tied = known != nullptr && known->has_tied_strides != nullptr &&
                    known->has_tied_strides(call_, tensor);
  if (wishes_.row_major || tied) return {};
  tensor_layout layout;
  if (random.chance(0.6)) {
    const bool residual = known != nullptr &&
                          std::ranges::find(known->residuals, form.name) != known->residuals.end();
    const bool distinct =
        residual || reference::decides_what_is_read(call_.form(), tensor) || form.is_output();
    layout = random_layout(random, view.rank, form.contiguous_rows, !distinct);
  }
  if (wishes_.aligned && form.aligned_rows) {
    layout.order = {0, 1, 2, 3, 4};
    align_rows(layout, view.rank, view.extent[static_cast<std::size_t>(view.rank - 1)],
               size_of(view.type));
  }
  return layout;
}

void call_data::place(std::size_t tensor, random_source& random) {
  tensor_view& view = problem_.tensors[tensor];
  memory_[tensor] = guarded_tensor(view.type, view.rank, view.extent, drawn_layout(tensor, random));
  view = memory_[tensor].view();
  if (call_.form().tensors[tensor].is_output()) written_ |= 1u << tensor;
}

void call_data::place_late(std::size_t tensor, random_source& random) {
  const shape_form& shape = call_.form().shape(tensor, call_.layout);
  for (std::size_t at = 0; at < static_cast<std::size_t>(shape.rank); ++at) {
    const axis_form& axis = shape.axes[at];
    if (axis.dim < 0) continue;
    const dim& of = call_.form().dims[static_cast<std::size_t>(axis.dim)];
    if (of.source != dim_source::contents) continue;
    std::int64_t& extent = problem_.tensors[tensor].extent[at];
    extent = extent_of(call_, axis);
    if (wishes_.even || axis.rule == extent_rule::exact) continue;
    if (axis.rule != extent_rule::one_or_exact) extent += random.pick({0, 0, 1, 9});
    if (axis.rule != extent_rule::at_least && random.chance(0.35)) extent = 1;
  }
}

/// An output in the memory of the tensor that it may share.
bool call_data::place_in_shared(std::size_t tensor, random_source& random) {
  const std::int8_t shares = call_.form().tensors[tensor].shares;
  if (shares < 0 || wishes_.even || random.chance(0.5)) return false;
  const auto owner = static_cast<std::size_t>(shares);
  const tensor_view& other = problem_.tensors[owner];
  tensor_view& view = problem_.tensors[tensor];
  status folded;
  if (!memory_[owner].present() || !text::same_shape(other, view) ||
      !checks::has_distinct_elements("", other, folded)) {
    return false;
  }
  view = other;
  written_ |= 1u << owner;
  return true;
}

void call_data::fill(std::size_t tensor, random_source& random) {
  const tensor_form& form = call_.form().tensors[tensor];
  const tensor_view& view = problem_.tensors[tensor];
  if (!memory_[tensor].present() || form.use == tensor_use::output) return;
  if (reference::decides_what_is_read(call_.form(), tensor) || is_positive(tensor)) return;
  const reference::operation_reference* const known = reference::reference_of(op().name);
  if (known != nullptr && known->fill != nullptr && known->fill(call_, tensor, random)) return;
  if (!reference::is_floating(view.type) && size_of(view.type) == 1 && view.type != dtype::u8) {
    return fill_with_bits(view, random);
  }
  // Large values in one place, so that exponents are large and sums are not.
  const bool first = (call_.op->required >> tensor & 1u) != 0 && tensor == call_.op->order[0];
  const double scale = first && random.chance(0.1) ? random.pick({8.0, 60.0}) : 1.0;
  fill_with_numbers(view, random, scale, first && random.chance(0.1) ? 30.0 : 0.0);
}

void call_data::poison(random_source& random) {
  std::array<reference::seen_elements, max_tensors> seen;
  const reference::operation_reference* const known = reference::reference_of(op().name);
  if (known != nullptr && known->mark_seen != nullptr) known->mark_seen(call_, seen);
  for (std::size_t i = 0; i < call_.form().tensors.size(); ++i) {
    const bool read = call_.has(i) && call_.form().tensors[i].use != tensor_use::output;
    const dtype type = problem_.tensors[i].type;
    const bool has_nan =
        reference::is_floating(type) || type == dtype::f8_e4m3 || type == dtype::f8_e5m2;
    if (!read || !has_nan) continue;
    poison_unseen(problem_.tensors[i], seen[i].known() ? seen[i] : seen_by_contents(call_, i),
                  random);
  }
}

void call_data::remember() {
  for (std::size_t i = 0; i < before_.size(); ++i) before_[i] = memory_[i].bytes();
}

void call_data::reset() {
  for (std::size_t i = 0; i < before_.size(); ++i) memory_[i].restore(before_[i]);
}

bool call_data::outputs_untouched() const {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (is_written(i) && memory_[i].bytes() != before_[i]) return false;
  }
  return true;
}

bool call_data::intact() const {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (!memory_[i].present()) continue;
    const bool same =
        is_written(i) ? memory_[i].margins_intact() : memory_[i].bytes() == before_[i];
    if (!same) return false;
  }
  return true;
}

std::vector<std::vector<std::byte>> call_data::output_bytes() const {
  std::vector<std::vector<std::byte>> all;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (is_written(i)) all.push_back(memory_[i].bytes());
  }
  return all;
}

bool call_data::has_output_elements() const {
  for (std::size_t i = 0; i < call_.form().tensors.size(); ++i) {
    const bool output = call_.has(i) && call_.form().tensors[i].is_output();
    if (output && problem_.tensors[i].elements() > 0) return true;
  }
  return false;
}

std::unique_ptr<call_data> drawn_call(const operation& op, random_source& random,
                                      const call_wishes& wishes, const memory_wishes& memory) {
  // Not every extent leaves room for numbers that are legal.
  for (int attempt = 0; attempt < 20; ++attempt) {
    const std::optional<owned_problem> problem = drawn_problem(op, random, wishes);
    if (!problem) return nullptr;
    auto data = std::make_unique<call_data>(*problem, random, memory);
    if (data->refusal()) return data;
  }
  return nullptr;
}

}  // namespace tessera::support
