// What tests need to know of grouped matrix products.
#include "grouped_matmul.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>

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

/// The sums of a result as its codes mean them: divided by their scales, and no further away than
/// the last code.
template <class Number>
std::vector<summed<Number>> scaled_for_codes(const tensor_view& out, const tensor_view& scales,
                                             std::vector<summed<Number>> sums) {
  if (size_of(out.type) != 1) return sums;
  const auto last = static_cast<std::size_t>(out.rank - 1);
  const Number most = out.type == dtype::i8        ? Number{127}
                      : out.type == dtype::f8_e5m2 ? Number{57344}
                                                   : Number{448};
  for (std::size_t flat = 0; flat < sums.size(); ++flat) {
    summed<Number>& sum = sums[flat];
    if (scales.present()) {
      const auto place = static_cast<std::int64_t>(flat);
      const std::int64_t line = place / out.extent[last];
      const std::int64_t row = line % out.extent[last - 1], block = place % out.extent[last] / 128;
      const auto scale = static_cast<Number>(
          read(scales, (scales.rank == 3 ? line / out.extent[last - 1] * scales.stride[0] : 0) +
                           (scales.extent[last - 1] == 1 ? 0 : row * scales.stride[last - 1]) +
                           (scales.extent[last] == 1 ? 0 : block)));
      sum = sum.times(Number{1} / scale);
    }
    const Number least = out.type == dtype::i8 ? Number{-128} : -most;
    if (std::isnan(sum.value) && out.type == dtype::i8) sum.value = 0;
    if (!std::isnan(sum.value)) sum.value = std::clamp(sum.value, least, most);
  }
  return sums;
}

/// A call of products of elements of 8 bits, but for their scales.
grouped_matmul_args unscaled(const scaled_matmul_args& args) {
  return {.lhs = args.lhs,
          .rhs = args.rhs,
          .group_sizes = args.group_sizes,
          .rhs_bias = args.rhs_bias,
          .out_init = args.out_init,
          .out = args.out,
          .multiplier = args.multiplier,
          .residual = args.residual};
}
grouped_matmul_options unscaled(const scaled_matmul_options& options) {
  return {.transpose_rhs = true,
          .group_offset = options.group_offset,
          .lhs_rows = options.lhs_rows,
          .activation = options.activation,
          .out_scale = options.out_scale};
}

/// A call of matmul as one of groups: a matrix, and all its rows.
struct single_matrix {
  single_matrix(const grouped_matmul_args& all, const code_scales& all_scales, std::int64_t entry)
      : args(all), scales(all_scales) {
    const bool batched = all.lhs.rank == 3;
    const auto of_entry = [&](tensor_view& view, int rank) {
      if (!view.present() || !batched) return with_axis(view, rank);
      view.data = static_cast<std::byte*>(view.data) +
                  entry * view.stride[0] * static_cast<std::int64_t>(size_of(view.type));
      view.extent[0] = 1;
      if (rank == 2) drop_axis(view);
    };
    for (tensor_view* rows :
         {&args.lhs, &args.out_init, &args.d_out, &args.multiplier, &args.residual, &scales.lhs}) {
      of_entry(*rows, 2);
    }
    for (tensor_view* matrix : {&args.rhs, &args.rhs_scale, &scales.rhs}) of_entry(*matrix, 3);
    of_entry(args.rhs_bias, batched ? 3 : 2);
    size = static_cast<std::int32_t>(args.lhs.extent[0]);
    args.group_sizes = view(&size, {1});
  }

  grouped_matmul_args args;
  code_scales scales;
  std::int32_t size = 0;

 private:
  /// In front, of one element, where the view has less than `rank` axes.
  static void with_axis(tensor_view& view, int rank) {
    if (!view.present() || view.rank >= rank) return;
    for (std::size_t axis = max_rank - 1; axis > 0; --axis) {
      view.extent[axis] = view.extent[axis - 1];
      view.stride[axis] = view.stride[axis - 1];
    }
    view.extent[0] = 1;
    ++view.rank;
  }
  static void drop_axis(tensor_view& view) {
    for (std::size_t axis = 0; axis + 1 < max_rank; ++axis) {
      view.extent[axis] = view.extent[axis + 1];
      view.stride[axis] = view.stride[axis + 1];
    }
    --view.rank;
  }
};

/// The sums of all matrices of a call, one behind the other.
template <class Number, class Sums>
std::vector<summed<Number>> all_sums(const grouped_matmul_args& args,
                                     const grouped_matmul_options& options,
                                     const code_scales& scales, const Sums& sums_of) {
  if (args.group_sizes.present()) {
    return sums_of(grouped_matmul_evaluation<Number>(args, options, scales));
  }
  std::vector<summed<Number>> all;
  const std::int64_t entries = args.lhs.rank == 3 ? args.lhs.extent[0] : 1;
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    const single_matrix matrix(args, scales, entry);
    const auto sums =
        sums_of(grouped_matmul_evaluation<Number>(matrix.args, options, matrix.scales));
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}
template <class Number, class Sums>
std::vector<summed<Number>> all_sums(const bound_call& call, const Sums& sums_of) {
  return all_sums<Number>(args_of(call), call.options_as<grouped_matmul_options>(), {}, sums_of);
}

template <class Number>
expected_tensors forward(const bound_call& call) {
  const grouped_matmul_args& args = args_of(call);
  const auto sums = all_sums<Number>(call, [](const auto& evaluation) { return evaluation.out(); });
  return {
      expected_from(call, tensor("out"), scaled_for_codes(args.out, args.out_code_scale, sums))};
}

template <class Number>
expected_tensors backward(const bound_call& call) {
  using evaluation_type = grouped_matmul_evaluation<Number>;
  expected_tensors all;
  const auto add = [&](std::int8_t output,
                       typename evaluation_type::sums (evaluation_type::*sums)() const) {
    const auto index = static_cast<std::size_t>(output);
    if (!call.has(index)) return;
    all.push_back(expected_from(call, index, all_sums<Number>(call, [&](const auto& evaluation) {
                                  return (evaluation.*sums)();
                                })));
  };
  add(tensor("d_lhs"), &evaluation_type::d_lhs);
  add(tensor("d_rhs"), &evaluation_type::d_rhs);
  add(tensor("d_rhs_scale"), &evaluation_type::d_rhs_scale);
  add(tensor("d_rhs_bias"), &evaluation_type::d_rhs_bias);
  add(tensor("d_out_init"), &evaluation_type::d_out_init);
  return all;
}

/// Rows of some local group, and matrices of groups that have rows.
void mark_read(const bound_call& call, const std::vector<group_rows>& rows, seen_tensors seen) {
  const auto place = [&](std::string_view name) {
    const auto& tensors = call.form().tensors;
    return static_cast<std::size_t>(std::ranges::find(tensors, name, &tensor_form::name) -
                                    tensors.begin());
  };
  const auto mark = [&](std::string_view input, const auto& is_read) {
    const std::size_t index = place(input);
    if (index == call.form().tensors.size() || !call.has(index)) return;
    const tensor_view& view = call.tensors[index];
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
  const std::size_t copied = place("d_out_init");
  const bool copies = copied < call.form().tensors.size() && call.has(copied);
  for (const std::string_view input : {"lhs", "lhs_scale", "multiplier", "residual"}) {
    mark(input, row_is_read);
  }
  mark("d_out", [&](std::int64_t row) { return copies || row_is_read(row); });
  for (const std::string_view input : {"rhs", "rhs_scale", "rhs_bias"}) mark(input, matrix_is_read);
  mark("out_init", [](std::int64_t) { return true; });
}
void mark_seen(const bound_call& call, seen_tensors seen) {
  mark_read(call, group_rows_of(args_of(call), call.options_as<grouped_matmul_options>()), seen);
}

/// Scales of a result of codes that sums of a few hundred terms fill.
void fill_code_scales(const tensor_view& scales, support::random_source& random) {
  for_each_element(scales, [&](std::int64_t, std::int64_t offset) {
    store(scales, offset, random.pick({0.03, 0.1, 0.25, 1.0, 7.0}));
  });
}

bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  if (index == static_cast<std::size_t>(tensor("out_code_scale"))) {
    fill_code_scales(call.tensors[index], random);
    return true;
  }
  if (index != static_cast<std::size_t>(tensor("group_sizes"))) return false;
  fill_group_sizes(call.tensors[index], call.tensors[tensor("lhs")].extent[0], random);
  return true;
}

/// A multiplication and an addition of every row with every weight of its group, for each result.
void count_products(const grouped_matmul_args& args, const grouped_matmul_options& options,
                    call_work& work) {
  const auto last = static_cast<std::size_t>(args.rhs.rank - 1);
  const auto columns = static_cast<double>(args.rhs.extent[last - 1] * args.rhs.extent[last]);
  const double products = args.d_rhs.present() || args.d_rhs_scale.present() ? 2 : 1;
  const double rows = args.lhs.rank == 3
                          ? static_cast<double>(args.lhs.extent[0] * args.lhs.extent[1])
                          : static_cast<double>(args.lhs.extent[0]);
  work.flops = 2 * products * rows * columns;
  if (args.group_sizes.data == nullptr) return;
  // Matrices of groups without rows are not read.
  const std::vector<group_rows> groups = group_rows_of(args, options);
  const auto empty = std::ranges::count_if(
      groups, [](const group_rows& group) { return group.begin >= group.end; });
  work.bytes -= static_cast<double>(empty) * columns * static_cast<double>(size_of(args.rhs.type));
}

void count(const bound_call& call, call_work& work) {
  count_products(args_of(call), call.options_as<grouped_matmul_options>(), work);
}

/// Columns of a result are those of its weights; columns of gradients follow from all of d_out and
/// their own operands. Scales share theirs.
std::span<const std::string_view> independent(const bound_call& call) {
  static constexpr std::array<std::string_view, 1> of_results{"N"}, of_gradients{"K"};
  if (call.has(static_cast<std::size_t>(tensor("out_code_scale")))) return {};
  if (!is_backward(grouped_matmul_table::op_of(call))) return of_results;
  if (call.has(static_cast<std::size_t>(tensor("rhs_scale")))) return {};
  return of_gradients;
}

constexpr operation_reference reference_named(std::string_view op, bool is_backward, bool grouped) {
  return {.op = op,
          .exact = is_backward ? &backward<double> : &forward<double>,
          .as_stored = is_backward ? &backward<float> : &forward<float>,
          .fill = &fill,
          .mark_seen = grouped ? &mark_seen : nullptr,
          .independent = &independent,
          .count = &count};
}
constexpr std::array table{reference_named("grouped_matmul", false, true),
                           reference_named("grouped_matmul_backward", true, true),
                           reference_named("matmul", false, false),
                           reference_named("matmul_backward", true, false)};

// Elements of 8 bits with scales.

const scaled_matmul_args& scaled_args_of(const bound_call& call) {
  return *reinterpret_cast<const scaled_matmul_args*>(call.tensors);
}

template <class Number>
expected_tensors scaled_forward(const bound_call& call) {
  const scaled_matmul_args& args = scaled_args_of(call);
  const auto& options = call.options_as<scaled_matmul_options>();
  const auto sums = all_sums<Number>(unscaled(args), unscaled(options),
                                     {args.lhs_scale, args.rhs_scale, options.scales},
                                     [](const auto& evaluation) { return evaluation.out(); });
  return {expected_from(call, scaled_matmul_table::tensor("out"),
                        scaled_for_codes(args.out, args.out_code_scale, sums))};
}

/// Numbers of mean 0, and scales near 1.
bool fill_scaled(const bound_call& call, std::size_t index, support::random_source& random) {
  const tensor_view& view = call.tensors[index];
  if (call.form().tensors[index].name == "out_code_scale") {
    fill_code_scales(view, random);
    return true;
  }
  if (view.type == dtype::i32) return fill(call, index, random);
  const bool is_scale = call.form().tensors[index].name.ends_with("_scale");
  if (size_of(view.type) != 1 && !is_scale) return false;
  const double size = view.type == dtype::i8 ? 30.0 : 1.0;
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const double number = static_cast<double>(random.bell());
    store(view, offset, is_scale ? random.pick({0.25, 0.5, 0.75, 1.0, 1.3}) : size * number);
  });
  return true;
}

void mark_scaled(const bound_call& call, seen_tensors seen) {
  mark_read(call,
            group_rows_of(unscaled(scaled_args_of(call)),
                          unscaled(call.options_as<scaled_matmul_options>())),
            seen);
}

void count_scaled(const bound_call& call, call_work& work) {
  count_products(unscaled(scaled_args_of(call)), unscaled(call.options_as<scaled_matmul_options>()),
                 work);
}

/// The matrix unit keeps 14 bits of sums of 128 products of f8_e4m3, where f32 has 24.
int rounded_sums(const void* config) {
  const auto& row = *static_cast<const grouped_matmul_config*>(config);
  return row.type == dtype::f8_e4m3 || row.type == dtype::f8_e5m2 ? 1023 : 1;
}

constexpr operation_reference scaled_named(std::string_view op, bool grouped) {
  return {.op = op,
          .exact = &scaled_forward<double>,
          .as_stored = &scaled_forward<float>,
          .fill = &fill_scaled,
          .mark_seen = grouped ? &mark_scaled : nullptr,
          .rounded_numbers = &rounded_sums,
          .count = &count_scaled};
}
constexpr std::array scaled_table{scaled_named("scaled_grouped_matmul", true),
                                  scaled_named("scaled_matmul", false)};

}  // namespace

void fill_group_sizes(const tensor_view& sizes, std::int64_t rows, support::random_source& random) {
  const double share = random.pick({0.5, 1.0, 1.0, 1.0, 1.5});
  const std::int64_t each = rows / std::max<std::int64_t>(sizes.extent[0], 1) + 1;
  for_each_element(sizes, [&](std::int64_t, std::int64_t offset) {
    const double size = share * static_cast<double>(random.below(2 * each + 1));
    const double number = random.chance(0.2) ? 0 : random.chance(0.03) ? INT32_MAX : size;
    store(sizes, offset, random.chance(0.02) ? -3 : number);
  });
}

std::span<const operation_reference> scaled_matmul_references() noexcept {
  return scaled_table;
}
std::span<const operation_reference> grouped_matmul_references() noexcept {
  return table;
}

}  // namespace tessera::reference
