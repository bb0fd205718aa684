// Codes of four bits as bf16.
#pragma once

#include <array>
#include <cstddef>

#include <tessera/families/quantized/options.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::cpu {

/// What codes of four bits stand for before their scale, as bf16, which has all but the entries of
/// nf4: affine ones `middle_code` less, so that sums of them are small.
inline constexpr float middle_code = 8;
inline std::array<bf16, 16> bf16_entries(weight_mode mode) {
  std::array<bf16, 16> all;
  for (std::size_t code = 0; code < all.size(); ++code) {
    all[code] = bf16(mode == weight_mode::affine ? static_cast<float>(code) - middle_code
                     : mode == weight_mode::nf4  ? nf4_values[code]
                                                 : e2m1_values[code]);
  }
  return all;
}
/// What sums of a group of a are multiplied by then, of affine codes.
template <class Vec>
TESSERA_INLINE typename Vec::reg offsets_of_middle(typename Vec::reg scales,
                                                   typename Vec::reg zeros, bool biased) {
  const auto at_middle = Vec::broadcast(middle_code);
  return biased ? Vec::fma(scales, at_middle, zeros) : Vec::mul(scales, Vec::sub(at_middle, zeros));
}

}  // namespace tessera::kernels::quantized::cpu
