// The lookup table inside the library. A generated unit (units/lookup.cpp) defines the function.
#pragma once

#include <string_view>

namespace tessera {

/// Text of the table of this build, in the form of record.hpp: the lines of generated/lookup/*.txt,
/// or of the files given as LOOKUP, that name a row of the build. Empty where there is none.
/// Constant data: the call costs nothing.
std::string_view shipped_lookup() noexcept;

}  // namespace tessera
