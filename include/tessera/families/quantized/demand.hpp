// What a choice among rows of quantised weights may depend on, read off a call once.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct quantized_demand {
  quantized_pass pass = quantized_pass::quantize;
  weight_mode mode = weight_mode::affine;
  dtype type = dtype::none;  ///< of the weights as floats, or of what is multiplied with them
  weight_axis axis = weight_axis::col;
  std::uint8_t bits = 0;
  bool has_zeros = false;  ///< as affine weights have
  std::uint16_t group_size = 0;
  std::int64_t rows = 0;      ///< of the weights as they are stored
  std::int64_t columns = 0;   ///< likewise
  std::int64_t batch = 0;     ///< rows of x; packing: none
  std::int64_t matrices = 0;  ///< one for each group of rows of x; 0: one for all rows
  friend constexpr bool operator==(const quantized_demand&, const quantized_demand&) = default;
};

/// Rows and groups of weights by their scales, which have `matrix_axes` axes in front.
constexpr std::array<std::int64_t, 2> stored_sizes(const tensor_view& scales, weight_axis axis,
                                                   std::size_t matrix_axes) noexcept {
  const std::size_t rows = axis == weight_axis::k_major ? 1 : 0;
  return {scales.extent[matrix_axes + rows], scales.extent[matrix_axes + 1 - rows]};
}

constexpr quantized_demand demand_of(weight_op op, const weight_args& args,
                                     const quantized_options& options,
                                     bool /*unaligned*/) noexcept {
  const std::int64_t size = group_size_of(options);
  const auto [rows, groups] = stored_sizes(args.scales, options.axis, 0);
  return {.pass = pass_of(op),
          .mode = options.mode,
          .type = args.w.type,
          .axis = options.axis,
          .bits = static_cast<std::uint8_t>(bits_of(options)),
          .has_zeros = args.zeros.present(),
          .group_size = static_cast<std::uint16_t>(size),
          .rows = rows,
          .columns = groups * size};
}

/// The type of x, for gradients that of d_out too; f32 where these differ.
constexpr dtype type_of_factors(const quantized_matmul_args& args, quantized_pass pass) noexcept {
  if (pass == quantized_pass::forward) return args.x.type;
  return args.x.type == args.d_out.type ? args.x.type : dtype::f32;
}

constexpr quantized_demand demand_of(quantized_matmul_op op, const quantized_matmul_args& args,
                                     const quantized_options& options,
                                     bool /*unaligned*/) noexcept {
  const std::int64_t size = group_size_of(options);
  const auto [rows, groups] = stored_sizes(args.scales, options.axis, has_groups(op) ? 1 : 0);
  return {.pass = pass_of(op),
          .mode = options.mode,
          .type = type_of_factors(args, pass_of(op)),
          .axis = options.axis,
          .bits = static_cast<std::uint8_t>(bits_of(options)),
          .has_zeros = args.zeros.present(),
          .group_size = static_cast<std::uint16_t>(size),
          .rows = rows,
          .columns = groups * size,
          .batch = args.x.extent[0],
          .matrices = has_groups(op) ? args.scales.extent[0] : 0};
}

/// One row of x.
constexpr quantized_demand without_batch(quantized_demand demand) noexcept {
  demand.batch = demand.batch > 0 ? 1 : 0;
  return demand;
}

namespace quantized_fields {

inline constexpr std::array table{
    fields::exact<&quantized_demand::pass>("pass", quantized_pass_names),
    fields::exact<&quantized_demand::mode>("mode", weight_mode_names),
    fields::exact<&quantized_demand::type>("type"),
    fields::exact<&quantized_demand::axis>("axis", weight_axis_names),
    fields::exact<&quantized_demand::bits>("bits"),
    fields::bucket<&quantized_demand::group_size>("group_size"),
    fields::bucket<&quantized_demand::rows>("rows"),
    fields::bucket<&quantized_demand::columns>("columns"),
    fields::bucket_or_none<&quantized_demand::batch>("batch"),
    fields::bucket_or_none<&quantized_demand::matrices>("matrices"),
};

}  // namespace quantized_fields
}  // namespace tessera
