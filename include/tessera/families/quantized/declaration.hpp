// The operations on quantised weights, one list.
#pragma once

#include <array>

#include <tessera/families/quantized/product_declaration.hpp>
#include <tessera/families/quantized/weight_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

inline constexpr std::array quantized_operations =
    declared::joined(quantized_table::weight_operations, quantized_table::product_operations);

}  // namespace tessera
