// Reflection over the family of quantised weights, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/product_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/families/quantized/weight_args.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(quantized_pass, quantize, dequantize, forward, backward)
BOOST_DESCRIBE_ENUM(quantized_rule, none, sm90_rows_multiply_16_bits, cuda_products_have_a_type,
                    other_rows_take_any_type, bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(weight_mode, affine, nf4, mxfp4, mxfp8, nvfp4, nvfp8)
BOOST_DESCRIBE_ENUM(weight_axis, col, row)
BOOST_DESCRIBE_ENUM(mx_scale_encoding, e8m0, int8)
BOOST_DESCRIBE_ENUM(affine_weight_form, zero, bias)
BOOST_DESCRIBE_ENUM(weight_op, quantize, dequantize, prepack_quantized_weights)
BOOST_DESCRIBE_ENUM(quantized_matmul_op, quantized_matmul, quantized_matmul_backward)

BOOST_DESCRIBE_STRUCT(quantized_config, (), (target, pass, type))
BOOST_DESCRIBE_STRUCT(quantized_options, (),
                      (mode, bits, group_size, axis, scale_encoding, affine_form))
BOOST_DESCRIBE_STRUCT(weight_args, (), (w, w_q, scales, zeros, tensor_scale))
BOOST_DESCRIBE_STRUCT(quantized_matmul_args, (),
                      (x, w_q, scales, zeros, tensor_scale, out, d_out, d_x, d_scales, d_zeros))

/// `quantized.<backend>.<pass>`, of products on GPUs with `.<dtype>` behind it.
inline constexpr auto quantized_names = row_names<quantized_config>(
    "quantized", spelling::word{&quantized_config::target}, spelling::word{&quantized_config::pass},
    spelling::where{
        [](const quantized_config& row) { return is_cuda(row.target) && is_product(row.pass); },
        spelling::word{&quantized_config::type}});

/// The stable name of a row.
constexpr row_name name_of(const quantized_config& config) {
  return quantized_names.name_of(config);
}

}  // namespace tessera
