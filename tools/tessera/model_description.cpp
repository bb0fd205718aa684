#include "model_description.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <tessera/families/attention/config.hpp>

#include "command.hpp"
#include "json.hpp"
#include "model_source.hpp"
#include "terminal.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

constexpr std::size_t max_description_bytes = std::size_t{4} << 20;
constexpr std::int64_t max_heads = 4096;
constexpr std::int64_t max_latent = 4096;

void read_type(const model_source& source, model_description& model) {
  const std::string key = source.has("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string name = source.text(key);
  model.type_origin = key;
  if (name == "bfloat16") {
    model.type = dtype::bf16;
  } else if (name == "float16") {
    model.type = dtype::f16;
  } else if (name == "float32") {
    model.type = dtype::f32;
  } else if (!name.empty()) {
    source.refuse(key, fmt::format("is \"{}\", known are bfloat16, float16, float32", name));
  } else if (source.has("quantization_config")) {
    model.type = dtype::bf16;
    model.type_origin = "quantised weights";
  } else {
    model.type = dtype::f32;
    model.type_origin = "no torch_dtype";
  }
}

void check_head_dim(const model_source& source, std::string_view key, std::int64_t width,
                    std::int64_t heads) {
  if (width % heads == 0 && width / heads <= max_head_dim) return;
  source.refuse(key,
                fmt::format("is {}: with {} heads the head dim is {:.6g}, must be "
                            "a whole number from 1 to {}",
                            width, heads, static_cast<double>(width) / static_cast<double>(heads),
                            max_head_dim));
}

/// The attention of a model, without the window that some of its layers have.
attention_layer read_attention(const model_source& source, const model_description& model) {
  attention_layer layer{.causal = model.causal};
  layer.q_heads = source.needed("num_attention_heads", max_heads);
  layer.kv_heads = source.whole_number("num_key_value_heads", max_heads).value_or(layer.q_heads);
  if (layer.q_heads % layer.kv_heads != 0) {
    source.refuse("num_key_value_heads", fmt::format("is {}, does not divide the {} query heads",
                                                     layer.kv_heads, layer.q_heads));
  }
  if (const auto head_dim = source.whole_number("head_dim", max_head_dim)) {
    layer.head_dim = *head_dim;
  } else {
    const std::int64_t width = source.needed("hidden_size", max_width);
    check_head_dim(source, "hidden_size", width, layer.q_heads);
    layer.head_dim = width / layer.q_heads;
  }
  layer.logits_soft_cap = source.positive("attn_logit_softcapping");
  if (const auto scalar = source.positive("query_pre_attn_scalar")) {
    layer.softmax_scale = 1.0 / std::sqrt(*scalar);
  } else {
    layer.softmax_scale = source.positive("attention_multiplier");
  }
  if (layer.softmax_scale == 1.0 / std::sqrt(static_cast<double>(layer.head_dim))) {
    layer.softmax_scale.reset();
  }
  layer.sinks = model.model_type == "gpt_oss" ? 1 : 0;
  return layer;
}

/// The factor that a scaling of positions by `factor` (YaRN) puts on logits.
double scale_of_positions(const model_source& source) {
  const auto scaling = source.nested("rope_scaling");
  if (!scaling || !scaling->has("mscale_all_dim")) return 1;
  const double factor = scaling->positive("factor").value_or(1);
  if (factor <= 1) return 1;
  const double weight = 1 + 0.1 * *scaling->positive("mscale_all_dim") * std::log(factor);
  return weight * weight;
}

latent_layer read_latent(const model_source& source) {
  latent_layer layer{.heads = source.needed("num_attention_heads", max_heads),
                     .latent = source.needed("kv_lora_rank", max_latent),
                     .nope_dim = source.needed("qk_nope_head_dim", max_latent),
                     .rope_dim = source.needed("qk_rope_head_dim", max_latent),
                     .value_dim = source.needed("v_head_dim", max_latent)};
  layer.softmax_scale =
      scale_of_positions(source) / std::sqrt(static_cast<double>(layer.nope_dim + layer.rope_dim));
  if (source.has("index_topk")) {
    layer.index_heads = source.needed("index_n_heads", max_heads);
    layer.index_dim = source.needed("index_head_dim", max_latent);
    layer.index_topk = source.needed("index_topk", INT32_MAX);
  }
  return layer;
}

/// True where layer `index` has the window, for models that say it by type instead of by list.
bool layer_has_window(const model_source& source, const model_description& model,
                      std::int64_t index) {
  if (model.model_type == "gemma2") return index % 2 == 0;
  if (model.model_type.starts_with("qwen")) {
    return index >= source.whole_number("max_window_layers", max_layers).value_or(0);
  }
  std::optional<std::int64_t> pattern = source.whole_number("sliding_window_pattern", max_layers);
  if (!pattern && model.model_type.starts_with("gemma3")) pattern = 6;
  return pattern ? (index + 1) % *pattern != 0 : true;
}

/// Models whose layers are all recurrences.
bool is_recurrent(std::string_view type) {
  return type == "rwkv7" || type == "mamba" || type == "falcon_mamba" || type == "mamba2";
}

token_mixer kimi_mixer(const model_source& source) {
  const auto numbers = source.nested("linear_attn_config");
  if (!numbers) source.refuse("linear_attn_config", "is missing, must be an object");
  const std::int64_t heads = numbers->needed("num_heads", max_heads);
  const std::int64_t head_dim = numbers->needed("head_dim", max_head_dim);
  return delta_rule_layer{.channels_decay = true,
                          .key_heads = heads,
                          .value_heads = heads,
                          .key_dim = head_dim,
                          .value_dim = head_dim};
}

token_mixer qwen_mixer(const model_source& source) {
  delta_rule_layer layer{.key_heads = source.needed("linear_num_key_heads", max_heads),
                         .value_heads = source.needed("linear_num_value_heads", max_heads),
                         .key_dim = source.needed("linear_key_head_dim", max_head_dim),
                         .value_dim = source.needed("linear_value_head_dim", max_head_dim)};
  if (layer.value_heads % layer.key_heads != 0) {
    source.refuse("linear_num_key_heads", fmt::format("is {}, does not divide the {} value heads",
                                                      layer.key_heads, layer.value_heads));
  }
  return layer;
}

token_mixer mamba2_mixer(const model_source& source) {
  state_space_layer layer{.heads = source.needed("num_heads", max_heads),
                          .head_dim = source.needed("head_dim", max_head_dim),
                          .states = source.needed("state_size", max_head_dim),
                          .groups = source.whole_number("n_groups", max_heads).value_or(1),
                          .norm_eps = source.positive("layer_norm_epsilon").value_or(1e-5)};
  if (layer.heads % layer.groups != 0) {
    source.refuse("n_groups",
                  fmt::format("is {}, does not divide the {} heads", layer.groups, layer.heads));
  }
  return layer;
}

/// The recurrence of a model's layers that are no attention; none: it is not known.
std::optional<token_mixer> recurrent_mixer(const model_source& source, std::string_view type) {
  if (type == "qwen3_next") return qwen_mixer(source);
  if (type == "kimi_linear") return kimi_mixer(source);
  if (type == "mamba2") return mamba2_mixer(source);
  if (type.starts_with("minimax")) {
    return lightning_layer{.heads = source.needed("num_attention_heads", max_heads),
                           .head_dim = source.needed("head_dim", max_head_dim)};
  }
  if (type == "rwkv7") {
    const std::int64_t width = source.needed("hidden_size", max_width);
    const std::int64_t head_dim = source.needed("head_dim", max_head_dim);
    if (width % head_dim != 0) {
      source.refuse("head_dim",
                    fmt::format("is {}, does not divide hidden_size {}", head_dim, width));
    }
    return rwkv7_layer{.heads = width / head_dim, .head_dim = head_dim};
  }
  if (type == "mamba" || type == "falcon_mamba") {
    return selective_layer{.channels = source.needed("intermediate_size", max_width),
                           .states = source.needed("state_size", max_head_dim)};
  }
  return std::nullopt;
}

/// What a layer mixes tokens with: attention over all of them or a window, or what
/// `recurrent_mixer` says.
enum class layer_role { full, sliding, recurrent, unknown };

layer_role role_named(const model_source& source, const json::value& name, bool has_window) {
  if (!name.is_string()) return layer_role::unknown;
  const std::string_view text = name.get_string();
  if (text == "full_attention") return layer_role::full;
  if (text == "linear_attention") return layer_role::recurrent;
  if (text != "sliding_attention") return layer_role::unknown;
  if (!has_window) {
    source.refuse("layer_types", "has sliding layers, but there is no sliding_window");
  }
  return layer_role::sliding;
}

/// An entry of a list that has one for each layer.
const json::value& entry_of(const model_source& source, const model_description& model,
                            std::string_view key, std::int64_t layer) {
  const json::value& list = *source.find(key);
  if (!list.is_array() || std::cmp_not_equal(list.get_array().size(), model.layers)) {
    source.refuse(key, fmt::format("has {} entries, num_hidden_layers is {}",
                                   list.is_array() ? list.get_array().size() : 0, model.layers));
  }
  return list.get_array()[static_cast<std::size_t>(layer)];
}

layer_role role_of(const model_source& source, const model_description& model, bool has_window,
                   std::int64_t layer) {
  if (is_recurrent(model.model_type)) return layer_role::recurrent;
  if (source.has("layer_types")) {
    return role_named(source, entry_of(source, model, "layer_types", layer), has_window);
  }
  if (source.has("attn_type_list")) {
    return entry_of(source, model, "attn_type_list", layer) == 1 ? layer_role::full
                                                                 : layer_role::recurrent;
  }
  if (const auto every = source.whole_number("full_attention_interval", max_layers)) {
    return (layer + 1) % *every == 0 ? layer_role::full : layer_role::recurrent;
  }
  if (const auto numbers = source.nested("linear_attn_config")) {
    return numbers->lists("kda_layers", layer + 1) ? layer_role::recurrent : layer_role::full;
  }
  return has_window && layer_has_window(source, model, layer) ? layer_role::sliding
                                                              : layer_role::full;
}

/// Counts the layers of each role and adds them to the model, kind by kind.
class layer_reader {
 public:
  layer_reader(const model_source& source, model_description& model, bool has_window)
      : source_(source), model_(model) {
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      const layer_role role = role_of(source, model, has_window, layer);
      ++counts_[static_cast<std::size_t>(role)][has_experts(source, layer) ? 1 : 0];
    }
  }

  std::int64_t count(layer_role role) const {
    const auto& counts = counts_[static_cast<std::size_t>(role)];
    return counts[0] + counts[1];
  }

  /// The layers of a role, where there are any.
  void add(layer_role role, std::string name, const token_mixer& mixer) {
    if (count(role) == 0) return;
    layer_kind kind{std::move(name), count(role), mixer, {}};
    if (model_.hidden > 0) kind.products = products_of(source_, mixer, model_.hidden);
    for (const bool experts : {false, true}) {
      const std::int64_t layers = counts_[static_cast<std::size_t>(role)][experts ? 1 : 0];
      if (layers == 0) continue;
      model_.whole_layers.push_back({model_.kinds.size(), feed_forward_of(experts), layers});
      if (const auto network = model_.whole_layers.back().feed_forward) {
        model_.feed_forwards[*network].layers += layers;
      }
    }
    model_.kinds.push_back(std::move(kind));
  }

 private:
  /// Its place in the model, which it is added to if it is not there; none if there is none.
  std::optional<std::size_t> feed_forward_of(bool experts) {
    std::optional<std::size_t>& place = places_[experts ? 1 : 0];
    if (place || model_.hidden == 0) return place;
    feed_forward network = experts ? expert_feed_forward(source_, model_.hidden)
                                   : dense_feed_forward(source_, model_.hidden);
    if (network.products.empty()) return place;
    place = model_.feed_forwards.size();
    model_.feed_forwards.push_back(std::move(network));
    return place;
  }

  const model_source& source_;
  model_description& model_;
  std::array<std::array<std::int64_t, 2>, 4> counts_{};  ///< by role, without experts and with
  std::array<std::optional<std::size_t>, 2> places_{};
};

void read_layers(const model_source& source, model_description& model) {
  std::optional<std::int64_t> window = source.whole_number("sliding_window", INT32_MAX);
  if (source.flag("use_sliding_window") == false) window.reset();
  layer_reader layers(source, model, window.has_value());
  if (layers.count(layer_role::full) > 0 && source.has("kv_lora_rank")) {
    layers.add(layer_role::full, "latent", read_latent(source));
  } else if (layers.count(layer_role::full) + layers.count(layer_role::sliding) > 0) {
    attention_layer attention = read_attention(source, model);
    layers.add(layer_role::full, "full", attention);
    attention.window = window;
    if (window) layers.add(layer_role::sliding, fmt::format("window {}", *window), attention);
  }
  std::int64_t left_out = layers.count(layer_role::unknown);
  if (layers.count(layer_role::recurrent) > 0) {
    if (const auto mixer = recurrent_mixer(source, model.model_type)) {
      layers.add(layer_role::recurrent, std::string(operations_of(*mixer).forward), *mixer);
    } else {
      left_out += layers.count(layer_role::recurrent);
    }
  }
  if (left_out > 0) {
    model.notes.push_back(fmt::format(
        "{} of {} layers are of a kind that is not known of model_type \"{}\" and are left out",
        left_out, model.layers, model.model_type));
  }
}

/// Weights as the model publishes them.
void pack_products(const model_source& source, model_description& model) {
  const std::optional<weight_packing> packing = read_packing(source);
  bool biased = false;
  const auto pack = [&](linear_products& products) {
    for (linear_product& product : products) {
      pack_weights(product, packing);
      biased = biased || (product.packing && product.bias);
    }
  };
  for (layer_kind& kind : model.kinds) pack(kind.products);
  for (feed_forward& network : model.feed_forwards) pack(network.products);
  if (biased) {
    model.notes_on_products.push_back(
        "products with packed weights add no bias: theirs are left out");
  }
}

}  // namespace

void print_notes(const std::string& path, const model_description& model) {
  for (const std::string& note : model.notes) print_message(path + ": " + note);
  for (const std::string& note : model.notes_on_products) print_message(path + ": " + note);
}

void add_dtype_flag(CLI::App& command, std::string& name) {
  command.add_option("--dtype", name, "Instead of the model's own")
      ->type_name("bf16|f16|f32")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
}

model_description with_dtype(model_description model, const std::string& name) {
  if (name.empty()) return model;
  model.type = name == "f32" ? dtype::f32 : name == "f16" ? dtype::f16 : dtype::bf16;
  model.type_origin = "--dtype";
  return model;
}

model_description read_model(const std::string& path) {
  const json::value document = parse_json(file_text(path, max_description_bytes), path);
  if (!document.is_object()) {
    throw failure(fmt::format("{}: is not a JSON object, a model description is one", path));
  }
  const model_source source(path, document.get_object());
  model_description model;
  model.file = path;
  model.name = std::filesystem::path(path).stem().string();
  model.model_type = source.text("model_type");
  read_type(source, model);
  model.layers = source.needed("num_hidden_layers", max_layers);
  model.causal = source.flag("is_decoder").value_or(!is_encoder(model.model_type)) &&
                 !source.flag("use_bidirectional_attention").value_or(false);
  model.max_tokens = source.whole_number("max_position_embeddings", INT32_MAX);
  model.hidden = source.whole_number("hidden_size", max_width).value_or(0);
  read_layers(source, model);
  pack_products(source, model);
  if (model.hidden > 0) {
    model.head = read_head(source, model.hidden);
  } else {
    model.notes_on_products.push_back(
        "hidden_size is absent, the products of its layers are left out");
  }
  return model;
}

}  // namespace tessera::tool
