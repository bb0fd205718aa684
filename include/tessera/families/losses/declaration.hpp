// Every operation of the family of fused losses, whatever its tensors.
#pragma once

#include <tessera/families/losses/cross_entropy_declaration.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto losses_operations = cross_entropy_table::operations;

}  // namespace tessera
