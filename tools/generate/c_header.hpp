// The operations of all families for C: include/tessera/interop/c_operations.h.
#pragma once

#include <string>
#include <vector>

#include "table.hpp"
#include "units.hpp"

namespace tessera::generate {

/// The header, and the unit of the C interface, which knows every operation by number and name.
/// Refuses declarations that contradict each other in C.
outcome<file_set> c_interface_files(const std::vector<family>& families);

}  // namespace tessera::generate
