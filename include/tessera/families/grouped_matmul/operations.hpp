// Every operation of the family of grouped matrix products, whatever its tensors.
#pragma once

#include <tessera/families/grouped_matmul/declaration.hpp>
#include <tessera/families/grouped_matmul/scaled_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto grouped_matmul_operations =
    declared::joined(grouped_matmul_table::operations, scaled_matmul_table::operations);

}  // namespace tessera
