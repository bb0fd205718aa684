// Every operation of the family of fused losses, whatever its tensors.
#pragma once

#include <tessera/families/losses/cross_entropy_declaration.hpp>
#include <tessera/families/losses/kl_divergence_declaration.hpp>
#include <tessera/families/losses/linear_cross_entropy_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto losses_operations =
    declared::joined(cross_entropy_table::operations, kl_divergence_table::operations,
                     linear_cross_entropy_table::operations);

}  // namespace tessera
