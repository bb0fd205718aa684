#include "model_products.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "model_source.hpp"
#include "problem_fields.hpp"

namespace tessera::tool {
namespace {

constexpr std::int64_t max_experts = 65536;

bool is_among(std::string_view type, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, type) != names.end();
}

/// The number of the first of these keys that is there and not 0.
std::optional<std::int64_t> first_number(const model_source& source,
                                         std::initializer_list<std::string_view> keys,
                                         std::int64_t most) {
  for (const std::string_view key : keys) {
    const boost::json::value* value = source.find(key);
    if (value != nullptr && *value != 0) return source.whole_number(key, most);
  }
  return std::nullopt;
}

std::int64_t needed_number(const model_source& source, std::string_view key,
                           std::initializer_list<std::string_view> keys, std::int64_t most) {
  const auto number = first_number(source, keys, most);
  return number ? *number : source.needed(key, most);
}

/// Which projections of attention add a bias.
struct attention_biases {
  bool qkv = false, out = false;
};
attention_biases biases_of(const model_source& source) {
  const std::string type = source.text("model_type");
  if (is_encoder(type)) return {true, true};
  const bool both = source.flag("attention_bias").value_or(false);
  return {both || type.starts_with("qwen2"), both};
}

/// The products of a kind of mixer, from `hidden` columns and back.
struct products_around {
  const model_source& source;
  std::int64_t hidden;

  linear_products operator()(const attention_layer& layer) const {
    const attention_biases biases = biases_of(source);
    // Qwen3-Next has a gate for each column of the result.
    const std::int64_t queries = source.text("model_type") == "qwen3_next" ? 2 : 1;
    return {{.name = "qkv",
             .inputs = hidden,
             .outputs = (queries * layer.q_heads + 2 * layer.kv_heads) * layer.head_dim,
             .bias = biases.qkv},
            {.name = "out",
             .inputs = layer.q_heads * layer.head_dim,
             .outputs = hidden,
             .bias = biases.out}};
  }

  /// Queries may have a latent of their own; `flash_mla` expands keys and values itself.
  linear_products operator()(const latent_layer& layer) const {
    const std::int64_t rank = source.whole_number("q_lora_rank", max_width).value_or(0);
    const std::int64_t queries = layer.heads * (layer.nope_dim + layer.rope_dim);
    const std::int64_t index_queries = layer.index_heads * layer.index_dim;
    const std::int64_t index = layer.index_heads > 0 ? layer.index_dim + layer.index_heads : 0;
    linear_products products{
        {.name = rank > 0 ? "latents" : "q, latents",
         .inputs = hidden,
         .outputs = (rank > 0 ? rank : queries) + layer.latent + layer.rope_dim + index}};
    if (rank > 0) {
      products.push_back({.name = "q", .inputs = rank, .outputs = queries + index_queries});
    }
    products.push_back({.name = "q to latent",
                        .inputs = layer.nope_dim,
                        .outputs = layer.latent,
                        .heads = layer.heads,
                        .goes_on = true});
    products.push_back({.name = "latent to v",
                        .inputs = layer.latent,
                        .outputs = layer.value_dim,
                        .heads = layer.heads,
                        .goes_on = true});
    products.push_back({.name = "out", .inputs = layer.heads * layer.value_dim, .outputs = hidden});
    return products;
  }

  linear_products operator()(const delta_rule_layer& layer) const {
    const std::int64_t keys = layer.key_heads * layer.key_dim;
    const std::int64_t values = layer.value_heads * layer.value_dim;
    const linear_product out{.name = "out", .inputs = values, .outputs = hidden};
    if (!layer.channels_decay) {
      // Queries, keys, values and a gate for each; a decay and a beta of each head.
      const std::int64_t outputs = 2 * keys + 2 * values + 2 * layer.value_heads;
      return {{.name = "qkv, gates", .inputs = hidden, .outputs = outputs}, out};
    }
    // Decays and output gates come through as many columns as a head has.
    const std::int64_t outputs = 2 * keys + values + 2 * layer.value_dim + layer.value_heads;
    return {{.name = "qkv, gates", .inputs = hidden, .outputs = outputs},
            {.name = "decay", .inputs = layer.value_dim, .outputs = keys},
            {.name = "gate", .inputs = layer.value_dim, .outputs = values},
            out};
  }

  linear_products operator()(const lightning_layer& layer) const {
    const std::int64_t width = layer.heads * layer.head_dim;
    return {{.name = "qkv, gate", .inputs = hidden, .outputs = 4 * width},
            {.name = "out", .inputs = width, .outputs = hidden}};
  }

  /// Rows of r, k and v are mixed with the token before in ways of their own, so are those of the
  /// four pairs of thin matrices, whose ranks follow from the width unless they are said.
  linear_products operator()(const rwkv7_layer&) const {
    const auto width = static_cast<double>(hidden);
    const auto rank = [&](std::string_view key, double columns) {
      const auto whole = static_cast<std::int64_t>(std::lround(columns / 32)) * 32;
      return source.whole_number(key, max_width).value_or(std::max<std::int64_t>(32, whole));
    };
    linear_products products{{.name = "r, k, v", .inputs = hidden, .outputs = hidden, .times = 3}};
    const auto add_pair = [&](std::string_view name, std::int64_t columns) {
      products.push_back(
          {.name = fmt::format("{} down", name), .inputs = hidden, .outputs = columns});
      products.push_back(
          {.name = fmt::format("{} up", name), .inputs = columns, .outputs = hidden});
    };
    add_pair("w", rank("decay_low_rank_dim", 1.8 * std::sqrt(width)));
    add_pair("a", rank("a_low_rank_dim", 1.8 * std::sqrt(width)));
    add_pair("v", rank("v_low_rank_dim", 1.3 * std::sqrt(width)));
    add_pair("g", rank("gate_low_rank_dim", 0.6 * std::pow(width, 0.8)));
    products.push_back({.name = "out", .inputs = hidden, .outputs = hidden});
    return products;
  }

  linear_products operator()(const selective_layer& layer) const {
    const boost::json::value* said = source.find("time_step_rank");
    const std::int64_t rank = said != nullptr && said->is_number()
                                  ? source.needed("time_step_rank", max_width)
                                  : (hidden + 15) / 16;
    return {{.name = "x, z", .inputs = hidden, .outputs = 2 * layer.channels},
            {.name = "dt, B, C", .inputs = layer.channels, .outputs = rank + 2 * layer.states},
            {.name = "dt up", .inputs = rank, .outputs = layer.channels},
            {.name = "out", .inputs = layer.channels, .outputs = hidden}};
  }

  linear_products operator()(const state_space_layer& layer) const {
    const std::int64_t width = layer.heads * layer.head_dim;
    const std::int64_t outputs = 2 * width + 2 * layer.groups * layer.states + layer.heads;
    return {{.name = "z, x, B, C, dt", .inputs = hidden, .outputs = outputs},
            {.name = "out", .inputs = width, .outputs = hidden}};
  }
};

/// Up to `width` columns, with a gate for each or without, and back.
void add_network(linear_products& products, std::string_view prefix, std::int64_t hidden,
                 std::int64_t width, bool gated, bool bias) {
  products.push_back({.name = fmt::format("{}{}", prefix, gated ? "gate, up" : "up"),
                      .inputs = hidden,
                      .outputs = (gated ? 2 : 1) * width,
                      .bias = bias});
  products.push_back(
      {.name = fmt::format("{}down", prefix), .inputs = width, .outputs = hidden, .bias = bias});
}

std::optional<std::int64_t> experts_of(const model_source& source) {
  return first_number(source, {"num_local_experts", "num_experts", "n_routed_experts"},
                      max_experts);
}

}  // namespace

bool is_encoder(std::string_view type) {
  return is_among(type,
                  {"bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "albert", "electra",
                   "nomic_bert", "modernbert", "deberta-v2", "vit", "siglip_vision_model"});
}

linear_products products_of(const model_source& source, const token_mixer& mixer,
                            std::int64_t hidden) {
  return std::visit(products_around{source, hidden}, mixer);
}

feed_forward dense_feed_forward(const model_source& source, std::int64_t hidden) {
  const std::string type = source.text("model_type");
  const auto width = source.whole_number("intermediate_size", max_width);
  // Of Mamba it is the width of the mixer.
  if (!width || is_among(type, {"mamba", "falcon_mamba", "mamba2"})) return {};
  const bool is_gated_encoder = is_among(type, {"nomic_bert", "modernbert"});
  const bool gated =
      is_gated_encoder ||
      !(is_encoder(type) || is_among(type, {"rwkv7", "gpt2", "gpt_neox", "opt", "phi", "falcon",
                                            "bloom", "starcoder2", "nemotron"}));
  const bool bias = is_encoder(type) && !is_gated_encoder;
  feed_forward network{.name = fmt::format("{} {}", gated ? "gated" : "plain", *width)};
  add_network(network.products, "", hidden, *width, gated,
              bias || source.flag("mlp_bias").value_or(false));
  return network;
}

feed_forward expert_feed_forward(const model_source& source, std::int64_t hidden) {
  const std::int64_t experts = experts_of(source).value_or(0);
  const std::int64_t used = needed_number(
      source, "num_experts_per_tok", {"num_experts_per_tok", "num_experts_per_token"}, max_experts);
  if (used > experts) {
    source.refuse("num_experts_per_tok",
                  fmt::format("is {}, the model has {} experts", used, experts));
  }
  const std::int64_t width = needed_number(
      source, "intermediate_size", {"moe_intermediate_size", "intermediate_size"}, max_width);
  feed_forward network{.name = fmt::format("{} of {} experts of {}", used, experts, width)};
  const bool bias = source.text("model_type") == "gpt_oss";
  network.products.push_back(
      {.name = "router", .inputs = hidden, .outputs = experts, .bias = bias, .routes = true});
  linear_products of_experts;
  add_network(of_experts, "experts ", hidden, width, true, bias);
  for (linear_product& product : of_experts) {
    product.experts = experts;
    product.experts_per_token = used;
    network.products.push_back(std::move(product));
  }
  std::int64_t shared =
      first_number(source, {"shared_expert_intermediate_size", "shared_intermediate_size"},
                   max_width)
          .value_or(0);
  if (shared == 0) {
    shared =
        width *
        first_number(source, {"n_shared_experts", "num_shared_experts"}, max_experts).value_or(0);
  }
  if (shared > 0) add_network(network.products, "shared ", hidden, shared, true, false);
  return network;
}

bool has_experts(const model_source& source, std::int64_t index) {
  if (!experts_of(source)) return false;
  if (index < first_number(source, {"first_k_dense_replace"}, max_layers).value_or(0)) return false;
  if (source.has("mlp_only_layers") && source.lists("mlp_only_layers", index)) return false;
  const std::int64_t step = source.whole_number("decoder_sparse_step", max_layers).value_or(1);
  const std::int64_t every = source.whole_number("moe_layer_freq", max_layers).value_or(1);
  return (index + 1) % step == 0 && index % every == 0;
}

std::string problem_of(const linear_product& product, const layer_call& call) {
  if (product.packing) return packed_problem_of(product, call);
  const std::string_view ending = call.gradient ? "_backward" : "";
  const std::int64_t tokens = call.batch * call.tokens;
  field_writer out(call);
  if (product.heads > 0) {
    out.tensor("lhs", {product.heads, tokens, product.inputs})
        .tensor("rhs", {product.heads, product.inputs, product.outputs});
    return fmt::format("matmul{}{}", ending, out.text());
  }
  if (product.experts > 0) {
    out.tensor("lhs", {tokens * product.experts_per_token, product.inputs})
        .tensor("rhs", {product.experts, product.outputs, product.inputs})
        .tensor("group_sizes", {product.experts}, dtype::i32);
    if (product.bias && !call.gradient) out.tensor("rhs_bias", {product.experts, product.outputs});
  } else {
    out.tensor("lhs", {tokens, product.inputs}).tensor("rhs", {product.outputs, product.inputs});
    if (product.bias && !call.gradient) out.tensor("rhs_bias", {product.outputs});
  }
  return fmt::format("{}{}{}", product.experts > 0 ? "grouped_matmul" : "matmul", ending,
                     out.option("transpose_rhs", "true").text());
}

model_head read_head(const model_source& source, std::int64_t hidden) {
  if (is_encoder(source.text("model_type"))) return {};
  model_head head{.hidden = hidden,
                  .classes = source.whole_number("vocab_size", max_width).value_or(0)};
  if (const auto cap = source.positive("final_logit_softcapping")) {
    head.logits_soft_cap = fmt::format("{}", *cap);
  }
  return head;
}

std::string model_head::problem(const layer_call& call) const {
  layer_call last = call;
  last.tokens = 1;
  return problem_of(linear_product{.inputs = hidden, .outputs = classes}, last);
}

std::string model_head::loss(const layer_call& call) const {
  const std::int64_t tokens = call.batch * call.tokens;
  field_writer out(call);
  out.tensor("hidden", {tokens, hidden})
      .tensor("lm_head_weight", {hidden, classes})
      .tensor("targets", {tokens}, dtype::i32);
  // The loss of a step leaves them; problems do not name what a call writes.
  if (call.gradient) out.tensor("logit_sums", {tokens, 2}, dtype::f32);
  if (!logits_soft_cap.empty()) out.option("logits_soft_cap", logits_soft_cap);
  return fmt::format("fused_linear_cross_entropy{}{}", call.gradient ? "_backward" : "",
                     out.text());
}

}  // namespace tessera::tool
