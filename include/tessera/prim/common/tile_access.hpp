// Whether this process may use the tile registers of AMX-BF16 and AMX-INT8, which processors have
// together: CPUID, XCR0, and the leave that Linux gives a process which asks for it. `Unit`: see
// register_states.hpp.
#pragma once

#include <cstdint>

#include <tessera/prim/common/register_states.hpp>
#include <tessera/spec/device_facts.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::prim {

/// Asks for the registers, for all threads of this process; once is enough, again does no harm.
/// They make signal frames 8 KB larger, which is why a process must ask.
template <class Unit>
bool ask_for_tiles() noexcept {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// Looks, and asks where there are any.
template <class Unit>
tile_access find_tile_access() noexcept {
#if defined(TESSERA_EMULATED_TILES)
  return tile_access::granted;
#elif defined(__x86_64__)
  constexpr unsigned needed = 1u << 24 | 1u << 22 | 1u << 25;  // AMX-TILE, AMX-BF16, AMX-INT8
  constexpr std::uint64_t tile_states = 0x60000;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return tile_access::absent;
  if ((d & needed) != needed) return tile_access::absent;
  if ((saved_register_states<Unit>() & tile_states) != tile_states) return tile_access::not_saved;
  return ask_for_tiles<Unit>() ? tile_access::granted : tile_access::refused;
#else
  return tile_access::absent;
#endif
}

}  // namespace tessera::prim
