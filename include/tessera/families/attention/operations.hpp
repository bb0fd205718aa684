// Every operation of the attention family, whatever its tensors.
#pragma once

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/fp8_declaration.hpp>
#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/ragged_decode_declaration.hpp>
#include <tessera/families/attention/ragged_page_declaration.hpp>
#include <tessera/families/attention/unified_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto attention_operations = declared::joined(
    attention_table::operations, paged_table::operations, ragged_decode_table::operations,
    unified_table::operations, ragged_page_table::operations, fp8_table::operations);

}  // namespace tessera
