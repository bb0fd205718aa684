// The version of the library; CMake reads it from here.
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view version = "0.1.0";

}  // namespace tessera
