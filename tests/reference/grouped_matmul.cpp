// What tests need to know of grouped matrix products.
#include "grouped_matmul.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/families/grouped_matmul/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using grouped_matmul_table::tensor;

const grouped_matmul_args& args_of(const bound_call& call) {
  return *reinterpret_cast<const grouped_matmul_args*>(call.tensors);
}

/// An output as its tensor stores it, if sums are floats; the error of an element is relative to
/// the largest root of squared terms in its row.
template <class Number>
expected_tensor expected_from(const bound_call& call, std::size_t index,
                              const std::vector<summed<Number>>& sums) {
  const tensor_view& view = call.tensors[index];
  const auto width = static_cast<std::size_t>(
      std::max<std::int64_t>(view.extent[static_cast<std::size_t>(view.rank - 1)], 1));
  expected_tensor expected{.tensor = index, .values = {}};
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const Number value = sums[at].value;
    expected.values.push_back(
        std::is_same_v<Number, float>
            ? static_cast<double>(rounded_to(view.type, static_cast<float>(value)))
            : static_cast<double>(value));
    if (at % width == 0) expected.sizes.push_back(0);
    expected.sizes.back() = std::max(expected.sizes.back(), std::sqrt(sums[at].squares));
  }
  return expected;
}

template <class Number>
expected_tensors forward(const bound_call& call) {
  const grouped_matmul_evaluation<Number> evaluation(args_of(call),
                                                     call.options_as<grouped_matmul_options>());
  return {expected_from(call, tensor("out"), evaluation.out())};
}

template <class Number>
expected_tensors backward(const bound_call& call) {
  using evaluation_type = grouped_matmul_evaluation<Number>;
  const evaluation_type evaluation(args_of(call), call.options_as<grouped_matmul_options>());
  expected_tensors all;
  const auto add = [&](std::int8_t output, auto(evaluation_type::*sums)() const) {
    const auto index = static_cast<std::size_t>(output);
    if (call.has(index)) all.push_back(expected_from(call, index, (evaluation.*sums)()));
  };
  add(tensor("d_lhs"), &evaluation_type::d_lhs);
  add(tensor("d_rhs"), &evaluation_type::d_rhs);
  add(tensor("d_rhs_scale"), &evaluation_type::d_rhs_scale);
  add(tensor("d_rhs_bias"), &evaluation_type::d_rhs_bias);
  add(tensor("d_out_init"), &evaluation_type::d_out_init);
  return all;
}

/// Rows of some local group, and matrices of groups that have rows.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const std::vector<group_rows> rows =
      group_rows_of(args_of(call), call.options_as<grouped_matmul_options>());
  const auto mark = [&](std::int8_t input, const auto& is_read) {
    const auto index = static_cast<std::size_t>(input);
    const tensor_view& view = call.tensors[index];
    if (!call.has(index)) return;
    seen[index] = seen_elements(view);
    const std::int64_t inside = view.elements() / std::max<std::int64_t>(view.extent[0], 1);
    for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      if (is_read(flat / inside)) seen[index].mark(offset);
    });
  };
  const auto row_is_read = [&](std::int64_t row) {
    return std::ranges::any_of(
        rows, [&](const group_rows& range) { return row >= range.begin && row < range.end; });
  };
  const auto matrix_is_read = [&](std::int64_t group) {
    const group_rows& range = rows[static_cast<std::size_t>(group)];
    return range.begin < range.end;
  };
  const bool copies = call.has(static_cast<std::size_t>(tensor("d_out_init")));
  mark(tensor("lhs"), row_is_read);
  mark(tensor("d_out"), [&](std::int64_t row) { return copies || row_is_read(row); });
  mark(tensor("rhs"), matrix_is_read);
  mark(tensor("rhs_scale"), matrix_is_read);
  mark(tensor("rhs_bias"), matrix_is_read);
  mark(tensor("out_init"), [](std::int64_t) { return true; });
}

/// Sizes of which some are 0; together as many rows as there are, fewer or more.
bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  if (index != static_cast<std::size_t>(tensor("group_sizes"))) return false;
  const tensor_view& sizes = call.tensors[index];
  const std::int64_t rows = call.tensors[tensor("lhs")].extent[0];
  const double share = random.pick({0.5, 1.0, 1.0, 1.0, 1.5});
  const std::int64_t each = rows / std::max<std::int64_t>(sizes.extent[0], 1) + 1;
  for_each_element(sizes, [&](std::int64_t, std::int64_t offset) {
    const double size = share * static_cast<double>(random.below(2 * each + 1));
    const double number = random.chance(0.2) ? 0 : random.chance(0.03) ? INT32_MAX : size;
    store(sizes, offset, random.chance(0.02) ? -3 : number);
  });
  return true;
}

/// A multiplication and an addition of every row with every weight of its group, for each result.
void count(const bound_call& call, call_work& work) {
  const grouped_matmul_args& args = args_of(call);
  const auto weights = static_cast<double>(args.rhs.extent[1] * args.rhs.extent[2]);
  const double products = args.d_rhs.present() || args.d_rhs_scale.present() ? 2 : 1;
  work.flops = 2 * products * static_cast<double>(args.lhs.extent[0]) * weights;
}

constexpr std::array table{operation_reference{.op = "grouped_matmul",
                                               .exact = &forward<double>,
                                               .as_stored = &forward<float>,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .count = &count},
                           operation_reference{.op = "grouped_matmul_backward",
                                               .exact = &backward<double>,
                                               .as_stored = &backward<float>,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .count = &count}};

}  // namespace

std::span<const operation_reference> grouped_matmul_references() noexcept {
  return table;
}

}  // namespace tessera::reference
