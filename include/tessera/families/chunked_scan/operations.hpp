// Every operation of the family, whatever its tensors.
#pragma once

#include <tessera/families/chunked_scan/declaration.hpp>
#include <tessera/families/chunked_scan/rwkv6_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto chunked_scan_operations =
    declared::joined(recurrent_table::operations, rwkv6_table::operations);

}  // namespace tessera
