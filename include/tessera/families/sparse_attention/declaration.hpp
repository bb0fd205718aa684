// Every operation of the sparse attention family, whatever its tensors.
#pragma once

#include <tessera/families/sparse_attention/blocksparse_declaration.hpp>
#include <tessera/families/sparse_attention/native_sparse_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto sparse_attention_operations =
    declared::joined(blocksparse_table::operations, blocksparse_table::backward_operations,
                     native_sparse_table::operations, native_sparse_table::backward_operations);

}  // namespace tessera
