// Which rows of grouped matrix products can run which problems: rows take every size and option.
#pragma once

#include <array>
#include <string>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/demand.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

template <>
struct fits_of<grouped_matmul_config> {
  using config = grouped_matmul_config;
  using asked = grouped_matmul_demand;

  /// Whether a CUDA row of 8 bits multiplies the operands: both are of its type, or of f8_e5m2 one
  /// is, and the other f8_e4m3.
  static constexpr bool takes_codes(const config& row, const asked& wanted) noexcept {
    const bool has_lhs = wanted.type == row.type, has_rhs = wanted.rhs_type == row.type;
    if (row.type != dtype::f8_e5m2) return has_lhs && has_rhs;
    return (has_lhs || wanted.type == dtype::f8_e4m3) &&
           (has_rhs || wanted.rhs_type == dtype::f8_e4m3) && (has_lhs || has_rhs);
  }

  static constexpr std::array rules{
      fit_rule<config, asked>{
          .name = "operands",
          .distance = 2,
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                if (is_cuda(row.target) && (wanted.has_codes() || is_8_bits(row.type))) {
                  return takes_codes(row, wanted);
                }
                if (row.target == backend::cuda_sm90 && wanted.rhs_type != row.type) return false;
                if (is_cuda(row.target)) return row.type == dtype::f32 || wanted.is_of(row.type);
                if (multiplies_bytes(row)) return wanted.type == dtype::i8 && wanted.has_codes();
                return !has_bf16_products(row.target) || wanted.is_bf16();
              },
          .obstacle =
              [](const config& row, const asked& wanted) {
                if (row.type == wanted.type && is_8_bits(row.type) && !takes_codes(row, wanted)) {
                  return sentence({"rhs is ", name_of(wanted.rhs_type), ", the row multiplies ",
                                   name_of(row.type)});
                }
                const dtype has = is_cuda(row.target)     ? row.type
                                  : multiplies_bytes(row) ? dtype::i8
                                                          : dtype::bf16;
                const bool whole = row.target == backend::cuda_sm80 && wanted.rhs_type == dtype::i8;
                dtype other = wanted.type == has && !whole ? wanted.rhs_type : wanted.type;
                if (other == has && wanted.backward) other = wanted.d_out_type;
                if (wanted.has_scales() && !wanted.has_codes() && other == has) {
                  return sentence({"rhs_scale is given, the row multiplies ", name_of(has)});
                }
                return sentence(
                    {"operands are ", name_of(other), ", the row multiplies ", name_of(has)});
              }},
      fit_rule<config, asked>{
          .name = "alignment",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                // Rows of 8 bits have a kernel for what the copy unit cannot address.
                return wanted.aligned || row.target != backend::cuda_sm90 || is_8_bits(row.type);
              },
          .obstacle = [](const config&, const asked&) -> std::string {
            return "lhs, rhs, d_out: not every row starts at a multiple of 16 bytes, which the row "
                   "needs";
          }},
      fit_rule<config, asked>{
          .name = "rows",
          .holds =
              [](const config& row, const asked& wanted) noexcept {
                return !splits_sums(row) || (!wanted.backward && !wanted.grouped &&
                                             wanted.groups == 1 && wanted.m <= most_split_rows);
              },
          .obstacle = [](const config&, const asked& wanted) -> std::string {
            if (wanted.backward || wanted.grouped || wanted.groups != 1) {
              return "the row multiplies by one matrix, forward";
            }
            return sentence({"lhs has ", wanted.m, " rows, the row takes ", most_split_rows});
          }}};
};

}  // namespace tessera
