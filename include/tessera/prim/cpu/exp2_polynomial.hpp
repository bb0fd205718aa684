// Minimax coefficients of 2^f for f in [0, 1), degree 5: relative error 7.5e-8 exact, 1.6e-7 when
// evaluated in f32 (Remez exchange on the relative error; checked in tests/unit/prim).
#pragma once

namespace tessera::prim::exp2_polynomial {

inline constexpr float c0 = 0.9999999403953552f;
inline constexpr float c1 = 0.6931530833244324f;
inline constexpr float c2 = 0.24015361070632935f;
inline constexpr float c3 = 0.05582631751894951f;
inline constexpr float c4 = 0.008989340625703335f;
inline constexpr float c5 = 0.0018775766948238015f;

}  // namespace tessera::prim::exp2_polynomial
