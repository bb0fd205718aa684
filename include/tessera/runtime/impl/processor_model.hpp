// What CPUID does not say of a processor and its model tells: by vendor, family and model number.
#pragma once

#include <cstdint>

namespace tessera::impl {

enum class processor_vendor : std::uint8_t { other, amd, intel };

struct processor_model {
  processor_vendor vendor = processor_vendor::other;
  unsigned family = 0;  ///< with the extended family added
  unsigned model = 0;   ///< with the extended model in front
};

/// The model that CPUID means: ecx of leaf 0, eax of leaf 1.
constexpr processor_model processor_model_of(unsigned vendor, unsigned signature) noexcept {
  processor_model found;
  if (vendor == 0x444D4163) found.vendor = processor_vendor::amd;    // "cAMD"
  if (vendor == 0x6C65746E) found.vendor = processor_vendor::intel;  // "ntel"
  const unsigned base = signature >> 8 & 0xF;
  found.family = base == 0xF ? base + (signature >> 20 & 0xFF) : base;
  found.model = signature >> 4 & 0xF;
  if (base == 0xF || base == 0x6) found.model += (signature >> 16 & 0xF) << 4;
  return found;
}

/// `device_facts::bf16_dot_percent` of a processor that has VDPBF16PS; 0 for models that are not
/// known.
/// - Zen 4: as many as multiply-adds. Measured on two cores of an EPYC: 473 GFLOP/s of bf16
///   products, 236 of f32.
/// - Sapphire Rapids and Emerald Rapids: a quarter. Measured on a core of model 207, 24 independent
///   ones in registers: 1.5e9 to 1.6e9 a second, multiply-adds 5.6e9 to 5.9e9.
constexpr int bf16_dot_percent_of(const processor_model& processor) noexcept {
  if (processor.vendor == processor_vendor::amd && processor.family == 0x19) return 100;
  const bool intel = processor.vendor == processor_vendor::intel && processor.family == 0x6;
  return intel && (processor.model == 0x8F || processor.model == 0xCF) ? 25 : 0;
}

}  // namespace tessera::impl
