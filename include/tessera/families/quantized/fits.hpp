// Which rows of quantised weights can run which problems: rows take every size, and of products
// on a GPU the operands that they multiply, or on a CPU the codes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/row_properties.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<quantized_config> {
  using config = quantized_config;
  using asked = quantized_demand;

  /// Whether numbers of f16 hold what weights of a mode are: scales of others may be any power of
  /// two, or as large as their codes.
  static constexpr bool fits_f16(weight_mode mode) noexcept {
    return has_float_scales(mode) || mode == weight_mode::nvfp4;
  }
  static constexpr fit_rule<config, asked> operands{
      .name = "operands",
      .distance = 2,
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            if (row.type == dtype::none || row.type == dtype::f32) return true;
            return row.type == wanted.type && (row.type != dtype::f16 || fits_f16(wanted.mode));
          },
      .obstacle =
          [](const config& row, const asked& wanted) {
            if (row.type == wanted.type) {
              return sentence({"weights are ", name_in(weight_mode_names, wanted.mode),
                               ", the row multiplies ", name_of(row.type)});
            }
            return sentence({"operands are ", name_of(wanted.type), ", the row multiplies ",
                             name_of(row.type)});
          }};
  /// Whole numbers, or halves of them, from groups of inputs.
  static constexpr bool has_whole_codes(const asked& wanted) noexcept {
    const bool affine =
        wanted.mode == weight_mode::affine && (wanted.bits == 4 || wanted.bits == 8);
    return has_groups_of_inputs(wanted.axis) &&
           (affine || wanted.mode == weight_mode::mxfp4 || wanted.mode == weight_mode::nvfp4);
  }
  /// Codes of 4 bits from groups of inputs that meet x of bf16. bf16 has the entries of nf4 as far
  /// as a product of bf16 keeps them.
  static constexpr bool has_pair_codes(const asked& wanted) noexcept {
    return has_groups_of_inputs(wanted.axis) && wanted.bits == 4 && wanted.type == dtype::bf16;
  }
  /// Codes of 4 bits from groups of inputs that have whole words of tiles. bf16 has the entries of
  /// nf4 as far as a product of bf16 keeps them.
  static constexpr bool has_tile_codes(const asked& wanted) noexcept {
    return has_groups_of_inputs(wanted.axis) && wanted.bits == 4 && wanted.group_size >= 32 &&
           (wanted.mode != weight_mode::nf4 || wanted.type == dtype::bf16);
  }
  static constexpr fit_rule<config, asked> codes{
      .name = "codes",
      .distance = 2,
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            if (multiplies_tiles(row)) return has_tile_codes(wanted);
            if (multiplies_pairs(row)) return has_pair_codes(wanted);
            return !multiplies_codes(row) || has_whole_codes(wanted);
          },
      .obstacle =
          [](const config& row, const asked& wanted) {
            const std::string_view taken =
                multiplies_tiles(row)
                    ? "4 bits in groups of at least 32, axis col or k_major, nf4 by bf16"
                : multiplies_pairs(row)
                    ? "4 bits, axis col or k_major, by bf16"
                    : "mxfp4, nvfp4 and affine ones of 4 or 8 bits, axis col or k_major";
            return sentence({"codes are ", name_in(weight_mode_names, wanted.mode), " of ",
                             wanted.bits, " bits in groups of ", wanted.group_size, ", axis ",
                             name_in(weight_axis_names, wanted.axis), ", x is ",
                             name_of(wanted.type), ", the row multiplies ", taken});
          }};
  static constexpr std::array rules{
      same_value<&quantized_config::pass, &quantized_demand::pass>("pass"),
      operands,
      codes,
  };
};

/// On GPUs a few rows of x have a kernel of their own.
constexpr row_properties properties_of(const quantized_config& row) noexcept {
  if (is_cpu(row.target) || row.pass != quantized_pass::forward) return {};
  return {.batch_invariant = batch_invariance::none};
}

}  // namespace tessera
