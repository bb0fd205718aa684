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

  static constexpr std::array rules{fit_rule<config, asked>{
      .name = "operands",
      .distance = 2,
      .holds =
          [](const config& row, const asked& wanted) noexcept {
            return !has_bf16_products(row.target) || wanted.is_bf16();
          },
      .obstacle =
          [](const config&, const asked& wanted) {
            if (wanted.scaled) return std::string("rhs_scale is given, the row multiplies bf16");
            dtype other = wanted.type == dtype::bf16 ? wanted.rhs_type : wanted.type;
            if (other == dtype::bf16) other = wanted.d_out_type;
            return sentence({"operands are ", name_of(other), ", the row multiplies bf16"});
          }}};
};

/// No row is a last resort: all of them take every size.
constexpr bool is_generic(const grouped_matmul_config&) noexcept {
  return false;
}

}  // namespace tessera
