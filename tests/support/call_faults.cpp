#include "call_faults.hpp"

#include <limits>

#include <tessera/prim/common/content_rules.hpp>

#include "../reference/operations.hpp"

namespace tessera::support {

bool has_content_rules(const operation& op) {
  for (int i = 0; i < op.tensor_count; ++i) {
    const std::size_t tensor = op.order[static_cast<std::size_t>(i)];
    if (op.form->tensors[tensor].holds != tensor_contents::values) return true;
  }
  return false;
}

std::vector<std::uint64_t> faults_of(const bound_call& call) {
  std::vector<std::uint64_t> faults(call.form().tensors.size());
  prim::for_each_content_rule(call, [&](std::size_t tensor, const prim::content_rule& rule) {
    for (std::int64_t entry = 0; entry < prim::entries_of(rule); ++entry) {
      faults[tensor] += prim::is_fault(rule, entry) ? 1u : 0u;
    }
  });
  return faults;
}

namespace {

/// A number at the border of what is legal, far out, or that of another entry.
double drawn_number(const tensor_form& form, const bound_call& call, const tensor_view& view,
                    random_source& random) {
  using limits = std::numeric_limits<std::int32_t>;
  if (form.holds == tensor_contents::positive) {
    return random.pick<double>({0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(), 1.0});
  }
  const std::int64_t limit =
      form.counts >= 0 ? call.dims[static_cast<std::size_t>(form.counts)] : 8;
  std::int64_t number = random.pick<std::int64_t>(
      {-2, -1, 0, 1, limit - 1, limit, limit + 1, limits::max(), limits::min()});
  if (random.chance(0.4)) {
    std::int64_t wanted = random.between(0, view.elements() - 1);
    reference::for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      if (wanted-- == 0) number = static_cast<std::int64_t>(reference::read(view, offset));
    });
  }
  return static_cast<double>(number);
}

}  // namespace

void change_contents(const call_data& data, random_source& random) {
  const bound_call& call = data.call();
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
    const tensor_form& form = call.form().tensors[i];
    const bool decides =
        form.holds == tensor_contents::positive || reference::decides_what_is_read(call.form(), i);
    if (!call.has(i) || !decides || random.chance(0.5)) continue;
    const tensor_view& view = data.tensors()[i];
    if (view.elements() == 0) continue;
    const std::int64_t entry = random.between(0, view.elements() - 1);
    const double number = drawn_number(form, call, view, random);
    reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      if (flat == entry) store(view, offset, number);
    });
  }
}

}  // namespace tessera::support
