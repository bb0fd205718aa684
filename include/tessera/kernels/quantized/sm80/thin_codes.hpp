// Codes of a lane as the first operand of products on the matrix unit: whole numbers and elements
// of tables as they are, before scales and zeros, so that nothing but the quantiles of nf4 is
// rounded.
//
// A lane takes eight codes of each of two rows for two products. Of f16 the lowest bits of a
// mantissa are whole numbers times 2^-24; of bf16 a mantissa behind 128 counts ones.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/families/quantized/options.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::quantized::sm80 {

/// What codes of few rows are.
enum class thin_code : std::uint8_t { whole4, whole8, nf4, e2m1, e4m3 };

constexpr int bits_of(thin_code code) noexcept {
  return code == thin_code::whole8 || code == thin_code::e4m3 ? 8 : 4;
}
constexpr thin_code thin_code_of(weight_mode mode, int bits) noexcept {
  if (mode == weight_mode::affine) return bits == 8 ? thin_code::whole8 : thin_code::whole4;
  if (mode == weight_mode::nf4) return thin_code::nf4;
  return has_e4m3_codes(mode) ? thin_code::e4m3 : thin_code::e2m1;
}
constexpr bool has_byte_scales(thin_code code) noexcept {
  return code == thin_code::e2m1 || code == thin_code::e4m3;
}
constexpr bool is_whole(thin_code code) noexcept {
  return code == thin_code::whole4 || code == thin_code::whole8;
}

/// One byte of each of the elements of eight codes, from `first` on.
template <class Element>
constexpr std::array<std::uint32_t, 2> bytes_of_table(const std::array<float, 16>& values,
                                                      std::size_t first, int byte) {
  std::array<std::uint32_t, 2> words{};
  for (std::size_t i = 0; i < 8; ++i) {
    const auto bits = std::bit_cast<std::uint16_t>(Element(values[first + i]));
    const std::uint32_t part = static_cast<std::uint32_t>(bits >> (8 * byte)) & 0xffu;
    words[i / 4] |= part << (8 * (i % 4));
  }
  return words;
}

/// Pairs of elements: pair 0 and 1 of the first product, 2 and 3 of the second. `Halves`: in the
/// lower half of a word are the codes of the first product.
template <thin_code Code, class Element>
struct code_pairs {
  static constexpr bool is_f16 = std::is_same_v<Element, f16>;
  /// Pairs are codes 0 and 2, 1 and 3 of a product; else 0 and 1, 2 and 3.
  static constexpr bool alternate = Code == thin_code::whole4;
  /// What a code stands for is its element times `factor`, less `anchor`.
  static constexpr float factor = is_whole(Code) && is_f16 ? 0x1p24f : 1.0f;
  static constexpr float anchor = !is_whole(Code) || is_f16   ? 0.0f
                                  : Code == thin_code::whole4 ? 128.0f
                                                              : -128.0f;

  static __device__ __forceinline__ void decode(const std::uint32_t (&words)[bits_of(Code) / 4],
                                                std::uint32_t (&pairs)[4]) {
    if constexpr (Code == thin_code::whole4) {
      constexpr std::uint32_t upper = is_f16 ? 0u : 0x43434343u;
      const std::uint32_t even = words[0] & 0x0f0f0f0fu, odd = words[0] >> 4 & 0x0f0f0f0fu;
      interleave(even, upper, pairs[0], pairs[2]);
      interleave(odd, upper, pairs[1], pairs[3]);
    } else if constexpr (Code == thin_code::nf4) {
      nf4_half(words[0], pairs[0], pairs[1]);
      nf4_half(words[0] >> 16, pairs[2], pairs[3]);
    } else if constexpr (Code == thin_code::e2m1) {
      const std::uint32_t above = words[0] << 4;
      e2m1_half(words[0], __byte_perm(above, words[0], 0x5140u), pairs[0], pairs[1]);
      e2m1_half(words[0] >> 16, __byte_perm(above, words[0], 0x7362u), pairs[2], pairs[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = pair_of_bytes(words[i / 2] >> (i % 2 * 16));
    }
  }

 private:
  /// Elements from their lower and upper bytes, two in each word.
  static __device__ __forceinline__ void interleave(std::uint32_t lower, std::uint32_t upper,
                                                    std::uint32_t& first, std::uint32_t& second) {
    first = __byte_perm(lower, upper, 0x5140u);
    second = __byte_perm(lower, upper, 0x7362u);
  }
  static __device__ __forceinline__ std::uint32_t pair_of_bytes(std::uint32_t pair) {
    if constexpr (Code == thin_code::e4m3) {
      return prim::cuda::widened_pair<f8_e4m3, Element>(pair & 0xffffu);
    } else if constexpr (is_f16) {
      return __byte_perm(pair, 0, 0x4140u);
    } else {
      return prim::cuda::widened_pair<std::int8_t, Element>((pair & 0xffffu) ^ 0x8080u);
    }
  }
  /// Four codes in the lower half of `word`, by the byte permutation's look-up among eight.
  static __device__ __forceinline__ void nf4_half(std::uint32_t word, std::uint32_t& first,
                                                  std::uint32_t& second) {
    const std::uint32_t among = word & 0x7777u;
    const std::uint32_t positive = __byte_perm(0x0000ff00u, 0, word >> 3 & 0x1111u);
    std::uint32_t part[2];
#pragma unroll
    for (int byte = 0; byte < 2; ++byte) {
      constexpr auto tables = [] {
        std::array<std::array<std::array<std::uint32_t, 2>, 2>, 2> all{};
        for (int b = 0; b < 2; ++b) {
          for (std::size_t half = 0; half < 2; ++half) {
            all[static_cast<std::size_t>(b)][half] =
                bytes_of_table<Element>(nf4_values, half * 8, b);
          }
        }
        return all;
      }();
      const auto& table = tables[static_cast<std::size_t>(byte)];
      const std::uint32_t low = __byte_perm(table[0][0], table[0][1], among);
      const std::uint32_t high = __byte_perm(table[1][0], table[1][1], among);
      part[byte] = (low & ~positive) | (high & positive);
    }
    interleave(part[0], part[1], first, second);
  }
  /// Likewise; signs come in the highest bits of four bytes.
  static __device__ __forceinline__ void e2m1_half(std::uint32_t word, std::uint32_t signs,
                                                   std::uint32_t& first, std::uint32_t& second) {
    constexpr auto lower = bytes_of_table<Element>(e2m1_values, 0, 0);
    constexpr auto upper = bytes_of_table<Element>(e2m1_values, 0, 1);
    const std::uint32_t among = word & 0x7777u;
    const std::uint32_t low =
        (lower[0] | lower[1]) == 0 ? 0u : __byte_perm(lower[0], lower[1], among);
    const std::uint32_t high = __byte_perm(upper[0], upper[1], among) | (signs & 0x80808080u);
    interleave(low, high, first, second);
  }
};

}  // namespace tessera::kernels::quantized::sm80
