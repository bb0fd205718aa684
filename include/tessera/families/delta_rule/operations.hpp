// Every operation of the delta rule family, whatever its tensors.
#pragma once

#include <tessera/families/delta_rule/declaration.hpp>
#include <tessera/families/delta_rule/ragged_declaration.hpp>
#include <tessera/families/delta_rule/ragged_v2_declaration.hpp>
#include <tessera/families/delta_rule/rwkv7_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto delta_rule_operations =
    declared::joined(delta_rule_table::operations, rwkv7_table::operations,
                     ragged_delta_rule_table::operations, ragged_delta_rule_v2_table::operations);

}  // namespace tessera
