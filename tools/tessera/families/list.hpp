// The list of families: a new one adds its function, defined in a file of this folder, and its
// place in the array.
#pragma once

#include <array>

#include "../families.hpp"

namespace tessera::tool {

const family& attention();
const family& mean_pooling();

inline constexpr std::array family_functions{&attention, &mean_pooling};

}  // namespace tessera::tool
