// Which register states the operating system saves, or 0 where it does not say. `Unit` is the
// instruction set of who calls, or void: an inline function of a unit with wider instructions must
// not stand in for everybody's.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera::prim {

/// XCR0: bit 1 SSE, 2 AVX, 5 to 7 AVX-512, 17 and 18 tiles.
template <class Unit>
std::uint64_t saved_register_states() noexcept {
#if defined(__x86_64__)
  constexpr unsigned osxsave = 1u << 27;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & osxsave) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
#else
  return 0;
#endif
}

}  // namespace tessera::prim
