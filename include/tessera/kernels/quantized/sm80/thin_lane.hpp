// What a warp of a product of few rows does with a stage: codes of 16 outputs become the first
// operand, sums of a group are scaled in f32.
//
// With e the element of a code, code = factor e - anchor, so the sum over a group of
// (code - zero) scale x is scale factor sum(e x) - scale (anchor + zero) sum(x).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/thin_codes.hpp>
#include <tessera/kernels/quantized/sm80/thin_stage.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_words.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::quantized::sm80 {

/// Sums of a warp, of 16 outputs and 8 rows of x each.
template <int Tiles>
struct thin_sums {
  prim::cuda::accumulator of[Tiles] = {};

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& tile : of) tile = {};
  }
};

/// What sums of a group are multiplied with, of outputs g and g + 8.
struct thin_numbers {
  float scale[2];
  float offset[2];  ///< of sums of x
};

/// A scale of an mx group: 2^exponent, without a branch.
__device__ __forceinline__ float mx_scale(mx_scale_encoding encoding, std::uint32_t byte) {
  const bool is_signed = encoding == mx_scale_encoding::int8;
  const int exponent = static_cast<int>(byte ^ (is_signed ? 0x80u : 0u)) - (is_signed ? 1 : 0);
  const int normal = max(exponent << 23, 0x400000);  // 2^-127 below the least normal number
  const int least = exponent < 0 ? 0x200000 : normal;
  return __int_as_float(exponent == 255 ? 0x7fc00000 : least);
}
template <class Number>
__device__ __forceinline__ float shared_number(std::uint32_t at) {
  if constexpr (std::is_same_v<Number, float>) {
    return __uint_as_float(prim::cuda::load_shared_4(at));
  } else {
    return prim::cuda::half_words<Number>::unpack(prim::cuda::load_shared_2(at));
  }
}

/// Where a lane finds what it needs of a stage. Sums go to the totals after every `Period` columns,
/// which are part of one group: 16 of nv, 32 of mx, else 32 or 64.
template <class Element, thin_code Code, int Period, int Tiles>
class thin_lane {
  using layout = thin_layout<Code, Tiles>;
  using pairs = code_pairs<Code, Element>;
  using words = prim::cuda::half_words<Element>;
  static constexpr bool is_short = Period == 16;  ///< a group has the columns of one product

 public:
  __device__ __forceinline__ thin_lane(const thin_args& args) : args_(args) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    g_ = lane / 4;
    t_ = lane % 4;
    output_ = warp * 16 + g_;
  }

  /// Adds the products of stage `number` of a tile to `totals`.
  __device__ __forceinline__ void multiply(std::uint32_t stage, int number,
                                           thin_sums<Tiles>& totals) const {
    if constexpr (has_byte_scales(Code)) {
      multiply_with<std::uint8_t>(stage, number, totals);
    } else {
      // The type is asked for once a stage, not once a group.
      const dtype type = args_.call.weights.scales.type;
      if (type == dtype::f32) return multiply_with<float>(stage, number, totals);
      if (type == dtype::f16) return multiply_with<f16>(stage, number, totals);
      multiply_with<bf16>(stage, number, totals);
    }
  }

  /// Calls body(row of x, output of the tile, sum).
  template <class Body>
  __device__ __forceinline__ void each(const thin_sums<Tiles>& totals, const Body& body) const {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * 8 + static_cast<int>(t_) * 2 + i % 2;
        body(row, static_cast<int>(output_) + i / 2 * 8, totals.of[tile].at[i]);
      }
    }
  }

 private:
  template <class Number>
  __device__ __forceinline__ void multiply_with(std::uint32_t stage, int number,
                                                thin_sums<Tiles>& totals) const {
    const std::uint32_t scales = numbers_at(args_.scales, stage + layout::scales_at, number);
    const std::uint32_t zeros =
        numbers_at(args_.zeros,
                   stage + layout::scales_at +
                       static_cast<std::uint32_t>(layout::outputs * args_.scales.bytes),
                   number);
#pragma unroll 1
    for (int line = 0; line < layout::lines; ++line) {
      multiply_line<Number>(stage, line, scales, zeros, totals);
    }
  }

  template <class Number>
  __device__ __forceinline__ void multiply_line(std::uint32_t stage, int line, std::uint32_t scales,
                                                std::uint32_t zeros,
                                                thin_sums<Tiles>& totals) const {
    thin_sums<Tiles> sums, sums_of_x;
    const std::uint32_t codes = stage + static_cast<std::uint32_t>(line * line_bytes);
    const std::uint32_t of_x =
        stage + layout::code_bytes + static_cast<std::uint32_t>(line * layout::columns_of_line * 2);
#pragma unroll
    for (int chunk = 0; chunk < layout::columns_of_line / thin_chunk; ++chunk) {
      std::uint32_t low[4], high[4];
      decode(codes, output_, chunk, low);
      decode(codes, output_ + 8, chunk, high);
      prim::cuda::fragment_b2 x[Tiles];
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) load_x(of_x, tile, chunk, x[tile]);
      thin_numbers numbers[2];
      constexpr int chunks = Period / thin_chunk;
      if (Period < thin_chunk || (chunk + 1) % std::max(chunks, 1) == 0) {
        const int first = chunk + 1 - std::max(chunks, 1);
        const int column = line * layout::columns_of_line + first * thin_chunk;
        load_numbers<Number>(scales, zeros, column >> args_.group_shift, numbers);
      }
#pragma unroll
      for (int product = 0; product < 2; ++product) {
        const prim::cuda::fragment_a a{
            {low[2 * product], high[2 * product], low[2 * product + 1], high[2 * product + 1]}};
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          add(sums.of[tile], a, x[tile], product);
          if constexpr (is_whole(Code)) add(sums_of_x.of[tile], ones(), x[tile], product);
        }
        if ((chunk * thin_chunk + product * 16 + 16) % Period != 0) continue;
        scale(numbers[is_short ? product : 0], sums, sums_of_x, totals);
      }
    }
  }

  static __device__ __forceinline__ prim::cuda::fragment_a ones() {
    constexpr std::uint32_t both = pairs::is_f16 ? 0x3c003c00u : 0x3f803f80u;
    return {{both, both, both, both}};
  }
  static __device__ __forceinline__ void add(prim::cuda::accumulator& sum,
                                             const prim::cuda::fragment_a& a,
                                             const prim::cuda::fragment_b2& x, int product) {
    if (product == 0) {
      words::template multiply_add<0>(sum, a, x);
    } else {
      words::template multiply_add<1>(sum, a, x);
    }
  }

  /// The lane's codes of 32 columns of an output: eight side by side, or four of each 16.
  __device__ __forceinline__ void decode(std::uint32_t from, std::uint32_t output, int chunk,
                                         std::uint32_t (&to)[4]) const {
    constexpr int count = layout::bits / 4;
    constexpr int span = thin_chunk * layout::bits / 8 / 16;  // chunks of 16 bytes
    std::uint32_t codes[count];
    const auto at = [&](std::uint32_t byte) {
      return from +
             code_offset<layout>(output, static_cast<std::uint32_t>(chunk * span) + byte / 16) +
             byte % 16;
    };
    if constexpr (!is_short) {
      if constexpr (count == 1) {
        codes[0] = prim::cuda::load_shared_4(at(t_ * 4));
      } else {
        prim::cuda::load_shared_8(codes[0], codes[1], at(t_ * 8));
      }
    } else if constexpr (count == 1) {
      const std::uint32_t first = prim::cuda::load_shared_2(at(t_ * 2));
      codes[0] = first | std::uint32_t{prim::cuda::load_shared_2(at(8 + t_ * 2))} << 16;
    } else {
      codes[0] = prim::cuda::load_shared_4(at(t_ * 4));
      codes[1] = prim::cuda::load_shared_4(at(16 + t_ * 4));
    }
    pairs::decode(codes, to);
  }

  /// The same columns of eight rows of x, in the order of the codes' pairs.
  __device__ __forceinline__ void load_x(std::uint32_t from_stage, int tile, int chunk,
                                         prim::cuda::fragment_b2& to) const {
    std::uint32_t from[4];
    const auto at = [&](std::uint32_t byte) {
      return from_stage +
             x_offset<layout>(static_cast<std::uint32_t>(tile * 8) + g_,
                              static_cast<std::uint32_t>(chunk * 4) + byte / 16) +
             byte % 16;
    };
    if constexpr (is_short) {
      prim::cuda::load_shared_8(from[0], from[1], at(t_ * 8));
      prim::cuda::load_shared_8(from[2], from[3], at(32 + t_ * 8));
    } else {
      prim::cuda::load_shared_16(from, at(t_ * 16));
    }
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      if constexpr (pairs::alternate) {
        to.reg[half] = __byte_perm(from[half], from[half + 1], 0x5410u);
        to.reg[half + 1] = __byte_perm(from[half], from[half + 1], 0x7632u);
      } else {
        to.reg[half] = from[half];
        to.reg[half + 1] = from[half + 1];
      }
    }
  }

  /// Where the numbers of the lane's lower output begin in a stage.
  __device__ __forceinline__ std::uint32_t numbers_at(const group_bytes& of, std::uint32_t stage,
                                                      int number) const {
    const std::int64_t group = std::int64_t{number} * layout::columns >> args_.group_shift;
    // Where a group is as long as a stage, its number may lie behind another one.
    const auto before = static_cast<std::uint32_t>(group * of.number) & 3u;
    return stage + output_ * static_cast<unsigned>(of.bytes) + (of.bytes == 4 ? before : 0u);
  }

  /// The numbers of a group of a stage, in short groups of the next one too.
  template <class Number>
  __device__ __forceinline__ void load_numbers(std::uint32_t scales, std::uint32_t zeros, int group,
                                               thin_numbers (&to)[2]) const {
    const packed_weights& weights = args_.call.weights;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto below = static_cast<unsigned>(r * 8);
      const std::uint32_t at = scales + below * static_cast<unsigned>(args_.scales.bytes) +
                               static_cast<unsigned>(group) * sizeof(Number);
      if constexpr (!has_byte_scales(Code)) {
        to[0].scale[r] = shared_number<Number>(at);
      } else if constexpr (is_short) {
        const float2 both = prim::cuda::floats_of<f8_e4m3>(prim::cuda::load_shared_2(at));
        to[0].scale[r] = both.x;
        to[1].scale[r] = both.y;
      } else {
        to[0].scale[r] = mx_scale(weights.encoding, prim::cuda::load_shared_1(at));
      }
      if constexpr (is_whole(Code)) {
        const float zero =
            shared_number<Number>(zeros + below * static_cast<unsigned>(args_.zeros.bytes) +
                                  static_cast<unsigned>(group) * sizeof(Number));
        const float own = to[0].scale[r];
        to[0].offset[r] = weights.form == affine_weight_form::bias ? fmaf(-pairs::anchor, own, zero)
                                                                   : -(pairs::anchor + zero) * own;
        to[0].scale[r] = own * pairs::factor;
      }
    }
  }

  /// Sums of a group go to the totals, and begin anew.
  __device__ __forceinline__ void scale(const thin_numbers& numbers, thin_sums<Tiles>& sums,
                                        thin_sums<Tiles>& sums_of_x,
                                        thin_sums<Tiles>& totals) const {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& total = totals.of[tile].at[i];
        total = fmaf(sums.of[tile].at[i], numbers.scale[i / 2], total);
        if constexpr (is_whole(Code)) {
          total = fmaf(sums_of_x.of[tile].at[i], numbers.offset[i / 2], total);
        }
      }
    }
    sums.clear();
    if constexpr (is_whole(Code)) sums_of_x.clear();
  }

  const thin_args& args_;
  unsigned g_, t_;
  unsigned output_;  ///< of the tile, the lower one
};

}  // namespace tessera::kernels::quantized::sm80
