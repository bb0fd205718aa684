// Parts of a launch's scratch memory.
#pragma once

#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::selective_scan::cpu {

using prim::float_carver;

}  // namespace tessera::kernels::selective_scan::cpu
