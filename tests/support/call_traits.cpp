// What calls may have, and the problems of lines of text.
#include <algorithm>

#include <tessera/spec/lower.hpp>

#include "call_problem.hpp"

namespace tessera::support {

bool is_allowed(const bound_call& call, std::size_t tensor) {
  return std::ranges::all_of(call.form().rules, [&](const tensor_rule& rule) {
    return static_cast<std::size_t>(rule.tensor) != tensor || rule.holds(call);
  });
}

bool runs(const family& kind, const instance& row, const problem_view& problem) {
  demand asked;
  problem.op->form->demand_of(problem, asked);
  return kind.runs(row.config, asked);
}

std::vector<call_trait> traits_of(const operation& op) {
  std::vector<call_trait> traits;
  for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
    if (((op.taken & ~op.required) >> i & 1u) != 0) traits.push_back({false, i});
  }
  for (std::size_t i = 0; i < op.form->options.size(); ++i) {
    if ((op.excluded >> i & 1u) == 0) traits.push_back({true, i});
  }
  return traits;
}

std::string_view name_of(const operation& op, const call_trait& trait) {
  return trait.is_option ? op.form->options[trait.index].name : op.form->tensors[trait.index].name;
}

namespace {

/// A tensor that may be given: of the first type it may have, with the extents of its dims.
void add_tensor(bound_call& call, owned_problem& problem, std::size_t tensor) {
  const tensor_form& form = call.form().tensors[tensor];
  const shape_form& shape = call.form().shape(tensor, call.layout);
  if ((call.op->taken >> tensor & 1u) == 0 || call.has(tensor) || shape.rank < 0 ||
      !is_allowed(call, tensor)) {
    return;
  }
  tensor_view& view = problem.tensors[tensor];
  view.rank = shape.rank;
  for (std::size_t at = 0; at < static_cast<std::size_t>(shape.rank); ++at) {
    const axis_form& axis = shape.axes[at];
    const auto dim = static_cast<std::size_t>(std::max<int>(axis.dim, 0));
    const bool known = axis.dim < 0 || call.owners[dim] >= 0 || checks::follows(call, dim);
    view.extent[at] = known ? extent_of(call, axis) : axis.plus + 2;
  }
  for (int number = 1; number < static_cast<int>(dtype_names.size()); ++number) {
    const auto type = static_cast<dtype>(number);
    if (!view.present() && form.types.has(type)) view.type = type;
  }
  if (!view.present()) view.type = problem.tensors[static_cast<std::size_t>(form.like)].type;
  call.present |= 1u << tensor;
}

}  // namespace

result<owned_problem> whole_problem(const operation& op, std::string_view fields, bool everything) {
  result<owned_problem> parsed = parse_problem(op, fields);
  if (!parsed) return parsed;
  owned_problem problem = *parsed;
  bound_call call{.op = &op, .tensors = problem.tensors.data(), .options = problem.options.data()};
  status failure;
  if (!checks::is_problem(call, problem.tensors.data(), failure)) return failure;
  for (std::size_t i = 0; everything && i < problem.tensors.size(); ++i) {
    add_tensor(call, problem, i);
  }
  return problem;
}

}  // namespace tessera::support
