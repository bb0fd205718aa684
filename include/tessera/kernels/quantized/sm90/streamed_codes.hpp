// Codes of a quad of lanes as weights of 16 bits in the order of the matrix unit's operand A: lane
// t has columns 2t and 2t + 1 of each eight. Scaled in registers by two at a time.
//
// A line of an output is 64 bytes of codes, 128 or 64 columns, of which lane t loads the quarter t,
// a segment. Then lanes exchange what they have of each eight columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/thin_codes.hpp>
#include <tessera/kernels/quantized/sm80/thin_lane.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_words.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::quantized::sm90 {

using sm80::thin_code;

inline constexpr int code_line_bytes = 64;
/// Bytes of an output's numbers of groups that come together.
inline constexpr int number_line_bytes = 16;

/// Columns of a line and of a segment; a chunk is two segments.
template <thin_code Code>
struct code_line {
  static constexpr int bits = sm80::bits_of(Code);
  static constexpr int columns = code_line_bytes * 8 / bits;
  static constexpr int segment_columns = columns / 4;
  static constexpr int segment_steps = segment_columns / 16;  ///< products
  static constexpr int chunks = 2, chunk_steps = 2 * segment_steps;
};

/// How the lanes of a quad exchange codes: selectors of byte permutations of lane t.
class quad_exchange {
 public:
  __device__ __forceinline__ explicit quad_exchange(unsigned t)
      : high_((t & 2) != 0),
        send_far_(high_ ? 0x5410u : 0x7632u),
        far_low_(high_ ? 0x3254u : 0x5410u),
        far_high_(high_ ? 0x3276u : 0x7610u),
        send_near_((t & 1) != 0 ? 0x6420u : 0x7531u),
        near_low_((t & 1) != 0 ? 0x3514u : 0x5240u),
        near_high_((t & 1) != 0 ? 0x3716u : 0x7260u),
        send_pair_((t & 1) != 0 ? 0x5410u : 0x7632u),
        pair_low_((t & 1) != 0 ? 0x3254u : 0x5410u),
        pair_high_((t & 1) != 0 ? 0x3276u : 0x7610u) {}

  /// Codes of four bits: word j was the eight columns j of lane t's segment, and becomes, in byte
  /// s, the lane's two columns of the eight j of segment s.
  __device__ __forceinline__ void bytes(std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      std::uint32_t &first = words[i], &second = words[i + 1];
      // Lanes two apart change halves, then neighbours bytes.
      const std::uint32_t far = exchanged(__byte_perm(first, second, send_far_), 2);
      first = __byte_perm(first, far, far_low_);
      second = __byte_perm(second, far, far_high_);
      const std::uint32_t near = exchanged(__byte_perm(first, second, send_near_), 1);
      first = __byte_perm(first, near, near_low_);
      second = __byte_perm(second, near, near_high_);
    }
  }

  /// Codes of eight bits: words 2j and 2j + 1 were the eight columns j of lane t's segment. Word
  /// 2j + c becomes, in its half i, the lane's two columns of the eight j of segment 2c + i.
  __device__ __forceinline__ void halves(std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const std::uint32_t kept = high_ ? words[i + 1] : words[i];
      const std::uint32_t far = exchanged(high_ ? words[i] : words[i + 1], 2);
      const std::uint32_t low = high_ ? far : kept, high = high_ ? kept : far;
      const std::uint32_t near = exchanged(__byte_perm(low, high, send_pair_), 1);
      words[i] = __byte_perm(low, near, pair_low_);
      words[i + 1] = __byte_perm(high, near, pair_high_);
    }
  }

 private:
  static __device__ __forceinline__ std::uint32_t exchanged(std::uint32_t word, int distance) {
    return __shfl_xor_sync(prim::cuda::all_lanes, word, distance);
  }

  bool high_;
  unsigned send_far_, far_low_, far_high_, send_near_, near_low_, near_high_;
  unsigned send_pair_, pair_low_, pair_high_;
};

/// Arithmetic on pairs of elements, each result rounded once.
template <class Element>
struct pair_words;
template <>
struct pair_words<bf16> {
  static __device__ __forceinline__ std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
    std::uint32_t c;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  static __device__ __forceinline__ std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t c;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  static __device__ __forceinline__ std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b,
                                                               std::uint32_t c) {
    std::uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
};
template <>
struct pair_words<f16> {
  static __device__ __forceinline__ std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
    std::uint32_t c;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  static __device__ __forceinline__ std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t c;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  static __device__ __forceinline__ std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b,
                                                               std::uint32_t c) {
    std::uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
};

/// The numbers of a group, each twice in a word. Affine: (code - zero) scale + bias, of which one
/// of zero and bias is 0.
struct group_pairs {
  std::uint32_t scale, zero, bias;
};

/// What is constant of the numbers of a call.
struct number_form {
  mx_scale_encoding encoding = mx_scale_encoding::e8m0;
  affine_weight_form form = affine_weight_form::zero;
};

/// Bytes of the number of a group.
constexpr int number_bytes_of(thin_code code) noexcept {
  return sm80::has_byte_scales(code) ? 1 : 2;
}

/// The numbers that lie at an address of shared memory, zeros at another. `Nv`: scales are E4M3,
/// else exponents.
template <class Element, thin_code Code, bool Nv>
__device__ __forceinline__ group_pairs load_group(const number_form& form, std::uint32_t scale_at,
                                                  std::uint32_t zero_at) {
  group_pairs to{};
  if constexpr (!sm80::has_byte_scales(Code)) {
    const std::uint32_t scale = prim::cuda::load_shared_2(scale_at);
    to.scale = __byte_perm(scale, 0, 0x1010u);
    if constexpr (sm80::is_whole(Code)) {
      const std::uint32_t own = prim::cuda::load_shared_2(zero_at);
      const std::uint32_t zero = __byte_perm(own, 0, 0x1010u);
      const bool biased = form.form == affine_weight_form::bias;
      to.zero = biased ? 0u : zero;
      to.bias = biased ? zero : 0x80008000u;
    }
  } else if constexpr (Nv) {
    const std::uint32_t byte = prim::cuda::load_shared_1(scale_at);
    to.scale = prim::cuda::widened_pair<f8_e4m3, Element>(byte | byte << 8);
  } else {
    static_assert(std::is_same_v<Element, bf16>);
    const std::uint32_t bits =
        __float_as_uint(sm80::mx_scale(form.encoding, prim::cuda::load_shared_1(scale_at)));
    to.scale = __byte_perm(bits, 0, 0x3232u);
  }
  return to;
}

/// Codes of four bits of two segments, in a half of an exchanged word: the lane's two columns of
/// each as elements. Of whole numbers, those behind `anchor`.
template <class Element, thin_code Code>
struct segment_pairs {
  static constexpr bool is_f16 = std::is_same_v<Element, f16>;
  /// Twice what elements of whole numbers have too much: behind 128 (f16: 1024) a mantissa counts
  /// ones; those of eight bits of bf16 are signed.
  static constexpr std::uint32_t anchor = is_f16                      ? 0x64006400u
                                          : Code == thin_code::whole4 ? 0x43004300u
                                                                      : 0xc300c300u;

  static __device__ __forceinline__ void decode(std::uint32_t word, int half,
                                                std::uint32_t (&pairs)[2]) {
    using narrow = sm80::code_pairs<Code, Element>;
    if constexpr (Code == thin_code::whole4) {
      const std::uint32_t upper = word >> 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto byte = static_cast<unsigned>(half * 2 + i);
        const unsigned selector = byte * 0x11u | (byte + 4) * 0x1100u;
        pairs[i] = (__byte_perm(word, upper, selector) & 0x000f000fu) | anchor;
      }
    } else if constexpr (sm80::bits_of(Code) == 4) {
      narrow::decode_half(half == 0 ? word : word >> 16, pairs);
    } else if constexpr (is_f16 && Code == thin_code::whole8) {
      pairs[0] = __byte_perm(word, 0x64646464u, 0x5140u);
      pairs[1] = __byte_perm(word, 0x64646464u, 0x7362u);
    } else {
      pairs[0] = narrow::pair_of_bytes(word);
      pairs[1] = narrow::pair_of_bytes(word >> 16);
    }
  }
};

/// A pair of elements as weights. Each operation is rounded, but what leaves whole numbers, which
/// is exact.
template <class Element, thin_code Code>
__device__ __forceinline__ std::uint32_t scaled_pair(std::uint32_t pair,
                                                     const group_pairs& numbers) {
  using arithmetic = pair_words<Element>;
  if constexpr (sm80::is_whole(Code)) {
    const std::uint32_t code = arithmetic::subtract(pair, segment_pairs<Element, Code>::anchor);
    return arithmetic::multiply_add(arithmetic::subtract(code, numbers.zero), numbers.scale,
                                    numbers.bias);
  } else {
    return arithmetic::multiply(pair, numbers.scale);
  }
}

/// Chunk `chunk` of an exchanged line: pairs of each product's lower and upper eight columns. There
/// are numbers for each segment; `Short`: for each product.
template <class Element, thin_code Code, int Numbers>
__device__ __forceinline__ void scaled_chunk(
    const std::uint32_t (&words)[4], int chunk, const group_pairs (&numbers)[Numbers],
    std::uint32_t (&pairs)[code_line<Code>::chunk_steps][2]) {
  using line = code_line<Code>;
#pragma unroll
  for (int eight = 0; eight < line::segment_steps * 2; ++eight) {
    std::uint32_t of_segment[2];
    if constexpr (line::bits == 4) {
      segment_pairs<Element, Code>::decode(words[eight], chunk, of_segment);
    } else {
      segment_pairs<Element, Code>::decode(words[eight * 2 + chunk], 0, of_segment);
    }
#pragma unroll
    for (int segment = 0; segment < 2; ++segment) {
      const int step = segment * line::segment_steps + eight / 2;
      pairs[step][eight % 2] = scaled_pair<Element, Code>(
          of_segment[segment], numbers[step * Numbers / line::chunk_steps]);
    }
  }
}

}  // namespace tessera::kernels::quantized::sm90
