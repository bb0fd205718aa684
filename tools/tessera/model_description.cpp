#include "model_description.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include <tessera/families/attention/lower.hpp>
#include <tessera/spec/problem_text.hpp>

#include "command.hpp"
#include "json.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

constexpr std::size_t max_file_bytes = std::size_t{4} << 20;
constexpr std::int64_t max_heads = 4096;
constexpr std::int64_t max_layers = 4096;
constexpr std::int64_t max_width = std::int64_t{1} << 24;
constexpr std::int64_t default_prompt = 2048;
constexpr std::int64_t default_context = 8192;

/// The object that describes the text model, with messages that name file and key.
class description {
 public:
  description(std::string file, const json::object& whole)
      : file_(std::move(file)), whole_(whole), text_(&whole) {
    const json::value* nested = whole.if_contains("text_config");
    if (nested != nullptr && nested->is_object() && !whole.contains("num_attention_heads")) {
      text_ = &nested->get_object();
    }
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view fact) const {
    throw failure(fmt::format("{}: {} {}", file_, key, fact));
  }

  /// Null if absent or null. The outer object serves what the text model's lacks.
  const json::value* find(std::string_view key) const {
    for (const json::object* object : {text_, &whole_}) {
      const json::value* value = object->if_contains(key);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }

  std::optional<std::int64_t> whole_number(std::string_view key, std::int64_t most) const {
    const json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    boost::system::error_code inexact;
    const auto number = value->is_number() ? value->to_number<std::int64_t>(inexact) : 0;
    if (!value->is_number() || inexact || number < 1 || number > most) {
      refuse(key,
             fmt::format("is {}, must be a whole number from 1 to {}", json_line(*value), most));
    }
    return number;
  }

  std::int64_t needed(std::string_view key, std::int64_t most) const {
    const auto number = whole_number(key, most);
    if (!number) refuse(key, fmt::format("is missing, must be a whole number from 1 to {}", most));
    return *number;
  }

  std::optional<double> positive(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->to_number<double>() : 0.0;
    if (!(number > 0.0) || !std::isfinite(number)) {
      refuse(key, fmt::format("is {}, must be a number above 0", json_line(*value)));
    }
    return number;
  }

  std::optional<bool> flag(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_bool())
      refuse(key, fmt::format("is {}, must be true or false", json_line(*value)));
    return value->get_bool();
  }

  std::string text(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) refuse(key, fmt::format("is {}, must be a text", json_line(*value)));
    return std::string(value->get_string());
  }

  bool has(std::string_view key) const { return find(key) != nullptr; }

 private:
  std::string file_;
  const json::object& whole_;
  const json::object* text_;
};

bool is_encoder(std::string_view type) {
  constexpr std::array encoders{"bert",       "roberta",    "xlm-roberta", "distilbert",
                                "mpnet",      "albert",     "electra",     "nomic_bert",
                                "modernbert", "deberta-v2", "vit",         "siglip_vision_model"};
  return std::find(encoders.begin(), encoders.end(), type) != encoders.end();
}

void read_type(const description& source, model_description& model) {
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

void read_heads(const description& source, model_description& model) {
  model.layers = source.needed("num_hidden_layers", max_layers);
  model.q_heads = source.needed("num_attention_heads", max_heads);
  model.kv_heads = source.whole_number("num_key_value_heads", max_heads).value_or(model.q_heads);
  if (model.q_heads % model.kv_heads != 0) {
    source.refuse("num_key_value_heads", fmt::format("is {}, does not divide the {} query heads",
                                                     model.kv_heads, model.q_heads));
  }
  if (const auto head_dim = source.whole_number("head_dim", max_head_dim)) {
    model.head_dim = *head_dim;
    return;
  }
  const std::int64_t width = source.needed("hidden_size", max_width);
  if (width % model.q_heads != 0 || width / model.q_heads > max_head_dim) {
    source.refuse(
        "hidden_size",
        fmt::format("is {}: with {} heads the head dim is {:.6g}, must be "
                    "a whole number from 1 to {}",
                    width, model.q_heads,
                    static_cast<double>(width) / static_cast<double>(model.q_heads), max_head_dim));
  }
  model.head_dim = width / model.q_heads;
}

/// True where layer `index` has the window, for models that say it by type instead of by list.
bool has_window(const description& source, const model_description& model, std::int64_t index) {
  if (model.model_type == "gemma2") return index % 2 == 0;
  if (model.model_type.starts_with("qwen")) {
    return index >= source.whole_number("max_window_layers", max_layers).value_or(0);
  }
  std::optional<std::int64_t> pattern = source.whole_number("sliding_window_pattern", max_layers);
  if (!pattern && model.model_type.starts_with("gemma3")) pattern = 6;
  return pattern ? (index + 1) % *pattern != 0 : true;
}

void read_layers(const description& source, model_description& model) {
  std::optional<std::int64_t> window = source.whole_number("sliding_window", INT32_MAX);
  if (source.flag("use_sliding_window") == false) window.reset();
  const json::value* types = source.find("layer_types");
  if (types != nullptr &&
      (!types->is_array() || std::cmp_not_equal(types->get_array().size(), model.layers))) {
    source.refuse("layer_types",
                  fmt::format("has {} entries, num_hidden_layers is {}",
                              types->is_array() ? types->get_array().size() : 0, model.layers));
  }
  layer_kind full{"full", 0, std::nullopt};
  layer_kind windowed{fmt::format("window {}", window.value_or(0)), 0, window};
  std::int64_t others = 0;
  for (std::int64_t index = 0; index < model.layers; ++index) {
    bool sliding = window && (types != nullptr || has_window(source, model, index));
    if (types != nullptr) {
      const json::value& name = types->get_array()[static_cast<std::size_t>(index)];
      const bool is_text = name.is_string();
      if (is_text && name.get_string() == "sliding_attention") {
        if (!window)
          source.refuse("layer_types", "has sliding layers, but there is no sliding_window");
      } else if (is_text && name.get_string() == "full_attention") {
        sliding = false;
      } else {
        ++others;
        continue;
      }
    }
    ++(sliding ? windowed : full).layers;
  }
  if (others > 0) {
    model.notes.push_back(fmt::format(
        "{} of {} layers are neither full_attention nor sliding_attention and are left out", others,
        model.layers));
  }
  for (const layer_kind& kind : {full, windowed}) {
    if (kind.layers > 0) model.kinds.push_back(kind);
  }
}

}  // namespace

model_description read_model(const std::string& path) {
  const json::value document = parse_json(file_text(path, max_file_bytes), path);
  if (!document.is_object()) {
    throw failure(fmt::format("{}: is not a JSON object, a model description is one", path));
  }
  const description source(path, document.get_object());
  model_description model;
  model.file = path;
  model.name = std::filesystem::path(path).stem().string();
  model.model_type = source.text("model_type");
  if (source.has("kv_lora_rank")) {
    source.refuse("kv_lora_rank", "is present: latent attention is not in this version");
  }
  read_type(source, model);
  read_heads(source, model);
  const std::string type = model.model_type;
  model.causal = source.flag("is_decoder").value_or(!is_encoder(type)) &&
                 !source.flag("use_bidirectional_attention").value_or(false);
  model.logits_soft_cap = source.positive("attn_logit_softcapping");
  if (const auto scalar = source.positive("query_pre_attn_scalar")) {
    model.softmax_scale = 1.0 / std::sqrt(*scalar);
  } else {
    model.softmax_scale = source.positive("attention_multiplier");
  }
  if (model.softmax_scale == 1.0 / std::sqrt(static_cast<double>(model.head_dim))) {
    model.softmax_scale.reset();
  }
  model.sinks = type == "gpt_oss" ? 1 : 0;
  model.max_tokens = source.whole_number("max_position_embeddings", INT32_MAX);
  read_layers(source, model);
  return model;
}

flash_problem problem_of(const model_description& model, const layer_kind& kind, model_phase phase,
                         std::int64_t batch, std::int64_t tokens) {
  const std::int64_t rows = phase == model_phase::prefill  ? tokens
                            : phase == model_phase::decode ? 1
                                                           : append_tokens;
  const std::int64_t keys = phase == model_phase::append ? tokens + append_tokens : tokens;
  flash_problem problem;
  problem.tensors.q = shaped(model.type, {batch, rows, model.q_heads, model.head_dim});
  problem.tensors.k = shaped(model.type, {batch, keys, model.kv_heads, model.head_dim});
  problem.tensors.v = problem.tensors.k;
  if (model.sinks > 0) problem.tensors.sinks = shaped(dtype::f32, {model.q_heads, model.sinks});
  problem.options.causal = model.causal;
  problem.options.softmax_scale = model.softmax_scale;
  problem.options.logits_soft_cap = model.logits_soft_cap;
  if (kind.window && model.causal) problem.options.window_left = *kind.window - 1;
  if (kind.window && !model.causal) {
    // Encoders count the window around the token.
    problem.options.window_left = *kind.window / 2;
    problem.options.window_right = *kind.window / 2;
  }
  return problem;
}

std::string text_of(const model_problem& asked) {
  return tessera::text_of(view_of(asked.problem));
}

std::vector<model_problem> problems_of(const model_description& model,
                                       const std::vector<model_phase>& phases, std::int64_t batch,
                                       std::int64_t tokens) {
  std::vector<model_problem> problems;
  for (const layer_kind& kind : model.kinds) {
    for (const model_phase phase : phases) {
      if (phase != model_phase::prefill && !model.causal) continue;
      const std::int64_t standard =
          phase == model_phase::prefill ? default_prompt : default_context;
      const std::int64_t length =
          tokens > 0 ? tokens : std::min(standard, model.max_tokens.value_or(standard));
      problems.push_back({kind, phase, problem_of(model, kind, phase, batch, length)});
    }
  }
  return problems;
}

}  // namespace tessera::tool
