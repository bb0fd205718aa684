#include "model_weights.hpp"

#include <fmt/format.h>

#include "model_products.hpp"
#include "model_source.hpp"
#include "problem_fields.hpp"

namespace tessera::tool {

std::optional<weight_packing> read_packing(const model_source& source) {
  const auto config = source.nested("quantization_config");
  if (!config) return std::nullopt;
  const std::string method = config->text("quant_method");
  if (method == "mxfp4") {
    return weight_packing{.mode = weight_mode::mxfp4,
                          .bits = bits_of(weight_mode::mxfp4),
                          .group_size = group_size_of(weight_mode::mxfp4),
                          .experts_only = true};
  }
  if (method != "gptq" && method != "awq") return std::nullopt;
  constexpr std::int64_t most_bits = 8, most_group = 1024;
  const boost::json::value* said = config->find("group_size");
  if (said != nullptr && *said == -1) return std::nullopt;  // a scale for all inputs of an output
  const std::int64_t group_size = config->needed("group_size", most_group);
  if (group_size < 8 || (group_size & (group_size - 1)) != 0) {
    config->refuse("group_size", fmt::format("is {}, must be a power of two from 8 to {}",
                                             group_size, most_group));
  }
  return weight_packing{.mode = weight_mode::affine,
                        .bits = config->needed("bits", most_bits),
                        .group_size = group_size};
}

void pack_weights(linear_product& product, const std::optional<weight_packing>& packing) {
  const bool packed = packing && product.heads == 0 && !product.routes &&
                      product.inputs % packing->group_size == 0 &&
                      (product.experts > 0 || !packing->experts_only);
  if (packed) product.packing = packing;
}

std::string packed_problem_of(const linear_product& product, const layer_call& call) {
  const weight_packing& packing = *product.packing;
  const std::int64_t rows = call.batch * call.tokens *
                            (product.experts > 0 ? product.experts_per_token : std::int64_t{1});
  const bool scales_are_floats = has_float_scales(packing.mode);
  field_writer out(call);
  const auto weights = [&](std::string_view name, std::int64_t columns, dtype type) {
    if (product.experts > 0) {
      out.tensor(name, {product.experts, product.outputs, columns}, type);
    } else {
      out.tensor(name, {product.outputs, columns}, type);
    }
  };
  out.tensor("x", {rows, product.inputs})
      .tensor(call.gradient ? "d_out" : "out", {rows, product.outputs});
  weights("w_q", (product.inputs * packing.bits + 31) / 32, dtype::u32);
  const std::int64_t groups = product.inputs / packing.group_size;
  weights("scales", groups, scales_are_floats ? call.type : dtype::u8);
  if (packing.mode == weight_mode::affine) weights("zeros", groups, call.type);
  if (product.experts > 0) out.tensor("group_sizes", {product.experts}, dtype::i32);
  if (packing.mode == weight_mode::affine) {
    out.option("bits", fmt::format("{}", packing.bits))
        .option("group_size", fmt::format("{}", packing.group_size));
  } else {
    out.option("mode", weight_mode_names[static_cast<std::size_t>(packing.mode)]);
  }
  return fmt::format("quantized_{}matmul{}{}", product.experts > 0 ? "grouped_" : "",
                     call.gradient ? "_backward" : "", out.text());
}

}  // namespace tessera::tool
