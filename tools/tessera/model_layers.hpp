// What mixes the tokens in a layer of a model: which operation, with which sizes, as the text of a
// problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <tessera/spec/dtype.hpp>

namespace tessera::tool {

/// flash_attention.
struct attention_layer {
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
  std::optional<double> softmax_scale{};  ///< where it is not 1 / sqrt(head_dim)
  std::optional<double> logits_soft_cap{};
  std::int64_t sinks = 0;                ///< per query head
  std::optional<std::int64_t> window{};  ///< tokens a row sees, itself included
};

/// flash_mla, or deepseek_attn where an indexer selects keys, and flash_mla_decode on cached
/// latents, whose pages have 64 tokens; it reads all of them.
struct latent_layer {
  std::int64_t heads = 0;
  std::int64_t latent = 0;  ///< columns that keys and values of all heads are made of
  std::int64_t nope_dim = 0, rope_dim = 0;  ///< of a key: from the latent, and shared by all heads
  std::int64_t value_dim = 0;
  double softmax_scale = 0;
  std::int64_t index_heads = 0;  ///< of the indexer; 0: there is none
  std::int64_t index_dim = 0;
  std::int64_t index_topk = 0;  ///< keys that it keeps for a token
};

/// gated_delta_rule, or kernel_delta_attention where every key channel decays by itself; gates,
/// their sigmoids and the norms of queries and keys are the kernel's.
struct delta_rule_layer {
  bool channels_decay = false;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

/// lightning_attn.
struct lightning_layer {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

/// rwkv7.
struct rwkv7_layer {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

/// state_space_v1, with its gate.
struct selective_layer {
  std::int64_t channels = 0;
  std::int64_t states = 0;  ///< of a channel
};

/// state_space_v2, with its gate and norm.
struct state_space_layer {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t states = 0;  ///< of a column
  std::int64_t groups = 0;  ///< of B and C
  double norm_eps = 0;
};

using token_mixer = std::variant<attention_layer, latent_layer, delta_rule_layer, lightning_layer,
                                 rwkv7_layer, selective_layer, state_space_layer>;

/// "16 heads on 2, d 256".
std::string text_of(const token_mixer& mixer);

/// How much a layer is asked for.
struct layer_call {
  dtype type = dtype::f32;
  std::int64_t batch = 1;
  std::int64_t tokens = 0;   ///< new ones of each sequence
  std::int64_t context = 0;  ///< tokens of each sequence, the new ones included
  bool gradient = false;     ///< its gradients are asked for

  /// The sequences have begun before.
  bool goes_on() const noexcept { return context > tokens; }
};

/// The operation that carries it out, and the one that gives its gradients: of a call that does not
/// go on.
struct mixer_operations {
  std::string_view forward;
  std::string_view backward;
};
mixer_operations operations_of(const token_mixer& mixer, const layer_call& call = {});

/// The fields of the problem's text: " q=[1,2048,16,256]bf16 ...".
std::string fields_of(const token_mixer& mixer, const layer_call& call);

}  // namespace tessera::tool
