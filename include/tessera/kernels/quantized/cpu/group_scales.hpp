// The scales that sums of lanes are multiplied by, block of codes by block: floats that were read
// before, or bytes that become floats where they are used. Who reads those of a row beforehand
// lets the memory of codes wait.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/code_blocks.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::quantized::cpu {

/// Floats of all groups of rows. Blocks read `Groups`, of which those behind the last one may be
/// anything where columns fill all blocks, and are 0 elsewhere.
template <class Isa, int Groups, int Rows>
class float_scales {
  using blocks = prim::code_blocks<Isa>;
  using reg = typename prim::simd<Isa>::reg;

 public:
  TESSERA_INLINE float_scales(const float* const (&scales)[Rows], int log_group,
                              typename blocks::reg groups_of_lanes)
      : log_group_(log_group), groups_of_lanes_(groups_of_lanes) {
    for (int i = 0; i < Rows; ++i) scales_[i] = scales[i];
  }

  /// Of the lanes of a block of row `row`, which begins with `column`.
  TESSERA_INLINE reg of_block(int row, std::int64_t column) const {
    const float* const own = scales_[row] + (column >> log_group_);
    return blocks::spread(blocks::template load_scales<Groups>(own), groups_of_lanes_);
  }
  TESSERA_INLINE reg of_last_block(int row, std::int64_t column) const {
    return of_block(row, column);
  }

 private:
  const float* scales_[Rows];
  int log_group_;
  typename blocks::reg groups_of_lanes_;
};

/// The bytes of a row of mxfp4 (four groups a block) or nvfp4 (eight): the same floats as
/// `weight_reader` gives, bit by bit.
template <class Isa, int Groups>
class byte_scales {
  using blocks = prim::code_blocks<Isa>;
  using reg = typename prim::simd<Isa>::reg;
  static constexpr bool are_powers = Groups == 4;
  static constexpr std::int64_t group_size = are_powers ? 32 : 16;
  using floats_type =
      std::conditional_t<are_powers, typename blocks::power_scales, typename blocks::e4m3_scales>;

 public:
  /// Whether all of a row have floats that are made in a few instructions: NaN has none, nor have
  /// powers of two below the least normal number.
  static bool serve(const packed_weights& weights, std::int64_t row) {
    const std::uint8_t* const bytes = bytes_of(weights, row);
    if constexpr (are_powers) {
      if (weights.mode != weight_mode::mxfp4) return false;
      const auto add = static_cast<std::uint8_t>(added(weights));
      std::uint8_t least = 255, most = 0;
      for (std::int64_t i = 0; i < weights.groups; ++i) {
        const auto exponent = static_cast<std::uint8_t>(bytes[i] + add);
        least = std::min(least, exponent);
        most = std::max(most, exponent);
      }
      return least > 0 && most < 255;
    } else {
      if (weights.mode != weight_mode::nvfp4 || !(std::fabs(of_tensor(weights)) < 0x1p119f)) {
        return false;
      }
      std::uint8_t most = 0;
      for (std::int64_t i = 0; i < weights.groups; ++i) {
        most = std::max(most, static_cast<std::uint8_t>(bytes[i] & 0x7f));
      }
      return most < 0x7f;
    }
  }

  TESSERA_INLINE byte_scales(const packed_weights& weights, std::int64_t row,
                             typename blocks::reg groups_of_lanes)
      : bytes_(bytes_of(weights, row)),
        groups_(weights.groups),
        floats_(make_floats(weights, groups_of_lanes)) {}

  /// Of the one row there is: row 0.
  TESSERA_INLINE reg of_block(int /*row*/, std::int64_t column) const {
    return floats_(bytes_ + column / group_size);
  }
  TESSERA_INLINE reg of_last_block(int /*row*/, std::int64_t column) const {
    std::uint8_t own[Groups]{};
    const std::int64_t group = column / group_size;
    const auto left = std::min<std::int64_t>(groups_ - group, Groups);
    std::memcpy(own, bytes_ + group, static_cast<std::size_t>(left));
    return floats_(own);
  }

 private:
  static TESSERA_INLINE const std::uint8_t* bytes_of(const packed_weights& weights,
                                                     std::int64_t row) {
    return static_cast<const std::uint8_t*>(weights.scales.data) + row * weights.scales.row;
  }
  static TESSERA_INLINE int added(const packed_weights& weights) {
    return weights.encoding == mx_scale_encoding::e8m0 ? 0 : 127;
  }
  static TESSERA_INLINE float of_tensor(const packed_weights& weights) {
    return weights.tensor_scale == nullptr ? 1.0f
                                           : *static_cast<const float*>(weights.tensor_scale);
  }
  static TESSERA_INLINE floats_type make_floats(const packed_weights& weights,
                                                typename blocks::reg groups_of_lanes) {
    if constexpr (are_powers) return {groups_of_lanes, added(weights)};
    if constexpr (!are_powers) return {groups_of_lanes, of_tensor(weights)};
  }

  const std::uint8_t* bytes_;
  std::int64_t groups_;
  floats_type floats_;
};

}  // namespace tessera::kernels::quantized::cpu
