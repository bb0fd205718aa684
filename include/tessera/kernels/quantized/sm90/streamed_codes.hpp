// Codes of a lane as weights of 16 bits, scaled in registers by two at a time, and the order in
// which the columns of x must lie to meet them.
//
// A line of an output is 64 bytes of codes, 128 or 64 columns, of which lane t of a quad has the
// quarter t, 16 bytes. Eight codes of a lane, a chunk, are its part of two products of 16 columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
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

/// Columns of a line, of a lane's quarter of it, and chunks of that.
template <thin_code Code>
struct code_line {
  static constexpr int bits = sm80::bits_of(Code);
  static constexpr int columns = code_line_bytes * 8 / bits;
  static constexpr int lane_columns = columns / 4;
  static constexpr int chunks = lane_columns / 8;
  static constexpr int words = bits / 4;  ///< of a chunk
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

/// The numbers of a group, each twice in a word. Affine: a weight is (element - anchor) scale +
/// bias, where the element of a code is what code_element says. The anchor has the whole part of
/// the zero, so that the difference is exact, and the bias its fraction: all is rounded once.
struct group_pairs {
  std::uint32_t scale, anchor, bias;
};

/// Elements of whole numbers: behind 128 (f16: 1024) a mantissa counts ones; those of eight bits of
/// bf16 are signed.
template <class Element, thin_code Code>
struct code_element {
  static constexpr bool is_f16 = std::is_same_v<Element, f16>;
  /// That of code 0.
  static constexpr float first = is_f16 ? 1024.0f : Code == thin_code::whole4 ? 128.0f : -128.0f;
  /// Whole parts of zeros that an anchor may have: it is a whole number that an element holds.
  static constexpr float least = is_f16 ? -512.0f : -128.0f;
  static constexpr float most = is_f16 ? 512.0f : Code == thin_code::whole4 ? 127.0f : 384.0f;
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
    const std::uint16_t scale = prim::cuda::load_shared_2(scale_at);
    to.scale = __byte_perm(scale, 0, 0x1010u);
    if constexpr (sm80::is_whole(Code)) {
      using words = prim::cuda::half_words<Element>;
      using element = code_element<Element, Code>;
      const float own = words::unpack(prim::cuda::load_shared_2(zero_at));
      const bool biased = form.form == affine_weight_form::bias;
      const float zero = biased ? 0.0f : own;
      // Above 2^23 a float has no fraction.
      const float nearest = __fadd_rn(__fadd_rn(zero, 12582912.0f), -12582912.0f);
      const float whole = fminf(fmaxf(nearest, element::least), element::most);
      const float anchor = element::first + whole;
      const float bias = biased ? own : (whole - zero) * words::unpack(scale);
      to.anchor = words::pack(anchor, anchor);
      to.bias = words::pack(bias, bias);
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

/// A chunk as weights: pair 0 and 1 of the first product, 2 and 3 of the second.
template <class Element, thin_code Code>
__device__ __forceinline__ void scaled_chunk(const std::uint32_t (&words)[code_line<Code>::words],
                                             const group_pairs& numbers,
                                             std::uint32_t (&pairs)[4]) {
  using arithmetic = pair_words<Element>;
  constexpr bool is_f16 = std::is_same_v<Element, f16>;
  if constexpr (is_f16 && Code == thin_code::whole4) {
    const std::uint32_t even = words[0] & 0x0f0f0f0fu, odd = words[0] >> 4 & 0x0f0f0f0fu;
    pairs[0] = __byte_perm(even, 0x64646464u, 0x5140u);
    pairs[1] = __byte_perm(odd, 0x64646464u, 0x5140u);
    pairs[2] = __byte_perm(even, 0x64646464u, 0x7362u);
    pairs[3] = __byte_perm(odd, 0x64646464u, 0x7362u);
  } else if constexpr (is_f16 && Code == thin_code::whole8) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = __byte_perm(words[i / 2], 0x64646464u, i % 2 == 0 ? 0x5140u : 0x7362u);
    }
  } else {
    sm80::code_pairs<Code, Element>::decode(words, pairs);
  }
#pragma unroll
  for (std::uint32_t& pair : pairs) {
    if constexpr (sm80::is_whole(Code)) {
      pair = arithmetic::multiply_add(arithmetic::subtract(pair, numbers.anchor), numbers.scale,
                                      numbers.bias);
    } else {
      pair = arithmetic::multiply(pair, numbers.scale);
    }
  }
}

inline constexpr int order_threads = 256;

/// Rows of x on their way to boxes in the order of the codes: for each tile of `height` rows and
/// each stage, panels as the matrix unit has them (prim/cuda/wgmma.hpp). Zeros fill them up.
struct ordered_rows {
  strided_matrix x;
  void* to = nullptr;
  std::int64_t batch = 0;
  std::int64_t columns_of_x = 0;  ///< a multiple of 8
  int height = 0;                 ///< a power of two
  int tiles = 0;
  int stages = 0;
  int lines = 0;         ///< of a stage
  bool aligned = false;  ///< rows of x lie at multiples of 16 bytes
};

/// Where a thread reads x: eight elements each time, so many rows and columns on.
struct places_of_x {
  std::int64_t row, column;
  int row_step = 0, column_step = 0;
};

/// Eight elements of x at each of `Count` places, all of which come together; zeros where there are
/// none.
template <int Count>
__device__ __forceinline__ void load_eights_of_x(const ordered_rows& rows, const places_of_x& at,
                                                 std::uint32_t (&words)[Count][4]) {
  const auto load = [&](auto&& eight) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const std::int64_t row = at.row + i * at.row_step, column = at.column + i * at.column_step;
      words[i][0] = words[i][1] = words[i][2] = words[i][3] = 0;
      if (row >= rows.batch || column >= rows.columns_of_x) continue;
      eight(static_cast<const std::uint16_t*>(rows.x.data) + row * rows.x.row + column, words[i]);
    }
  };
  if (rows.aligned) {
    load([](const std::uint16_t* from, std::uint32_t(&to)[4]) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
    });
  } else {
    load([](const std::uint16_t* from, std::uint32_t(&to)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[i] = from[2 * i] | static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
      }
    });
  }
}

/// Eight elements of x as they meet the pairs of a chunk.
template <thin_code Code>
__device__ __forceinline__ void put_in_order(const std::uint32_t (&words)[4],
                                             std::uint32_t (&own)[4]) {
  constexpr bool alternate = sm80::code_pairs<Code, bf16>::alternate;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = words[i / 2 * 2], high = words[i / 2 * 2 + 1];
    own[i] = !alternate   ? (i % 2 == 0 ? low : high)
             : i % 2 == 0 ? __byte_perm(low, high, 0x5410u)
                          : __byte_perm(low, high, 0x7632u);
  }
}

/// A thread has eight columns, the words of a lane for one chunk, of `Together` rows, which come
/// before the first of them is stored: a load takes as long as all. Blocks: of units, and of rows.
/// `Wide`: threads of a quad have the same chunk of four lanes and exchange words, so that each
/// stores 16 bytes: for many rows.
template <thin_code Code, bool Wide = false, int Together = 1>
__global__ void __launch_bounds__(order_threads) order_rows(const ordered_rows rows) {
  using line = code_line<Code>;
  prim::cuda::wait_for_grid_before();
  prim::cuda::let_next_grid_start();
  constexpr int units_of_line = line::columns / 8;
  const int units_of_stage = rows.lines * units_of_line;
  const int number = static_cast<int>(blockIdx.x) * order_threads + static_cast<int>(threadIdx.x);
  const bool exists = number < rows.stages * units_of_stage;
  if (!Wide && !exists) return;
  const int of_line = number % units_of_line;
  const int lane = Wide ? of_line % 4 : of_line / line::chunks;
  const int chunk = Wide ? of_line / 4 : of_line % line::chunks;
  const int unit = number - of_line + lane * line::chunks + chunk;
  const int stage = number / units_of_stage, of_stage = number % units_of_stage;
  const int panels = units_of_stage / 8;
  // Sixteen bytes of a row, the first of four: half a product of 16 columns.
  const int half = (of_stage / units_of_line * line::chunks + chunk) * 4;
  const int all = rows.tiles * rows.height, stride = static_cast<int>(gridDim.y);
  const int height_shift = 31 - __clz(rows.height);
#pragma unroll 1
  for (int first = static_cast<int>(blockIdx.y); first < all; first += Together * stride) {
    std::uint32_t words[Together][4];
    load_eights_of_x(rows, {.row = first, .column = std::int64_t{unit} * 8, .row_step = stride},
                     words);
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      const int row = first + i * stride;
      if (row >= all) break;
      std::uint32_t own[4];
      put_in_order<Code>(words[i], own);
      const int tile = row >> height_shift, in_tile = row & (rows.height - 1);
      const std::int64_t box = (std::int64_t{tile} * rows.stages + stage) * panels * rows.height;
      const auto place_of = [&](int at) {
        return static_cast<std::byte*>(rows.to) + (box + at / 8 * rows.height + in_tile) * 128 +
               ((at % 8) ^ (in_tile % 8)) * 16;
      };
      if constexpr (Wide) {
        const uint4 of_lanes = grouped_matmul::sm90::neighbours_of_quad(own);
        if (exists) *reinterpret_cast<uint4*>(place_of(half + lane)) = of_lanes;
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          *reinterpret_cast<std::uint32_t*>(place_of(half + k) + lane * 4) = own[k];
        }
      }
    }
  }
}

}  // namespace tessera::kernels::quantized::sm90
