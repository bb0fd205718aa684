// What a model multiplies its tokens by: projections around what mixes tokens, feed-forward
// networks, experts and the head, as the text of problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model_layers.hpp"
#include "model_weights.hpp"

namespace tessera::tool {

class model_source;

/// Rows of tokens times weights, which are [outputs,inputs] as models store them. Weights that
/// multiply the same rows are one matrix.
struct linear_product {
  std::string name{};  ///< "qkv"
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = false;
  std::int64_t times = 1;    ///< how often a layer asks it
  std::int64_t experts = 0;  ///< matrices of which each token takes some; 0: one for all tokens
  std::int64_t experts_per_token = 0;
  std::int64_t heads = 0;  ///< a matrix [inputs,outputs] for each head of a token; 0: one for all
  bool goes_on = false;    ///< asked only of sequences that have begun before
  bool routes = false;     ///< says which experts tokens take: models keep its weights as numbers
  std::optional<weight_packing> packing{};  ///< none: weights are of the layers' type
};
using linear_products = std::vector<linear_product>;

/// The text of the problem: matmul, grouped_matmul where tokens take experts, their quantized forms
/// where weights are packed, or gradients.
std::string problem_of(const linear_product& product, const layer_call& call);

/// The products around a token mixer of the model, from its rows of `hidden` columns and back.
linear_products products_of(const model_source& source, const token_mixer& mixer,
                            std::int64_t hidden);

/// What layers do with each token behind the mixer.
struct feed_forward {
  std::string name;  ///< "gated 14336", "8 of 128 experts of 768"
  std::int64_t layers = 0;
  linear_products products{};
};

/// A feed-forward network that all tokens share; no products: the model has none.
feed_forward dense_feed_forward(const model_source& source, std::int64_t hidden);
/// Experts with their router and with what all tokens share.
feed_forward expert_feed_forward(const model_source& source, std::int64_t hidden);
/// True if layer `index` has experts.
bool has_experts(const model_source& source, std::int64_t index);

/// True for models that read whole sequences at once and make no tokens.
bool is_encoder(std::string_view type);

/// The last product of a model, from tokens to logits, and its loss.
struct model_head {
  std::int64_t hidden = 0;
  std::int64_t classes = 0;  ///< 0: the model has no head
  std::string logits_soft_cap{};

  /// Logits of the last token of each sequence.
  std::string problem(const layer_call& call) const;
  /// The loss over all tokens, or its gradients.
  std::string loss(const layer_call& call) const;
};
model_head read_head(const model_source& source, std::int64_t hidden);

}  // namespace tessera::tool
