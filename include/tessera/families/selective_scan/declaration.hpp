// Every operation of the family of elementwise recurrences, whatever its tensors.
#pragma once

#include <tessera/families/selective_scan/rwkv4_declaration.hpp>
#include <tessera/families/selective_scan/state_space_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto selective_scan_operations =
    declared::joined(state_space_table::operations, rwkv4_table::operations);

}  // namespace tessera
