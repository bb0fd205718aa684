// Reflection over the family of quantised weights, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(quantized_pass, quantize, dequantize, forward, backward)

BOOST_DESCRIBE_STRUCT(quantized_config, (), (target, pass, type))

/// `quantized.<backend>.<pass>`, of products on GPUs with `.<dtype>` behind it.
template <>
inline constexpr auto spelling_of<quantized_config> = row_names<quantized_config>(
    "quantized", spelling::word{&quantized_config::target}, spelling::word{&quantized_config::pass},
    spelling::where{
        [](const quantized_config& row) { return is_cuda(row.target) && is_product(row.pass); },
        spelling::word{&quantized_config::type}});

}  // namespace tessera
