// What the model of a processor tells that CPUID does not say.
#pragma once

#include <tessera/prim/common/processor_model.hpp>

namespace tessera::impl {

/// `device_facts::bf16_dot_percent` of a processor that has VDPBF16PS; 0 for models that are not
/// known.
/// - Zen 4: as many as multiply-adds. Measured on two cores of an EPYC: 473 GFLOP/s of bf16
///   products, 236 of f32.
/// - Sapphire Rapids and Emerald Rapids: a quarter. Measured on a core of model 207, 24 independent
///   ones in registers: 1.5e9 to 1.6e9 a second, multiply-adds 5.6e9 to 5.9e9.
constexpr int bf16_dot_percent_of(const prim::processor_model& processor) noexcept {
  if (prim::is_zen_4(processor)) return 100;
  const bool intel = processor.vendor == prim::processor_vendor::intel && processor.family == 0x6;
  return intel && (processor.model == 0x8F || processor.model == 0xCF) ? 25 : 0;
}

}  // namespace tessera::impl
