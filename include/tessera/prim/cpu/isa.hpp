// Instruction sets as types. Every CPU helper takes one, so that no inline function compiled with
// wider instructions can stand in for a portable one, and so that one kernel text serves all.
#pragma once

#include <tessera/spec/backend.hpp>

namespace tessera::isa {

struct generic {};               ///< portable C++
struct avx2 {};                  ///< AVX2, FMA, F16C
struct avx512 {};                ///< AVX-512 F, BW, DQ, VL
struct avx512_vnni : avx512 {};  ///< with VPDPBUSD
struct avx512_bf16 : avx512 {};  ///< with VDPBF16PS

template <backend Target>
struct of;
template <>
struct of<backend::cpu_generic> {
  using type = generic;
  static constexpr bool compiled = true;
};
template <>
struct of<backend::cpu_avx2> {
  using type = avx2;
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  static constexpr bool compiled = true;
#else
  static constexpr bool compiled = false;  // needs -mavx2 -mfma -mf16c
#endif
};
template <>
struct of<backend::cpu_avx512> {
  using type = avx512;
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  static constexpr bool compiled = true;
#else
  static constexpr bool compiled = false;  // needs -mavx512f -mavx512bw -mavx512dq -mavx512vl
#endif
};
template <>
struct of<backend::cpu_avx512_vnni> {
  using type = avx512_vnni;
#if defined(__AVX512VNNI__)
  static constexpr bool compiled = of<backend::cpu_avx512>::compiled;
#else
  static constexpr bool compiled = false;  // needs also -mavx512vnni
#endif
};
template <>
struct of<backend::cpu_avx512_bf16> {
  using type = avx512_bf16;
#if defined(__AVX512BF16__)
  static constexpr bool compiled = of<backend::cpu_avx512>::compiled;
#else
  static constexpr bool compiled = false;  // needs also -mavx512bf16
#endif
};

/// The vector instructions are those of avx512_bf16; tiles: prim/cpu/gemm/tiles.hpp. (clang before
/// 15 spells the macros its own way.)
template <>
struct of<backend::cpu_amx_bf16> {
  using type = avx512_bf16;
#if (defined(__AMX_TILE__) && defined(__AMX_BF16__)) || \
    (defined(__AMXTILE__) && defined(__AMXBF16__)) || defined(TESSERA_EMULATED_TILES)
  static constexpr bool compiled = of<backend::cpu_avx512_bf16>::compiled;
#else
  static constexpr bool compiled = false;  // needs also -mamx-tile -mamx-bf16
#endif
};

}  // namespace tessera::isa

namespace tessera {

/// The most specialised CPU backend that this translation unit is compiled for (-march=native ...).
/// Internal linkage on purpose: two units may be compiled with different flags.
constexpr backend native_cpu_backend = isa::of<backend::cpu_avx512>::compiled ? backend::cpu_avx512
                                       : isa::of<backend::cpu_avx2>::compiled
                                           ? backend::cpu_avx2
                                           : backend::cpu_generic;

/// The same for bf16 tensors, which have instructions of their own.
constexpr backend native_cpu_bf16_backend =
    isa::of<backend::cpu_avx512_bf16>::compiled ? backend::cpu_avx512_bf16 : native_cpu_backend;

/// The same for elements of i8 with scales.
constexpr backend native_cpu_byte_backend =
    isa::of<backend::cpu_avx512_vnni>::compiled ? backend::cpu_avx512_vnni : native_cpu_backend;

}  // namespace tessera
