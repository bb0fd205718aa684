// Products with packed weights and their gradients, declared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/weight_declaration.hpp>

namespace tessera::quantized_table {

inline constexpr auto product_dims =
    declared::with(weight_dims, dim{.symbol = "M", .label = "batch", .most = most});

inline constexpr texts of_inputs{"M G*g:inputs", "M R:inputs"};
inline constexpr texts of_outputs{"M R:outputs", "M G*g:outputs"};

constexpr tensor_text activations(std::string_view name, const texts& shapes,
                                  tensor_use use = tensor_use::input) {
  return {
      .name = name, .shapes = shapes, .types = floating_types, .use = use, .contiguous_rows = true};
}
/// The optional gradient of a tensor of scales or zeros.
constexpr tensor_text scale_gradient(std::string_view name, std::string_view of) {
  return {.name = name,
          .shapes = everywhere("R G"),
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
    codes(tensor_use::input),
    scales(tensor_use::input),
    zeros(tensor_use::input),
    tensor_scale,
    activations("out", of_outputs, tensor_use::output),
    activations("d_out", of_outputs),
    gradient_of_x(),
    scale_gradient("d_scales", "scales"),
    scale_gradient("d_zeros", "zeros"),
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

inline constexpr signature product_form =
    declared::signature_of<quantized_matmul_problem, product_texts, product_dims, axes>({
        .options = option_forms,
        .rules = product_rules,
        .layout_of = &declared::layout_named<&options::axis>,
        .hook = &is_quantized<product_tensor("scales"), product_tensor("zeros")>,
    });

inline constexpr auto product_bindings = declared::bindings_in(
    std::array{codes_binding, scales_binding, zeros_binding, tensor_scale_binding,
               matrix_at("x", offsetof(kernel, x), "M", ""),
               matrix_at("out", offsetof(kernel, out), "M", ""),
               matrix_at("d_out", offsetof(kernel, d_out), "M", ""),
               matrix_at("d_x", offsetof(kernel, d_x), "M", ""),
               matrix_at("d_scales", offsetof(kernel, d_scales), "R", ""),
               matrix_at("d_zeros", offsetof(kernel, d_zeros), "R", "")},
    product_form);
inline constexpr auto product_sizes = declared::sizes_in(
    declared::with(weight_sizes, size_text{"M", offsetof(kernel, batch)}), product_form);

inline constexpr lowering lower_product =
    declared::lowering_of<kernel_defaults>(product_sizes, product_bindings, &finish_by_axis);

// Batch, inputs and outputs are those of x and of out or d_out, which packed weights have to fit.
inline constexpr std::array product_operations{
    declared::operation_of("quantized_matmul", 0, product_form, lower_product,
                           "x! out! w_q! scales! zeros tensor_scale"),
    declared::operation_of("quantized_matmul_backward", 1, product_form, lower_product,
                           "x! d_out! w_q! scales! zeros tensor_scale d_x! d_scales d_zeros"),
};

}  // namespace tessera::quantized_table
