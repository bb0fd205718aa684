// The family of quantised weights as the chain of choosers sees it; see runtime/family.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/families/quantized/cost.hpp>
#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/families/quantized/fits.hpp>
#include <tessera/families/quantized/reflect.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

struct quantized_family {
  using config_type = quantized_config;
  using demand_type = quantized_demand;
  using facts_type = quantized_facts;

  static constexpr std::string_view name = "quantized";
  static constexpr int number = 10;
  static constexpr int semantic_version = 1;
  static constexpr double max_log2_distance = 2;
  static constexpr std::span<const operation> operations = quantized_operations;
  static constexpr std::span<const demand_field> fields = quantized_fields::table;

  /// "dequantize, mxfp4, 4096 x 4096 weights": what a row does, before how the work is cut. Every
  /// kernel knows weights in rows: those that lie k-major cost a copy, and on GPUs groups of
  /// outputs and very many rows of x a decoding into memory.
  [[gnu::cold]] static std::string subject_of(const quantized_config& config,
                                              const quantized_facts& facts) {
    const std::string_view copied = facts.demand.axis != weight_axis::k_major ? ""
                                    : facts.demand.pass == quantized_pass::quantize
                                        ? ", copied out of rows by each call"
                                        : ", copied into rows by each call";
    const std::string_view decoded =
        decodes_first(config, facts.demand) ? ", decoded before the product" : "";
    return sentence({name_of(config.pass), ", ", name_in(weight_mode_names, facts.demand.mode),
                     ", ", facts.demand.rows, " x ", facts.demand.columns, " weights", copied,
                     decoded});
  }

  /// The row that would be made for this demand.
  static quantized_config wanted_config(const quantized_demand& demand, backend target,
                                        backend highest) noexcept {
    quantized_config wanted{.target = target, .pass = demand.pass};
    if (!is_cuda(target)) {
      if (!has_byte_products(highest) || demand.pass != quantized_pass::forward) return wanted;
      using fits = fits_of<quantized_config>;
      const bool few = demand.batch <= 8 * std::max<std::int64_t>(demand.matrices, 1);
      if (has_tile_products(highest) && fits::has_tile_codes(demand) && !few) {
        wanted.target = backend::cpu_amx_bf16;
      } else if (highest == backend::cpu_avx512_bf16 && fits::has_pair_codes(demand)) {
        wanted.target = backend::cpu_avx512_bf16;
      } else if (fits::has_whole_codes(demand)) {
        wanted.target = backend::cpu_avx512_vnni;
      }
      return wanted;
    }
    if (is_product(wanted.pass)) wanted.type = demand.type;
    wanted.target = highest;
    if (!is_legal(wanted)) wanted.target = target;
    return wanted;
  }
};

}  // namespace tessera
