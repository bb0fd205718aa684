// What tests need to know of the operations on quantised weights.
#include "quantized.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/families/quantized/declaration.hpp>

#include "../support/random.hpp"
#include "grouped_matmul.hpp"
#include "operations.hpp"
#include "quantize.hpp"
#include "quantized_matmul.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using options = quantized_options;

const weight_args& weights_of(const bound_call& call) {
  return *reinterpret_cast<const weight_args*>(call.tensors);
}

/// Beyond the largest number of a type is that number.
double bounded(dtype type, double value) {
  const double most = type == dtype::f16    ? 65504.0
                      : type == dtype::bf16 ? 0x1.fep127
                                            : largest_float;
  return std::clamp(value, -most, most);
}

packed_values packed(const bound_call& call) {
  const weight_args& args = weights_of(call);
  const auto& wanted = call.options_as<options>();
  const bool transposed = wanted.axis == weight_axis::row;
  const std::int64_t rows = args.w.extent[transposed ? 1 : 0];
  const std::int64_t columns = args.w.extent[transposed ? 0 : 1];
  const std::int64_t size = group_size_of(wanted);
  const double of_tensor = args.tensor_scale.present() ? read(args.tensor_scale, 0) : 1.0;
  packed_values all;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<std::uint32_t> codes;
    for (std::int64_t first = 0; first < columns; first += size) {
      std::vector<double> weights;
      for (std::int64_t column = first; column < first + size; ++column) {
        weights.push_back(transposed ? at(args.w, column, row) : at(args.w, row, column));
      }
      const quantized_group group = quantized(wanted, of_tensor, weights);
      codes.insert(codes.end(), group.codes.begin(), group.codes.end());
      all.scales.push_back(group.scale);
      all.zeros.push_back(group.zero);
    }
    all.append_codes(codes, bits_of(wanted));
  }
  if (wanted.axis == weight_axis::k_major) {
    for (std::vector<double>* numbers : {&all.words, &all.scales, &all.zeros}) {
      *numbers = turned(*numbers, rows);
    }
  }
  return all;
}

expected_tensors all_of(const bound_call& call, packed_values values) {
  expected_tensors all;
  all.push_back({.tensor = 1, .values = std::move(values.words)});
  all.push_back({.tensor = 2, .values = std::move(values.scales)});
  if (call.has(3)) all.push_back({.tensor = 3, .values = std::move(values.zeros)});
  return all;
}
/// A scale or zero as its tensor holds it, before it is rounded.
packed_values packed_in_bounds(const bound_call& call) {
  packed_values values = packed(call);
  for (double& scale : values.scales) scale = bounded(call.tensors[2].type, scale);
  for (double& zero : values.zeros) zero = bounded(call.tensors[2].type, zero);
  return values;
}
expected_tensors quantized_exactly(const bound_call& call) {
  return all_of(call, packed_in_bounds(call));
}
expected_tensors quantized_as_stored(const bound_call& call) {
  const auto round = [&](double& value) {
    value = static_cast<double>(rounded_to(call.tensors[2].type, static_cast<float>(value)));
  };
  packed_values values = packed_in_bounds(call);
  std::ranges::for_each(values.scales, round);
  std::ranges::for_each(values.zeros, round);
  return all_of(call, std::move(values));
}

expected_tensors dequantized(const bound_call& call) {
  const weight_args& args = weights_of(call);
  const packed_view from{call.options_as<options>(), args.w_q, args.scales, args.zeros,
                         args.tensor_scale};
  expected_tensors all;
  all.push_back({.tensor = 0, .values = decoded(from)});
  return all;
}

// Products.

expected_tensor as_expected(std::size_t tensor, sum_rows sums) {
  return {.tensor = tensor, .values = std::move(sums.values), .sizes = std::move(sums.sizes)};
}

const quantized_matmul_args& product_of(const bound_call& call) {
  return *reinterpret_cast<const quantized_matmul_args*>(call.tensors);
}

template <class Number>
expected_tensors multiplied(const bound_call& call) {
  const quantized_matmul_args& args = product_of(call);
  return {as_expected(
      5, quantized_product<Number>(args, call.options_as<options>()).out(args.x, args.out.type))};
}

template <class Number>
expected_tensors multiplied_back(const bound_call& call) {
  const quantized_matmul_args& args = product_of(call);
  const auto& wanted = call.options_as<options>();
  const quantized_product<Number> product(args, wanted);
  const bool by_inputs = has_groups_of_inputs(wanted.axis);
  expected_tensors all{as_expected(7, product.d_x(args.d_out, args.d_x.type))};
  if (!args.d_scales.present() && !args.d_zeros.present()) return all;
  auto [scales, zeros] = product.of_scales(by_inputs ? args.d_out : args.x,
                                           by_inputs ? args.x : args.d_out, args.scales.type);
  if (wanted.axis == weight_axis::k_major) {
    // A size for each of them.
    const std::int64_t groups = args.scales.extent[0], rows = args.scales.extent[1];
    for (sum_rows* sums : {&scales, &zeros}) {
      std::vector<double> sizes;
      for (std::int64_t group = 0; group < groups; ++group) {
        sizes.insert(sizes.end(), sums->sizes.begin(), sums->sizes.end());
      }
      *sums = {.values = turned(sums->values, rows), .sizes = std::move(sizes)};
    }
  }
  if (args.d_scales.present()) all.push_back(as_expected(8, std::move(scales)));
  if (args.d_zeros.present()) all.push_back(as_expected(9, std::move(zeros)));
  return all;
}

// Products of groups.

/// The same call as one of groups of floats, as far as rows and groups go.
std::vector<group_rows> rows_of_groups(const bound_call& call) {
  const quantized_matmul_args& args = product_of(call);
  const auto& wanted = call.options_as<options>();
  return group_rows_of({.lhs = args.x, .rhs = args.w_q, .group_sizes = args.group_sizes},
                       {.group_offset = wanted.group_offset, .lhs_rows = wanted.x_rows});
}

/// One entry of the first axis, which goes.
tensor_view entry_of(const tensor_view& all, std::int64_t entry) {
  if (!all.present()) return all;
  tensor_view part = all;
  part.data = static_cast<std::byte*>(all.data) +
              entry * all.stride[0] * static_cast<std::int64_t>(size_of(all.type));
  part.rank = all.rank - 1;
  for (std::size_t axis = 0; axis + 1 < max_rank; ++axis) {
    part.extent[axis] = all.extent[axis + 1];
    part.stride[axis] = all.stride[axis + 1];
  }
  return part;
}
/// Rows [begin, end).
tensor_view rows_of(const tensor_view& all, const group_rows& rows) {
  tensor_view part = all;
  part.data = static_cast<std::byte*>(all.data) +
              rows.begin * all.stride[0] * static_cast<std::int64_t>(size_of(all.type));
  part.extent[0] = rows.end - rows.begin;
  return part;
}
/// What a call has of one matrix of weights.
quantized_matmul_args matrix_of(const quantized_matmul_args& all, std::int64_t matrix) {
  quantized_matmul_args of_matrix = all;
  of_matrix.w_q = entry_of(all.w_q, matrix);
  of_matrix.scales = entry_of(all.scales, matrix);
  of_matrix.zeros = entry_of(all.zeros, matrix);
  if (all.tensor_scale.present()) {
    of_matrix.tensor_scale = rows_of(all.tensor_scale, {matrix, matrix + 1});
  }
  return of_matrix;
}

/// The products of all groups in rows of a result, which are 0 where there is no group.
template <class Product>
expected_tensors grouped(const bound_call& call, std::size_t tensor, const Product& product_with) {
  const tensor_view& result = call.tensors[tensor];
  const auto columns = static_cast<std::size_t>(result.extent[1]);
  expected_tensor all{.tensor = tensor,
                      .values = std::vector<double>(static_cast<std::size_t>(result.elements())),
                      .sizes = std::vector<double>(static_cast<std::size_t>(result.extent[0]))};
  const std::vector<group_rows> groups = rows_of_groups(call);
  for (std::size_t matrix = 0; matrix < groups.size(); ++matrix) {
    if (groups[matrix].begin >= groups[matrix].end) continue;
    const sum_rows sums = product_with(static_cast<std::int64_t>(matrix), groups[matrix]);
    const auto first = static_cast<std::size_t>(groups[matrix].begin);
    std::ranges::copy(sums.values,
                      all.values.begin() + static_cast<std::ptrdiff_t>(first * columns));
    std::ranges::copy(sums.sizes, all.sizes.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return {all};
}

template <class Number>
expected_tensors multiplied_by_groups(const bound_call& call) {
  const quantized_matmul_args& args = product_of(call);
  return grouped(call, 5, [&](std::int64_t matrix, const group_rows& rows) {
    return quantized_product<Number>(matrix_of(args, matrix), call.options_as<options>())
        .out(rows_of(args.x, rows), args.out.type);
  });
}
template <class Number>
expected_tensors multiplied_back_by_groups(const bound_call& call) {
  const quantized_matmul_args& args = product_of(call);
  return grouped(call, 7, [&](std::int64_t matrix, const group_rows& rows) {
    return quantized_product<Number>(matrix_of(args, matrix), call.options_as<options>())
        .d_x(rows_of(args.d_out, rows), args.d_x.type);
  });
}

/// Rows of some local group, and matrices of groups that have rows.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const std::vector<group_rows> groups = rows_of_groups(call);
  const auto mark = [&](std::size_t input, const auto& is_read) {
    const tensor_view& view = call.tensors[input];
    if (!call.has(input)) return;
    seen[input] = seen_elements(view);
    const std::int64_t inside = view.elements() / std::max<std::int64_t>(view.extent[0], 1);
    for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      if (is_read(flat / inside)) seen[input].mark(offset);
    });
  };
  const auto row_is_read = [&](std::int64_t row) {
    return std::ranges::any_of(
        groups, [&](const group_rows& rows) { return row >= rows.begin && row < rows.end; });
  };
  const auto matrix_is_read = [&](std::int64_t matrix) {
    const group_rows& rows = groups[static_cast<std::size_t>(matrix)];
    return rows.begin < rows.end;
  };
  const bool backward = call.has(7);
  if (!backward) mark(0, row_is_read);
  if (backward) mark(6, row_is_read);
  for (std::size_t input = 1; input <= 3; ++input) mark(input, matrix_is_read);
}

/// A multiplication and an addition for each weight and row of the batch.
void count_product(const bound_call& call, call_work& work) {
  const quantized_matmul_args& args = product_of(call);
  const double matrices =
      args.group_sizes.present() ? static_cast<double>(args.scales.extent[0]) : 1;
  const double weights =
      static_cast<double>(args.scales.elements() * group_size_of(call.options_as<options>()));
  if (matrices == 0) return;
  work.flops = 2 * weights / matrices * static_cast<double>(args.x.extent[0]);
}

// Values that mean something.

/// Weights of every size, a few at a time: zeros, numbers that are not normal, ties, large ones;
/// here and there infinity, NaN and -0.
void fill_weights(const tensor_view& view, support::random_source& random) {
  std::int64_t kind = 0;
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    if (flat % 8 == 0) kind = random.below(9);
    double weight = static_cast<double>(random.bell());
    if (kind == 0) weight = 0;
    if (kind == 1) weight *= 0x1p-130;
    if (kind == 2) weight = static_cast<double>(random.between(-48, 48)) / 8;
    if (kind == 3) weight *= 0x1p125;
    if (random.chance(0.004)) weight = random.pick({HUGE_VAL, -HUGE_VAL, std::nan(""), -0.0});
    store(view, offset, weight);
  });
}

/// Any codes; those of NaN are rare.
double drawn_words(const options& wanted, support::random_source& random) {
  auto word = static_cast<std::uint32_t>(random.bits());
  if (has_e4m3_codes(wanted.mode)) {
    for (std::uint32_t byte = 0; byte < 32; byte += 8) {
      const bool is_nan = (word >> byte & 0x7fu) == 0x7fu;
      if (is_nan && random.chance(0.98)) word ^= 1u << byte;
    }
  }
  return word;
}

double drawn_scale(const options& wanted, support::random_source& random) {
  if (has_float_scales(wanted.mode)) return static_cast<double>(random.bell());
  if (is_nv(wanted.mode)) {
    const auto code = static_cast<double>(random.between(0x20, 0x48));
    return random.chance(0.02) ? random.pick({0.0, 1.0, 126.0, 127.0, 128.0 + 56.0}) : code;
  }
  const auto exponent = static_cast<double>(random.between(-8, 8));
  if (wanted.scale_encoding == mx_scale_encoding::int8) {
    return exponent < 0 ? exponent + 256 : exponent;
  }
  return random.chance(0.02) ? random.pick({0.0, 1.0, 255.0}) : exponent + 127;
}

bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const auto& wanted = call.options_as<options>();
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  const auto fill_with = [&](const auto& draw) {
    for_each_element(view, [&](std::int64_t, std::int64_t at) { store(view, at, draw()); });
    return true;
  };
  if (name == "w") return fill_weights(view, random), true;
  if (name == "w_q") return fill_with([&] { return drawn_words(wanted, random); });
  if (name == "scales") return fill_with([&] { return drawn_scale(wanted, random); });
  if (name == "group_sizes") return fill_group_sizes(view, call.tensors[0].extent[0], random), true;
  return false;
}

/// Calls that are timed have weights near 1.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  const auto& wanted = call.options_as<options>();
  const std::string_view name = call.form().tensors[tensor].name;
  if (name == "w_q") return static_cast<double>(random.bits() & 0x6f6f6f6fu);
  if (name == "zeros") return 7.5;
  if (name != "scales") return static_cast<double>(random.bell());
  return has_float_scales(wanted.mode) ? 0.25 : is_nv(wanted.mode) ? 56 : 127;
}

constexpr std::array table{
    operation_reference{.op = "quantize",
                        .exact = &quantized_exactly,
                        .as_stored = &quantized_as_stored,
                        .fill = &fill,
                        .ordinary = &ordinary},
    operation_reference{
        .op = "dequantize", .exact = &dequantized, .fill = &fill, .ordinary = &ordinary},
    operation_reference{.op = "prepack_quantized_weights",
                        .exact = &quantized_exactly,
                        .as_stored = &quantized_as_stored,
                        .fill = &fill,
                        .ordinary = &ordinary},
    operation_reference{.op = "quantized_matmul",
                        .exact = &multiplied<double>,
                        .as_stored = &multiplied<float>,
                        .fill = &fill,
                        .ordinary = &ordinary,
                        .count = &count_product},
    operation_reference{.op = "quantized_matmul_backward",
                        .exact = &multiplied_back<double>,
                        .as_stored = &multiplied_back<float>,
                        .fill = &fill,
                        .ordinary = &ordinary,
                        .count = &count_product},
    operation_reference{.op = "quantized_grouped_matmul",
                        .exact = &multiplied_by_groups<double>,
                        .as_stored = &multiplied_by_groups<float>,
                        .fill = &fill,
                        .mark_seen = &mark_seen,
                        .ordinary = &ordinary,
                        .count = &count_product},
    operation_reference{.op = "quantized_grouped_matmul_backward",
                        .exact = &multiplied_back_by_groups<double>,
                        .as_stored = &multiplied_back_by_groups<float>,
                        .fill = &fill,
                        .mark_seen = &mark_seen,
                        .ordinary = &ordinary,
                        .count = &count_product},
};

}  // namespace

std::span<const operation_reference> quantized_references() noexcept {
  return table;
}

}  // namespace tessera::reference
