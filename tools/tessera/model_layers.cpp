#include "model_layers.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/problem_text.hpp>

#include "problem_fields.hpp"

namespace tessera::tool {
namespace {

mixer_operations operations(const attention_layer&, const layer_call&) {
  return {"flash_attention", "flash_attention_backward"};
}
mixer_operations operations(const latent_layer& layer, const layer_call& call) {
  if (call.goes_on()) return {"flash_mla_decode", {}};
  if (layer.index_heads > 0) return {"deepseek_attn", "deepseek_attn_backward"};
  return {"flash_mla", "flash_mla_backward"};
}
mixer_operations operations(const delta_rule_layer& layer, const layer_call&) {
  if (layer.channels_decay) return {"kernel_delta_attention", "kernel_delta_attention_backward"};
  return {"gated_delta_rule", "gated_delta_rule_backward"};
}
mixer_operations operations(const lightning_layer&, const layer_call&) {
  return {"lightning_attn", "lightning_attn_backward"};
}
mixer_operations operations(const rwkv7_layer&, const layer_call&) {
  return {"rwkv7", "rwkv7_backward"};
}
mixer_operations operations(const selective_layer&, const layer_call&) {
  return {"state_space_v1", "state_space_v1_backward"};
}
mixer_operations operations(const state_space_layer&, const layer_call&) {
  return {"state_space_v2", "state_space_v2_backward"};
}

std::string words(const attention_layer& layer) {
  std::string text = fmt::format("{} heads", layer.q_heads);
  if (layer.kv_heads != layer.q_heads) text += fmt::format(" on {}", layer.kv_heads);
  text += fmt::format(", d {}", layer.head_dim);
  if (layer.logits_soft_cap) text += fmt::format(", soft cap {:g}", *layer.logits_soft_cap);
  if (layer.sinks > 0) text += ", sinks";
  return text + (layer.causal ? "" : ", bidirectional");
}
std::string words(const latent_layer& layer) {
  const std::string text = fmt::format("{} heads on {} latent columns, d {} + {} rope", layer.heads,
                                       layer.latent, layer.nope_dim, layer.rope_dim);
  return layer.index_heads > 0 ? text + fmt::format(", {} keys", layer.index_topk) : text;
}
std::string words(const delta_rule_layer& layer) {
  std::string text = fmt::format("{} heads", layer.value_heads);
  if (layer.key_heads != layer.value_heads) text += fmt::format(" on {}", layer.key_heads);
  return text + fmt::format(", states {} x {}", layer.key_dim, layer.value_dim);
}
std::string words(const lightning_layer& layer) {
  return fmt::format("{} heads, states {} x {}", layer.heads, layer.head_dim, layer.head_dim);
}
std::string words(const rwkv7_layer& layer) {
  return fmt::format("{} heads, states {} x {}", layer.heads, layer.head_dim, layer.head_dim);
}
std::string words(const selective_layer& layer) {
  return fmt::format("{} channels, {} states each", layer.channels, layer.states);
}
std::string words(const state_space_layer& layer) {
  return fmt::format("{} heads on {}, states {} x {}", layer.heads, layer.groups, layer.head_dim,
                     layer.states);
}

std::string fields(const attention_layer& layer, const layer_call& call) {
  flash_problem problem;
  problem.tensors.q = shaped(call.type, {call.batch, call.tokens, layer.q_heads, layer.head_dim});
  problem.tensors.k = shaped(call.type, {call.batch, call.context, layer.kv_heads, layer.head_dim});
  problem.tensors.v = problem.tensors.k;
  if (layer.sinks > 0) problem.tensors.sinks = shaped(dtype::f32, {layer.q_heads, layer.sinks});
  problem.options.causal = layer.causal;
  problem.options.softmax_scale = layer.softmax_scale;
  problem.options.logits_soft_cap = layer.logits_soft_cap;
  if (layer.window && layer.causal) problem.options.window_left = *layer.window - 1;
  if (layer.window && !layer.causal) {
    // Encoders count the window around the token.
    problem.options.window_left = *layer.window / 2;
    problem.options.window_right = *layer.window / 2;
  }
  const std::string text = to_text(problem);
  return text.substr(text.find(' '));
}

/// Prompts make keys and values of each head; what goes on multiplies queries into the latents.
std::string fields(const latent_layer& layer, const layer_call& call) {
  constexpr std::int64_t page = 64;
  const std::int64_t b = call.batch, t = call.tokens, columns = layer.latent + layer.rope_dim;
  const std::int64_t pages = (call.context + page - 1) / page;
  const std::string scale = fmt::format("{}", layer.softmax_scale);
  field_writer out(call);
  if (call.goes_on()) {
    return out.tensor("q", {b, t, layer.heads, columns})
        .tensor("kv_cache", {b * pages, page, 1, columns})
        .tensor("block_table", {b, pages}, dtype::i32)
        .option("softmax_scale", scale)
        .option("v_dim", fmt::format("{}", layer.latent))
        .text();
  }
  out.tensor("ckv", {b, t, layer.latent})
      .tensor("w_kc", {layer.latent, layer.heads, layer.nope_dim})
      .tensor("w_vc", {layer.latent, layer.heads, layer.value_dim})
      .tensor("k_pe", {b, t, layer.rope_dim})
      .tensor("q", {b, t, layer.heads, layer.nope_dim + layer.rope_dim})
      .option("softmax_scale", scale)
      .option("causal", "true");
  if (layer.index_heads > 0 && call.gradient) {
    out.tensor("indices", {b, t, std::min(layer.index_topk, t)}, dtype::i32);
  } else if (layer.index_heads > 0) {
    out.tensor("q_index", {b, t, layer.index_heads, layer.index_dim})
        .option("index_topk", fmt::format("{}", layer.index_topk));
  }
  return out.text();
}

std::string fields(const delta_rule_layer& layer, const layer_call& call) {
  const std::int64_t b = call.batch, t = call.tokens, heads = layer.value_heads;
  field_writer out(call);
  out.tensor("q", {b, t, layer.key_heads, layer.key_dim})
      .tensor("v", {b, t, heads, layer.value_dim});
  if (layer.channels_decay) {
    out.tensor("gk", {b, t, heads, layer.key_dim})
        .tensor("dt_bias", {heads, layer.key_dim}, dtype::f32);
  } else {
    out.tensor("g", {b, t, heads}).tensor("dt_bias", {heads}, dtype::f32);
  }
  return out.tensor("beta", {b, t, heads})
      .tensor("A_log", {heads}, dtype::f32)
      .state({b, heads, layer.key_dim, layer.value_dim})
      .option("use_qk_l2norm", "true")
      .option("use_gate", "true")
      .option("use_beta_sigmoid", "true")
      .text();
}

std::string fields(const lightning_layer& layer, const layer_call& call) {
  field_writer out(call);
  for (const std::string_view name : {"q", "k", "v"}) {
    out.tensor(name, {call.batch, call.tokens, layer.heads, layer.head_dim});
  }
  return out.state({call.batch, layer.heads, layer.head_dim, layer.head_dim}).text();
}

std::string fields(const rwkv7_layer& layer, const layer_call& call) {
  field_writer out(call);
  for (const std::string_view name : {"r", "w", "v"}) {
    out.tensor(name, {call.batch, call.tokens, layer.heads, layer.head_dim});
  }
  return out.state({call.batch, layer.heads, layer.head_dim, layer.head_dim}).text();
}

std::string fields(const selective_layer& layer, const layer_call& call) {
  const std::int64_t b = call.batch, t = call.tokens;
  return field_writer(call)
      .tensor("x", {b, t, layer.channels})
      .tensor("A", {layer.channels, layer.states}, dtype::f32)
      .tensor("B", {b, t, layer.states})
      .tensor("D", {layer.channels}, dtype::f32)
      .tensor("z", {b, t, layer.channels})
      .tensor("dt_bias", {layer.channels}, dtype::f32)
      .state({b, layer.channels, layer.states})
      .option("dt_softplus", "true")
      .text();
}

std::string fields(const state_space_layer& layer, const layer_call& call) {
  const std::int64_t b = call.batch, t = call.tokens, width = layer.heads * layer.head_dim;
  return field_writer(call)
      .tensor("x", {b, t, layer.heads, layer.head_dim})
      .tensor("A", {layer.heads}, dtype::f32)
      .tensor("B", {b, t, layer.groups, layer.states})
      .tensor("D", {layer.heads}, dtype::f32)
      .tensor("z", {b, t, layer.heads, layer.head_dim})
      .tensor("dt_bias", {layer.heads}, dtype::f32)
      .tensor("norm_weight", {width})
      .state({b, layer.heads, layer.head_dim, layer.states})
      .option("dt_softplus", "true")
      .option("norm", "true")
      .option("norm_group_size", fmt::format("{}", width / layer.groups))
      .option("norm_eps", fmt::format("{}", layer.norm_eps))
      .text();
}

}  // namespace

mixer_operations operations_of(const token_mixer& mixer, const layer_call& call) {
  return std::visit([&](const auto& layer) { return operations(layer, call); }, mixer);
}
std::string text_of(const token_mixer& mixer) {
  return std::visit([](const auto& layer) { return words(layer); }, mixer);
}
std::string fields_of(const token_mixer& mixer, const layer_call& call) {
  return std::visit([&](const auto& layer) { return fields(layer, call); }, mixer);
}

}  // namespace tessera::tool
