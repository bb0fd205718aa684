// Memory that is asked for ahead of its use.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

/// Asks for `bytes` from an address on, to the second-level cache. Callers that do nothing else are
/// inlined too, or compilers take them for functions without effect and drop the calls.
TESSERA_INLINE void ask_for(const std::byte* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) TESSERA_PREFETCH_L2(from + at);
}

}  // namespace tessera::prim
