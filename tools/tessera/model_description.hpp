// What a model asks of attention, read from the description its authors publish (a Hugging Face
// config.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/families/attention/problem.hpp>

namespace tessera::tool {

/// Layers that ask the same problem.
struct layer_kind {
  std::string name;  ///< "full" or "window 4096"
  std::int64_t layers = 0;
  std::optional<std::int64_t> window;  ///< tokens a row sees, itself included
};

struct model_description {
  std::string file;
  std::string name;  ///< the file's name without folder and ending
  std::string model_type;
  dtype type = dtype::f32;
  std::string type_origin;  ///< why: "torch_dtype", or what stands in for it
  std::int64_t layers = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
  std::optional<double> softmax_scale;  ///< where it is not 1 / sqrt(head_dim)
  std::optional<double> logits_soft_cap;
  std::int64_t sinks = 0;                  ///< per query head
  std::optional<std::int64_t> max_tokens;  ///< longest sequence the model is made for
  std::vector<layer_kind> kinds;
  std::vector<std::string> notes;  ///< what was left out, one sentence each
};

/// Reads and checks a description. Refusals name the file, the key, the fact and both numbers.
model_description read_model(const std::string& path);

/// A prompt, one new token, or a block of new tokens onto a cached context.
enum class model_phase { prefill, decode, append };

constexpr std::string_view name_of(model_phase phase) noexcept {
  switch (phase) {
    case model_phase::prefill:
      return "prefill";
    case model_phase::decode:
      return "decode";
    case model_phase::append:
      return "append";
  }
  return "invalid";
}

/// New tokens of `append`.
inline constexpr std::int64_t append_tokens = 256;

/// The problem of one layer. `tokens` is the prompt's length, or that of the context.
flash_problem problem_of(const model_description& model, const layer_kind& kind, model_phase phase,
                         std::int64_t batch, std::int64_t tokens);

/// One kind of layers in one phase.
struct model_problem {
  layer_kind kind;
  model_phase phase = model_phase::prefill;
  flash_problem problem{};
};

/// The problem as text.
std::string text_of(const model_problem& asked);

/// What the model asks in these phases, in the order of its kinds of layers. `tokens` 0: a prompt
/// of 2048, a context of 8192, or what the model is made for if that is less. An encoder has no
/// cache and knows prefill only.
std::vector<model_problem> problems_of(const model_description& model,
                                       const std::vector<model_phase>& phases, std::int64_t batch,
                                       std::int64_t tokens);

}  // namespace tessera::tool
