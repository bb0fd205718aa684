// The instruction set that this program is compiled for.
#pragma once

#include <array>

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::test {

using native_isa = isa::of<native_cpu_backend>::type;
using vec = prim::simd<native_isa>;
using lanes = std::array<float, vec::width>;

inline lanes lanes_of(vec::reg x) {
  lanes values{};
  vec::store(values.data(), x);
  return values;
}
inline vec::reg reg_of(const lanes& values) {
  return vec::load(values.data());
}

}  // namespace tessera::test
