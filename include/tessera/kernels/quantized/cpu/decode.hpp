// Packed weights as floats: a part of a stored row at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/values.hpp>
#include <tessera/prim/cpu/code_lanes.hpp>
#include <tessera/prim/cpu/code_rows.hpp>
#include <tessera/prim/cpu/nibble_lanes.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

/// Columns that are decoded at a time, at most: of whole blocks of codes.
inline constexpr int most_decoded = 512;

/// What codes of four bits stand for without a table of their own.
inline constexpr std::array<float, 16> whole_values{0.0f,  1.0f,  2.0f,  3.0f, 4.0f,  5.0f,
                                                    6.0f,  7.0f,  8.0f,  9.0f, 10.0f, 11.0f,
                                                    12.0f, 13.0f, 14.0f, 15.0f};

/// Whether zeros are added to scaled codes.
inline bool is_biased(const packed_weights& weights) {
  return weights.form == affine_weight_form::bias && weights.zeros.data != nullptr;
}

/// Which weights a reader gives: as they are, or before the scale of their group.
enum class decoded_form : std::uint8_t { scaled, unscaled };

/// Reads rows of packed weights.
template <class Isa, decoded_form Form = decoded_form::scaled>
class weight_reader {
 public:
  TESSERA_INLINE explicit weight_reader(const packed_weights& from) : from_(from) {}

  /// Columns [first, first + count) of a row, and zeros up to a whole block of codes. `first` is a
  /// multiple of most_decoded, or of a block inside one.
  void read(std::int64_t row, std::int64_t first, int count, float* to) const {
    switch (from_.mode) {
      case weight_mode::affine:
        return read_blocks(row, first, count, to, [](const std::int32_t* codes, float* values) {
          for (int i = 0; i < prim::codes_of_block; ++i) values[i] = static_cast<float>(codes[i]);
        });
      case weight_mode::nf4:
        return read_blocks(row, first, count, to, [](const std::int32_t* codes, float* values) {
          lanes::look_up(nf4_values.data(), codes, values);
        });
      case weight_mode::mxfp4:
      case weight_mode::nvfp4:
        return read_blocks(row, first, count, to, [](const std::int32_t* codes, float* values) {
          lanes::look_up(e2m1_values.data(), codes, values);
        });
      case weight_mode::mxfp8:
      case weight_mode::nvfp8:
        return read_blocks(row, first, count, to, [](const std::int32_t* codes, float* values) {
          for (int i = 0; i < prim::codes_of_block; ++i) {
            values[i] = e4m3_value(codes[i]);
          }
        });
    }
  }

  /// Whether weights can be given in paired order (prim/cpu/nibble_lanes.hpp): codes of four bits
  /// in groups that have whole blocks, or half ones.
  static bool pairs(const packed_weights& weights) {
    return weights.bits == 4 && weights.group_size >= vec::width &&
           weights.columns() % prim::codes_of_block == 0;
  }
  /// Groups whose numbers `numbers_of_groups` holds.
  static constexpr int most_groups = most_decoded / 8;
  struct numbers_of_groups {
    alignas(64) float scales[most_groups + prim::simd<Isa>::width];  ///< a register from any on
    alignas(64) float zeros[most_groups];
  };
  /// The numbers of the groups of columns [first, first + count) of a row, as far as the form needs
  /// them.
  TESSERA_INLINE void read_numbers(std::int64_t row, std::int64_t first, int count,
                                   numbers_of_groups& to) const {
    const int group = static_cast<int>(from_.group_size);
    const int groups = (count + group - 1) / group;
    if constexpr (Form == decoded_form::scaled) read_scales(row, first / group, groups, to.scales);
    const bool biased = from_.form == affine_weight_form::bias;
    if (has_zeros() && (Form == decoded_form::scaled || !biased)) {
      prim::load_row<Isa>(from_.zeros, row * from_.zeros.row + first / group, groups, to.zeros);
    } else {
      std::fill(to.zeros, to.zeros + groups, 0.0f);
    }
  }

  /// The columns of `read`, in paired order, of rows side by side: calls visit(place in `rows`,
  /// column, even, odd) block by block and there row by row, `column` from `first` on. numbers[i]
  /// from group `skipped` on are those of the columns of rows[i].
  ///
  /// Codes `bytes_ahead` behind those that are read are asked for: rows are read a few lines at a
  /// time, where no prefetcher follows.
  template <int Rows, class Visit>
  TESSERA_INLINE void read_pairs(const std::int64_t (&rows)[Rows], std::int64_t first, int count,
                                 const numbers_of_groups* numbers, int skipped,
                                 std::int64_t bytes_ahead, const Visit& visit) const {
    const int group = static_cast<int>(from_.group_size);
    const bool biased = is_biased(from_);
    const std::byte* codes[Rows];
    TESSERA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      codes[i] =
          reinterpret_cast<const std::byte*>(static_cast<const std::uint32_t*>(from_.codes.data) +
                                             rows[i] * from_.codes.row) +
          first / 2;
    }
    const float* const entries = from_.mode == weight_mode::affine ? whole_values.data()
                                 : from_.mode == weight_mode::nf4  ? nf4_values.data()
                                                                   : e2m1_values.data();
    const auto table = [&](int i, int of) {
      const numbers_of_groups& own = numbers[i];
      return nibbles::table_of(entries,
                               {own.scales[skipped + of], own.zeros[skipped + of], biased});
    };
    reg even, odd;
    if (group < nibbles::block) {
      for (int at = 0; at < count; at += nibbles::block) {
        const int of = at / group;
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          nibbles::look_up(table(i, of), table(i, of + 1), codes[i] + at / 2, even, odd);
          visit(i, at, even, odd);
        }
      }
      return;
    }
    for (int at = 0, of = 0; at < count; ++of) {
      typename nibbles::table own[Rows];
      TESSERA_UNROLL
      for (int i = 0; i < Rows; ++i) own[i] = table(i, of);
      const int end = count - at < group ? count : at + group;
      for (; at < end; at += nibbles::block) {
        if (at % codes_of_line == 0) {
          TESSERA_UNROLL
          for (int i = 0; i < Rows; ++i) TESSERA_PREFETCH(codes[i] + at / 2 + bytes_ahead);
        }
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          nibbles::look_up(own[i], codes[i] + at / 2, even, odd);
          visit(i, at, even, odd);
        }
      }
    }
  }

  /// The scales of all groups of a row, and anything up to a whole block.
  void read_all_scales(std::int64_t row, float* to) const {
    const auto groups = static_cast<int>(from_.groups);
    if (has_float_scales(from_.mode)) return read_scales(row, 0, groups, to);
    for (int first = 0; first < groups; first += most_groups) {
      read_scales(row, first, std::min(most_groups, groups - first), to + first);
    }
  }

  /// The scales of groups [first, first + count) of a row, and anything up to a whole block.
  void read_scales(std::int64_t row, std::int64_t first, int count, float* to) const {
    const std::int64_t at = row * from_.scales.row + first;
    if (has_float_scales(from_.mode)) return prim::load_row<Isa>(from_.scales, at, count, to);
    const auto* const bytes = static_cast<const std::uint8_t*>(from_.scales.data) + at;
    if (is_mx(from_.mode)) {
      bf16 powers[most_groups];
      for (int i = 0; i < count; ++i) powers[i].bits = bits_of_power(bytes[i]);
      return prim::load_row<Isa>(powers, count, to);
    }
    // Whole registers are stored here too: half ones would hold up who reads whole ones.
    prim::widen_row<Isa>(reinterpret_cast<const f8_e4m3*>(bytes), count, to);
    if (from_.tensor_scale == nullptr) return;
    const float of_tensor = *static_cast<const float*>(from_.tensor_scale);
    prim::scale_row<Isa>(to, (count + prim::code_block - 1) / prim::code_block * prim::code_block,
                         of_tensor);
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using lanes = prim::code_lanes<Isa>;
  using nibbles = prim::nibble_lanes<Isa>;
  static constexpr int codes_of_line = 128;
  /// The power of two that a code stands for, as bf16 has it, numbers that are not normal too.
  TESSERA_INLINE std::uint16_t bits_of_power(std::uint8_t code) const {
    const bool is_biased = from_.encoding == mx_scale_encoding::e8m0;
    const int exponent = is_biased ? code : static_cast<std::int8_t>(code) + 127;
    const int bits = exponent > 0 ? exponent << 7 : 0x40 >> -exponent;
    return static_cast<std::uint16_t>(is_biased && code == 255 ? 0x7fc0 : bits);
  }

  bool has_zeros() const { return from_.zeros.data != nullptr; }

  template <class Values>
  TESSERA_INLINE void read_blocks(std::int64_t row, std::int64_t first, int count, float* to,
                                  const Values& values_of) const {
    numbers_of_groups numbers;
    const float *const scales = numbers.scales, *const zeros = numbers.zeros;
    const int group = static_cast<int>(from_.group_size);
    read_numbers(row, first, count, numbers);
    const bool biased = from_.form == affine_weight_form::bias;
    const auto* const words = static_cast<const std::uint32_t*>(from_.codes.data) +
                              row * from_.codes.row + first / prim::codes_of_block * from_.bits;
    for (int at = 0; at < count; at += prim::codes_of_block) {
      const int block = count - at < prim::codes_of_block ? count - at : prim::codes_of_block;
      alignas(64) std::int32_t codes[prim::codes_of_block];
      lanes::unpack(words + at / prim::codes_of_block * from_.bits, (block * from_.bits + 31) / 32,
                    from_.bits, codes);
      values_of(codes, to + at);
      if (group >= prim::codes_of_block) {
        scale<prim::codes_of_block>(to + at, scales[at / group], zeros[at / group], biased);
      } else if (group == 16) {
        for (int in = 0; in < block; in += 16) {
          const int of = (at + in) / 16;
          scale<16>(to + at + in, scales[of], zeros[of], biased);
        }
      } else {
        for (int in = 0; in < block; in += 8) {
          const int of = (at + in) / 8;
          scale<8>(to + at + in, scales[of], zeros[of], biased);
        }
      }
      for (int i = block; i < prim::codes_of_block; ++i) to[at + i] = 0;
    }
  }

  /// A group, or a block of one.
  template <int Count>
  static TESSERA_INLINE void scale(float* to, float scale, float zero, bool biased) {
    constexpr int together = Count < vec::width ? Count : vec::width;
    const auto s = vec::broadcast(scale), z = vec::broadcast(zero);
    TESSERA_UNROLL
    for (int i = 0; i < Count; i += together) {
      auto weights = together == vec::width ? vec::load(to + i) : vec::load_n(to + i, together);
      if constexpr (Form == decoded_form::unscaled) {
        weights = vec::sub(weights, z);
      } else {
        weights = biased ? vec::fma(weights, s, z) : vec::mul(vec::sub(weights, z), s);
      }
      if constexpr (together == vec::width) {
        vec::store(to + i, weights);
      } else {
        vec::store_n(to + i, weights, together);
      }
    }
  }

  const packed_weights& from_;
};

}  // namespace tessera::kernels::quantized::cpu
