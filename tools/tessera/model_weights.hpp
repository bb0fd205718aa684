// How a model publishes the weights of its products: as numbers of the layers' type, or packed in
// few bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/families/quantized/options.hpp>

#include "model_layers.hpp"

namespace tessera::tool {

class model_source;
struct linear_product;

/// Packed weights, with groups along the inputs.
struct weight_packing {
  weight_mode mode = weight_mode::affine;
  std::int64_t bits = 0;
  std::int64_t group_size = 0;
  bool experts_only = false;  ///< other products have numbers of the layers' type
};

/// What `quantization_config` says of the products of layers: mxfp4 of the experts, gptq and awq of
/// all but routers; none where there is no such key, or weights have no groups or are packed in
/// another way (fp8 and others).
std::optional<weight_packing> read_packing(const model_source& source);

/// Packs the weights of a product that the model publishes so, where inputs are whole groups.
void pack_weights(linear_product& product, const std::optional<weight_packing>& packing);

/// The text of a product with packed weights: quantized_matmul, quantized_grouped_matmul, or their
/// gradients. They add no bias.
std::string packed_problem_of(const linear_product& product, const layer_call& call);

}  // namespace tessera::tool
