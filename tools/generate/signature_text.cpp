#include "signature_text.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/option_text.hpp>

namespace tessera::generate {
namespace {

std::string axis_text(const axis_form& axis, const signature& form) {
  if (axis.dim < 0) return std::to_string(axis.plus);
  std::string text = axis.factor != 1 ? std::to_string(axis.factor) : "";
  text += form.dims[static_cast<std::size_t>(axis.dim)].symbol;
  if (axis.times >= 0) {
    text += fmt::format("*{}", form.dims[static_cast<std::size_t>(axis.times)].symbol);
  }
  if (axis.plus != 0) text += fmt::format("+{}", axis.plus);
  const bool at_least =
      axis.rule == extent_rule::at_least || axis.rule == extent_rule::one_or_at_least;
  const bool or_one =
      axis.rule == extent_rule::one_or_exact || axis.rule == extent_rule::one_or_at_least;
  return fmt::format("{}{}{}", at_least ? ">=" : "", text, or_one ? "|1" : "");
}

/// Some tensor of the signature has the dim.
bool is_used(const signature& form, std::size_t dim) {
  const auto number = static_cast<int>(dim);
  return std::ranges::any_of(form.shapes.different, [&](const shape_form& shape) {
    return std::ranges::any_of(
        std::span(shape.axes).first(static_cast<std::size_t>(std::max<int>(shape.rank, 0))),
        [&](const axis_form& axis) { return axis.dim == number || axis.times == number; });
  });
}

}  // namespace

std::vector<operation_group> groups_of(const family& family) {
  std::vector<operation_group> all;
  for (const operation& op : family.operations) {
    const auto known = std::ranges::find(all, op.form, &operation_group::form);
    if (known == all.end()) {
      all.push_back({op.form, {&op}});
    } else {
      known->operations.push_back(&op);
    }
  }
  return all;
}

std::string axes_text(const signature& form) {
  std::vector<std::string> dims;
  for (std::size_t i = 0; i < form.dims.size(); ++i) {
    const dim& axis = form.dims[i];
    if (!is_used(form, i)) continue;
    dims.push_back(fmt::format("{} {}", axis.symbol, axis.label));
    if (!axis.owner.empty()) dims.back() += fmt::format(" of {}", axis.owner.view());
  }
  return fmt::format("{}", fmt::join(dims, "; "));
}

std::string shapes_text(const signature& form, std::size_t tensor) {
  std::vector<std::string> shapes, named;
  for (std::size_t layout = 0; layout < form.layouts.size(); ++layout) {
    const shape_form& shape = form.shape(tensor, static_cast<int>(layout));
    if (shape.rank < 0) continue;
    std::vector<std::string> axes;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis) {
      axes.push_back(axis_text(shape.axes[axis], form));
    }
    shapes.push_back(fmt::format("[{}]", fmt::join(axes, ",")));
    named.push_back(fmt::format("{} {}", form.layouts[layout], shapes.back()));
  }
  const bool same = shapes.size() == form.layouts.size() &&
                    std::ranges::all_of(
                        shapes, [&](const std::string& shape) { return shape == shapes.front(); });
  return same ? shapes.front() : fmt::format("{}", fmt::join(named, ", "));
}

std::string types_text(const signature& form, std::size_t tensor) {
  const tensor_form& shown = form.tensors[tensor];
  std::vector<std::string> types;
  for (std::size_t number = 1; number < dtype_names.size(); ++number) {
    const auto type = static_cast<dtype>(number);
    if (shown.types.has(type)) types.emplace_back(name_of(type));
  }
  if (shown.like >= 0) {
    const auto like = static_cast<std::size_t>(shown.like);
    types.push_back(fmt::format("type of {}", form.tensors[like].name));
  }
  return fmt::format("{}", fmt::join(types, ", "));
}

std::string limit_text(const option_form& option) {
  switch (option.limit) {
    case option_limit::at_least:
      return fmt::format("at least {}", option.least);
    case option_limit::finite_float:
      return "finite as a float";
    case option_limit::positive_float:
      return "above 0";
    case option_limit::probability:
      return "at least 0, below 1";
    case option_limit::none:
      break;
  }
  return option.type == option_type::natural ? "any" : "any number";
}

std::string default_value(const signature& form, const option_form& option) {
  if (option.required || !checks::value_of(option, form.default_options).set) return {};
  return text::option_text(option, form.default_options);
}

std::string absence_text(const option_form& option) {
  if (option.required) return "required";
  return option.unset.empty() ? "optional" : fmt::format("optional, else {}", option.unset.view());
}

}  // namespace tessera::generate
