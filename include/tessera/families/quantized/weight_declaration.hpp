// quantize and dequantize, declared: weights, their codes and scales. The layouts of a call say
// which axis has the groups, and how codes lie.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <tessera/families/grouped_matmul/group_forms.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/weight_args.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::quantized_table {

using declared::everywhere;
using options = quantized_options;
using kernel = quantized_kernel_args;
using texts = std::array<std::string_view, max_layouts>;

// What every operation on packed weights shares.

inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t least_group = 8, most_group = 1024;

/// Number of the dims among those of an operation.
enum dim_number : std::uint8_t { rows_dim, groups_dim, group_size_dim, words_dim };

inline constexpr std::size_t codes_tensor = 1;  ///< w_q among the tensors of an operation

/// Words of a row of codes. Where no code has so many bits, those there are: the option is refused,
/// not the tensor.
inline std::int64_t words_of_row(const bound_call& call) {
  const options& wanted = call.options_as<options>();
  const std::int64_t bits = bits_of(wanted);
  if (bits > 8) {
    const tensor_view& codes = call.tensors[codes_tensor];
    const int from_last = wanted.axis == weight_axis::k_major ? 2 : 1;
    return codes.extent[static_cast<std::size_t>(codes.rank - from_last)];
  }
  return (call.dims[groups_dim] * group_size_of(wanted) * bits + 31) / 32;
}

/// Rows and columns as they are stored; a row has groups of `g` columns.
inline constexpr std::array weight_dims{
    dim{.symbol = "R", .label = "rows", .most = most},
    dim{.symbol = "G", .label = "groups", .most = most},
    dim{.symbol = "g",
        .label = "group size",
        .least = least_group,
        .most = most_group,
        .source = dim_source::formula,
        .of = "R",
        .value = [](const bound_call& call) { return group_size_of(call.options_as<options>()); },
        .option = "group_size"},
    dim{.symbol = "W",
        .label = "words",
        .source = dim_source::formula,
        .of = "G",
        .value = &words_of_row},
};

/// Of one matrix, by axis.
inline constexpr texts code_shapes{"R W", "R W", "W R"}, scale_shapes{"R G", "R G", "G R"};

constexpr tensor_text codes(tensor_use use, const texts& shapes = code_shapes) {
  return {
      .name = "w_q", .shapes = shapes, .types = dtype::u32, .use = use, .contiguous_rows = true};
}
constexpr tensor_text scales(tensor_use use, const texts& shapes = scale_shapes) {
  return {.name = "scales",
          .shapes = shapes,
          .types = floating_types | dtype::u8,
          .use = use,
          .contiguous_rows = true};
}
constexpr tensor_text zeros(tensor_use use, const texts& shapes = scale_shapes) {
  return {.name = "zeros", .shapes = shapes, .like = "scales", .use = use, .contiguous_rows = true};
}
constexpr tensor_text tensor_scale(const texts& shapes = everywhere("1")) {
  return {.name = "tensor_scale",
          .shapes = shapes,
          .types = dtype::f32,
          .contiguous_rows = true,
          .holds = tensor_contents::positive,
          .free = true};
}

inline constexpr std::array option_forms{
    option_form{.name = "mode",
                .offset = offsetof(options, mode),
                .type = option_type::choice,
                .enumerators = weight_mode_names},
    option_form{.name = "bits",
                .offset = offsetof(options, bits),
                .type = option_type::optional_integer,
                .limit = option_limit::at_least,
                .least = 1,
                .unset = "the mode's"},
    option_form{.name = "group_size",
                .offset = offsetof(options, group_size),
                .type = option_type::optional_integer,
                .limit = option_limit::at_least,
                .least = 1,
                .unset = "the mode's"},
    option_form{.name = "axis",
                .offset = offsetof(options, axis),
                .type = option_type::choice,
                .enumerators = weight_axis_names},
    option_form{.name = "scale_encoding",
                .offset = offsetof(options, scale_encoding),
                .type = option_type::choice,
                .enumerators = mx_scale_encoding_names,
                .free = true},
    option_form{.name = "affine_form",
                .offset = offsetof(options, affine_form),
                .type = option_type::choice,
                .enumerators = affine_weight_form_names,
                .free = true},
    grouped_matmul_table::group_offset_at(offsetof(options, group_offset)),
    grouped_matmul_table::free_choice_at("x_rows", offsetof(options, x_rows), grouped_rows_names),
};
/// Options that only products of groups have.
inline constexpr std::string_view options_of_groups = "group_offset x_rows";
inline constexpr auto& axes = weight_axis_names;

inline bool is_affine(const bound_call& call) {
  return call.options_as<options>().mode == weight_mode::affine;
}
inline bool has_tensor_scale(const bound_call& call) {
  return call.options_as<options>().mode == weight_mode::nvfp4;
}
inline constexpr std::string_view only_affine_has_zeros = "is given, only affine weights have it";
inline constexpr std::string_view only_nvfp4_has_it = "is given, only nvfp4 weights have it";

/// Bits and group size are such as the mode has.
inline bool suit_mode(const options& wanted, status& failure) {
  const std::string_view mode = name_in(weight_mode_names, wanted.mode);
  const std::int64_t bits = bits_of(wanted), size = group_size_of(wanted);
  if (wanted.mode == weight_mode::affine ? bits > 8 : bits != bits_of(wanted.mode)) {
    if (wanted.mode == weight_mode::affine) {
      return checks::refuse(failure, "bits: is ", bits, ", must be 1 to 8");
    }
    return checks::refuse(failure, "bits: is ", bits, ", ", mode, " has ", bits_of(wanted.mode));
  }
  if (!has_float_scales(wanted.mode) && size != group_size_of(wanted.mode)) {
    return checks::refuse(failure, "group_size: is ", size, ", ", mode, " has ",
                          group_size_of(wanted.mode));
  }
  if (!std::has_single_bit(static_cast<std::uint64_t>(size))) {
    return checks::refuse(failure, "group_size: is ", size, ", must be a power of two from ",
                          least_group, " to ", most_group);
  }
  if (wanted.scale_encoding != mx_scale_encoding::e8m0 && !is_mx(wanted.mode)) {
    return checks::refuse(failure, "scale_encoding: is ",
                          name_in(mx_scale_encoding_names, wanted.scale_encoding), ", scales of ",
                          mode, " are no exponents");
  }
  return wanted.affine_form == affine_weight_form::zero || wanted.mode == weight_mode::affine ||
         checks::refuse(failure, "affine_form: is ",
                        name_in(affine_weight_form_names, wanted.affine_form), ", ", mode,
                        " has no zeros");
}

/// What the mode asks of scales and zeros; their numbers among the tensors. A call that is to get
/// scales gets zeros with them.
template <std::size_t Scales, std::size_t Zeros>
bool is_quantized(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  if (!suit_mode(wanted, failure)) return false;
  const std::string_view mode = name_in(weight_mode_names, wanted.mode);
  const dtype type = call.tensors[Scales].type;
  if (call.has(Scales) && is_floating_16_or_32(type) != has_float_scales(wanted.mode)) {
    return checks::refuse(failure, "scales: dtype is ", name_of(type), ", ", mode, " has ",
                          has_float_scales(wanted.mode) ? "f32, f16 or bf16" : "u8");
  }
  return call.has(Zeros) || !call.has(Scales) || !is_affine(call) ||
         checks::refuse(failure, "zeros: is absent, affine weights have it");
}

inline void fill_weights(const bound_call& call, packed_weights& to) {
  const options& wanted = call.options_as<options>();
  to.bits = static_cast<int>(bits_of(wanted));
  to.mode = wanted.mode;
  to.encoding = wanted.scale_encoding;
  to.form = wanted.affine_form;
}

/// Where a matrix goes whose axes have dims of these symbols; `matrix` is that of several.
consteval binding_text matrix_at(std::string_view name, std::size_t at, std::string_view row,
                                 std::string_view column, std::string_view matrix = {}) {
  return {name,
          at + offsetof(strided_matrix, data),
          {{{row, at + offsetof(strided_matrix, row)},
            {column, at + offsetof(strided_matrix, column)},
            {matrix, at + offsetof(strided_matrix, matrix)}}},
          at + offsetof(strided_matrix, type)};
}
inline constexpr std::size_t weights = offsetof(kernel, weights);
/// Of codes, scales and zeros; `matrix` as above.
consteval auto bindings_of_weights(std::string_view matrix = {}) {
  return std::array{
      matrix_at("w_q", weights + offsetof(packed_weights, codes), "R", "W", matrix),
      matrix_at("scales", weights + offsetof(packed_weights, scales), "R", "G", matrix),
      matrix_at("zeros", weights + offsetof(packed_weights, zeros), "R", "G", matrix),
      binding_text{"tensor_scale", weights + offsetof(packed_weights, tensor_scale)}};
}
inline constexpr std::array weight_sizes{
    size_text{"R", weights + offsetof(packed_weights, rows)},
    size_text{"G", weights + offsetof(packed_weights, groups)},
    size_text{"g", weights + offsetof(packed_weights, group_size)},
};
inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

// Packing and unpacking.

/// The tensors of an operation that reads weights, or writes them as they are stored.
consteval auto weight_texts(tensor_use of_weights) {
  const bool reads = of_weights == tensor_use::input;
  const tensor_use of_codes = reads ? tensor_use::output : tensor_use::input;
  return std::array{
      tensor_text{.name = "w",
                  .shapes = {"R:outputs G*g:inputs",
                             reads ? "G*g:outputs R:inputs" : "R:inputs G*g:outputs",
                             "R:outputs G*g:inputs"},
                  .types = floating_types,
                  .use = of_weights,
                  .contiguous_rows = true},
      codes(of_codes),
      scales(of_codes),
      zeros(of_codes),
      tensor_scale(),
  };
}
inline constexpr std::array weight_rules{
    tensor_rule{3, &is_affine, only_affine_has_zeros},
    tensor_rule{4, &has_tensor_scale, only_nvfp4_has_it},
};

template <const auto& Texts>
consteval signature weight_form() {
  return declared::signature_of<weight_problem, Texts, weight_dims, axes>({
      .options = option_forms,
      .rules = weight_rules,
      .layout_of = &declared::layout_named<&options::axis>,
      .hook = &is_quantized<2, 3>,
  });
}
constexpr auto weight_bindings(const signature& form) {
  return declared::bindings_in(
      declared::with(bindings_of_weights(), matrix_at("w", offsetof(kernel, w), "R", "G")), form);
}

// Weights are read.
inline constexpr auto read_texts = weight_texts(tensor_use::input);
inline constexpr signature read_form = weight_form<read_texts>();
inline constexpr auto read_bindings = weight_bindings(read_form);

// Weights are written.
inline constexpr auto written_texts = weight_texts(tensor_use::output);
inline constexpr signature written_form = weight_form<written_texts>();
inline constexpr auto written_bindings = weight_bindings(written_form);

inline constexpr auto sizes_of_weights = declared::sizes_in(weight_sizes, read_form);
inline void finish_unpacking(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  fill_weights(call, filled.weights);
  filled.k_major = call.options_as<options>().axis == weight_axis::k_major;
}
inline void finish_by_axis(const bound_call& call, void* to) {
  finish_unpacking(call, to);
  static_cast<kernel*>(to)->transposed = call.options_as<options>().axis == weight_axis::row;
}
inline constexpr lowering lower_packing =
    declared::lowering_of<kernel_defaults>(sizes_of_weights, read_bindings, &finish_by_axis);
inline constexpr lowering lower_unpacking =
    declared::lowering_of<kernel_defaults>(sizes_of_weights, written_bindings, &finish_unpacking);

inline constexpr std::array weight_operations{
    declared::operation_of("quantize", 0, read_form, lower_packing,
                           "w! w_q! scales! zeros tensor_scale", options_of_groups),
    declared::operation_of("dequantize", 1, written_form, lower_unpacking,
                           "w! w_q! scales! zeros tensor_scale", options_of_groups),
    declared::operation_of("prepack_quantized_weights", 2, read_form, lower_packing,
                           "w! w_q! scales! zeros tensor_scale", options_of_groups),
};

}  // namespace tessera::quantized_table
