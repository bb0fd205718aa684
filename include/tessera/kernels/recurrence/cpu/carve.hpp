// Parts of scratch memory of one size.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::recurrence {

/// Each of `parts` becomes so many floats.
template <class... Parts>
TESSERA_INLINE void carve(prim::float_carver& carver, std::int64_t count, Parts*&... parts) {
  ((parts = carver.take(count)), ...);
}

}  // namespace tessera::kernels::recurrence
