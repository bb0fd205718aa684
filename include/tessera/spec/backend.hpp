// The backends a row can be compiled for, ordered from the most portable to the most specialised
// within each kind of device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

/// Instruction set or GPU generation a row is compiled for.
enum class backend : std::uint8_t {
  cpu_generic,      ///< portable C++, no intrinsics
  cpu_avx2,         ///< x86 AVX2 + FMA + F16C
  cpu_avx512,       ///< x86 AVX-512 F, BW, DQ, VL
  cpu_avx512_vnni,  ///< the above with AVX512-VNNI (VPDPBUSD)
  cpu_avx512_bf16,  ///< the above with AVX512-BF16 (VDPBF16PS)
  cpu_amx_bf16,     ///< the above with AMX-TILE and AMX-BF16 (TDPBF16PS)
  cuda_sm80,        ///< mma.sync, ldmatrix and cp.async: NVIDIA GPUs of compute capability >= 8.0
  cuda_sm90,        ///< wgmma and bulk tensor copies: compute capability 9.0 alone (sm_90a)
};

inline constexpr std::array all_backends{
    backend::cpu_generic,     backend::cpu_avx2,     backend::cpu_avx512, backend::cpu_avx512_vnni,
    backend::cpu_avx512_bf16, backend::cpu_amx_bf16, backend::cuda_sm80,  backend::cuda_sm90};

/// "cpu_avx512", ...: the spelling used in row names and on command lines.
constexpr std::string_view name_of(backend target) noexcept {
  switch (target) {
    case backend::cpu_generic:
      return "cpu_generic";
    case backend::cpu_avx2:
      return "cpu_avx2";
    case backend::cpu_avx512:
      return "cpu_avx512";
    case backend::cpu_avx512_vnni:
      return "cpu_avx512_vnni";
    case backend::cpu_avx512_bf16:
      return "cpu_avx512_bf16";
    case backend::cpu_amx_bf16:
      return "cpu_amx_bf16";
    case backend::cuda_sm80:
      return "cuda_sm80";
    case backend::cuda_sm90:
      return "cuda_sm90";
  }
  return "invalid";
}

/// The backend of that name, if there is one.
constexpr std::optional<backend> backend_named(std::string_view name) noexcept {
  for (const backend target : all_backends) {
    if (name_of(target) == name) return target;
  }
  return std::nullopt;
}

constexpr bool is_cpu(backend target) noexcept {
  return target <= backend::cpu_amx_bf16;
}
/// CPU backends with instructions for products of whole numbers of 8 bits, as every processor with
/// those for bf16 has them.
constexpr bool has_byte_products(backend target) noexcept {
  return is_cpu(target) && target >= backend::cpu_avx512_vnni;
}
/// CPU backends with instructions for products of bf16.
constexpr bool has_bf16_products(backend target) noexcept {
  return target == backend::cpu_avx512_bf16 || target == backend::cpu_amx_bf16;
}
/// CPU backends whose products are of tiles in registers of their own.
constexpr bool has_tile_products(backend target) noexcept {
  return target == backend::cpu_amx_bf16;
}
constexpr bool is_cuda(backend target) noexcept {
  return !is_cpu(target);
}

/// Floats in one vector register: the unit of the register tiles. 4 for the portable backend; 8 for
/// CUDA, the columns of a register tile.
constexpr int vector_floats(backend target) noexcept {
  switch (target) {
    case backend::cpu_generic:
      return 4;
    case backend::cpu_avx2:
    case backend::cuda_sm80:
    case backend::cuda_sm90:
      return 8;
    case backend::cpu_avx512:
    case backend::cpu_avx512_vnni:
    case backend::cpu_avx512_bf16:
    case backend::cpu_amx_bf16:
      return 16;
  }
  return 0;
}

}  // namespace tessera
