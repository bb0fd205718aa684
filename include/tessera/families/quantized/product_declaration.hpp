// Products with packed weights and their gradients, declared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/weight_declaration.hpp>

namespace tessera::quantized_table {

inline constexpr std::int64_t most_matrices = 65535;

/// Dims of products besides those of weights, by their numbers.
enum product_dim_number : std::uint8_t { batch_dim = weight_dims.size(), matrices_dim, sizes_dim };
inline constexpr auto product_dims =
    declared::with(weight_dims, dim{.symbol = "M", .label = "batch", .most = most},
                   dim{.symbol = "E", .label = "matrices", .most = most_matrices},
                   dim{.symbol = "S", .label = "groups"});

/// Which axis has the groups and how codes lie, of one matrix of weights and of a matrix for each
/// group.
inline constexpr std::array<std::string_view, 6> product_layouts{
    "col", "row", "k_major", "grouped col", "grouped row", "grouped k_major"};
inline constexpr texts of_inputs{"M G*g:inputs", "M R:inputs", "M G*g:inputs",
                                 "M G*g:inputs", "M R:inputs", "M G*g:inputs"};
inline constexpr texts of_outputs{"M R:outputs", "M G*g:outputs", "M R:outputs",
                                  "M R:outputs", "M G*g:outputs", "M R:outputs"};
inline constexpr texts of_codes{"R W", "R W", "W R", "E R W", "E R W", "E W R"};
inline constexpr texts of_scales{"R G", "R G", "G R", "E R G", "E R G", "E G R"};
inline constexpr texts of_tensor_scales{"1", "1", "1", "E", "E", "E"};
inline constexpr texts of_sizes{"-", "-", "-", "S", "S", "S"};

constexpr tensor_text activations(std::string_view name, const texts& shapes,
                                  tensor_use use = tensor_use::input) {
  return {
      .name = name, .shapes = shapes, .types = floating_types, .use = use, .contiguous_rows = true};
}
/// The optional gradient of a tensor of scales or zeros.
constexpr tensor_text scale_gradient(std::string_view name, std::string_view of) {
  return {.name = name,
          .shapes = of_scales,
          .types = floating_types,
          .use = tensor_use::output,
          .contiguous_rows = true,
          .gradient_of = of,
          .free = true};
}
consteval tensor_text gradient_of_x() {
  tensor_text text = activations("d_x", of_inputs, tensor_use::output);
  text.gradient_of = "x";
  return text;
}

inline constexpr std::array product_texts{
    activations("x", of_inputs),
    codes(tensor_use::input, of_codes),
    scales(tensor_use::input, of_scales),
    zeros(tensor_use::input, of_scales),
    tensor_scale(of_tensor_scales),
    activations("out", of_outputs, tensor_use::output),
    activations("d_out", of_outputs),
    gradient_of_x(),
    scale_gradient("d_scales", "scales"),
    scale_gradient("d_zeros", "zeros"),
    tensor_text{
        .name = "group_sizes", .shapes = of_sizes, .types = dtype::i32, .contiguous_rows = true},
};
consteval std::int8_t product_tensor(std::string_view name) {
  return declared::tensor_named(product_texts, name);
}

inline bool has_float_scales(const bound_call& call) {
  return tessera::has_float_scales(call.options_as<options>().mode);
}
inline constexpr std::array product_rules{
    tensor_rule{product_tensor("zeros"), &is_affine, only_affine_has_zeros},
    tensor_rule{product_tensor("tensor_scale"), &has_tensor_scale, only_nvfp4_has_it},
    tensor_rule{product_tensor("d_scales"), &has_float_scales,
                "is given, scales that are bytes have no gradient"},
    tensor_rule{product_tensor("d_zeros"), &is_affine, only_affine_has_zeros},
};

inline quantized_matmul_op op_of(const bound_call& call) noexcept {
  return static_cast<quantized_matmul_op>(call.op->place);
}
inline int product_layout_of(const bound_call& call) {
  return declared::layout_named<&options::axis>(call) +
         (has_groups(op_of(call)) ? static_cast<int>(axes.size()) : 0);
}
/// Weights suit their mode, and there are sizes of all groups that have some.
inline bool product_hook(const bound_call& call, status& failure) {
  if (!is_quantized<product_tensor("scales"), product_tensor("zeros")>(call, failure)) return false;
  return !has_groups(op_of(call)) ||
         grouped_matmul_table::has_sizes(call.dims[matrices_dim], call.dims[sizes_dim], "w_q",
                                         call.options_as<options>().group_offset, failure);
}

inline constexpr signature product_form =
    declared::signature_of<quantized_matmul_problem, product_texts, product_dims, product_layouts>({
        .options = option_forms,
        .rules = product_rules,
        .layout_of = &product_layout_of,
        .hook = &product_hook,
    });

inline constexpr auto product_bindings = declared::bindings_in(
    declared::with(bindings_of_weights("E"), matrix_at("x", offsetof(kernel, x), "M", ""),
                   matrix_at("out", offsetof(kernel, out), "M", ""),
                   matrix_at("d_out", offsetof(kernel, d_out), "M", ""),
                   matrix_at("d_x", offsetof(kernel, d_x), "M", ""),
                   matrix_at("d_scales", offsetof(kernel, d_scales), "R", "G"),
                   matrix_at("d_zeros", offsetof(kernel, d_zeros), "R", "G"),
                   binding_text{"group_sizes", offsetof(kernel, group_sizes)}),
    product_form);
inline constexpr auto product_sizes =
    declared::sizes_in(declared::with(weight_sizes, size_text{"M", offsetof(kernel, batch)},
                                      size_text{"E", offsetof(kernel, matrices)},
                                      size_text{"S", offsetof(kernel, all_groups)}),
                       product_form);
inline void finish_product(const bound_call& call, void* to) {
  finish_by_axis(call, to);
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.group_offset = wanted.group_offset;
  filled.local_rows = wanted.x_rows == grouped_rows::local;
  grouped_matmul_table::keep_groups(has_groups(op_of(call)), filled.group_sizes);
}

inline constexpr lowering lower_product =
    declared::lowering_of<kernel_defaults>(product_sizes, product_bindings, &finish_product);

// Batch, inputs and outputs are those of x and of out or d_out, which packed weights have to fit.
inline constexpr std::array product_operations{
    declared::operation_of("quantized_matmul", 0, product_form, lower_product,
                           "x! out! w_q! scales! zeros tensor_scale", options_of_groups),
    declared::operation_of("quantized_matmul_backward", 1, product_form, lower_product,
                           "x! d_out! w_q! scales! zeros tensor_scale d_x! d_scales d_zeros",
                           options_of_groups),
    declared::operation_of("quantized_grouped_matmul", 2, product_form, lower_product,
                           "x! out! w_q! scales! zeros tensor_scale group_sizes!"),
    declared::operation_of("quantized_grouped_matmul_backward", 3, product_form, lower_product,
                           "x! d_out! w_q! scales! zeros tensor_scale group_sizes! d_x!"),
};

}  // namespace tessera::quantized_table
