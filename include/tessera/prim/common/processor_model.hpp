// Which processor this is, for what CPUID does not say but its model tells: vendor, family and
// model number.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera::prim {

enum class processor_vendor : std::uint8_t { other, amd, intel };

struct processor_model {
  processor_vendor vendor = processor_vendor::other;
  unsigned family = 0;  ///< with the extended family added
  unsigned model = 0;   ///< with the extended model in front
};

/// The model that CPUID means: ecx of leaf 0, eax of leaf 1.
[[gnu::always_inline]] constexpr processor_model processor_model_of(unsigned vendor,
                                                                    unsigned signature) noexcept {
  processor_model found;
  if (vendor == 0x444D4163) found.vendor = processor_vendor::amd;    // "cAMD"
  if (vendor == 0x6C65746E) found.vendor = processor_vendor::intel;  // "ntel"
  const unsigned base = signature >> 8 & 0xF;
  found.family = base == 0xF ? base + (signature >> 20 & 0xFF) : base;
  found.model = signature >> 4 & 0xF;
  if (base == 0xF || base == 0x6) found.model += (signature >> 16 & 0xF) << 4;
  return found;
}

/// AMD's Zen 3 and Zen 4; of these Zen 4 alone has AVX-512.
[[gnu::always_inline]] constexpr bool is_zen_4(const processor_model& processor) noexcept {
  return processor.vendor == processor_vendor::amd && processor.family == 0x19;
}

/// That of this processor, asked for once: inside a virtual machine CPUID takes microseconds.
/// `Unit` is the instruction set of who calls, or void: an inline function of a unit with wider
/// instructions must not stand in for everybody's.
template <class Unit>
const processor_model& this_processor() noexcept {
  static const processor_model found = [] {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, vendor = 0, d = 0, signature = 0, c = 0;
    if (__get_cpuid(0, &a, &b, &vendor, &d) != 0 && __get_cpuid(1, &signature, &b, &c, &d) != 0) {
      return processor_model_of(vendor, signature);
    }
#endif
    return processor_model{};
  }();
  return found;
}

}  // namespace tessera::prim
