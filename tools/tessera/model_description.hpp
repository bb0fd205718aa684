// What a model asks of the operations that mix tokens, read from the description its authors
// publish (a Hugging Face config.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include <tessera/spec/dtype.hpp>

#include "model_layers.hpp"

namespace tessera::tool {

/// Layers that ask the same problem.
struct layer_kind {
  std::string name;  ///< "full", "window 4096", or the operation
  std::int64_t layers = 0;
  token_mixer mixer{};
};

struct model_description {
  std::string file;
  std::string name;  ///< the file's name without folder and ending
  std::string model_type;
  dtype type = dtype::f32;
  std::string type_origin;  ///< why: "torch_dtype", or what stands in for it
  std::int64_t layers = 0;
  std::optional<std::int64_t> max_tokens;  ///< longest sequence the model is made for
  bool causal = true;                      ///< false: an encoder, which has no cache
  std::vector<layer_kind> kinds;
  std::vector<std::string> notes;  ///< what was left out, one sentence each
};

/// Reads and checks a description. Refusals name the file, the key, the fact and both numbers.
model_description read_model(const std::string& path);

/// Adds `--dtype`, which takes the names of types that layers may have instead of their own.
void add_dtype_flag(CLI::App& command, std::string& name);
/// The model with layers of that type; empty: its own.
model_description with_dtype(model_description model, const std::string& name);

/// A prompt, one new token, a block of new tokens onto a cached context, or a sequence forward and
/// backward.
enum class model_phase { prefill, decode, append, training };

constexpr std::string_view name_of(model_phase phase) noexcept {
  switch (phase) {
    case model_phase::prefill:
      return "prefill";
    case model_phase::decode:
      return "decode";
    case model_phase::append:
      return "append";
    case model_phase::training:
      return "training";
  }
  return "invalid";
}

/// What `--phase` takes. Ends the command where a name is none.
inline constexpr std::string_view phase_names = "prefill, decode, append, training";
std::vector<model_phase> phases_named(const std::vector<std::string>& names);

/// New tokens of `append`.
inline constexpr std::int64_t append_tokens = 256;

/// One kind of layers in one phase, which is two problems in training.
struct model_problem {
  layer_kind kind;
  model_phase phase = model_phase::prefill;
  std::string text;  ///< the problem
};

/// What the model asks in these phases, in the order of its kinds of layers. `tokens` is the
/// prompt's length, or that of the context; 0: a prompt of 2048, a context of 8192, or what the
/// model is made for if that is less. An encoder knows prefill and training only.
std::vector<model_problem> problems_of(const model_description& model,
                                       const std::vector<model_phase>& phases, std::int64_t batch,
                                       std::int64_t tokens);

}  // namespace tessera::tool
