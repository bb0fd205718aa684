// The layers of a model, read from the description its authors publish (a Hugging Face
// config.json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include <tessera/spec/dtype.hpp>

#include "model_layers.hpp"
#include "model_products.hpp"

namespace tessera::tool {

/// Layers that ask the same problem.
struct layer_kind {
  std::string name;  ///< "full", "window 4096", or the operation
  std::int64_t layers = 0;
  token_mixer mixer{};
  linear_products products;  ///< around the mixer
};

/// Layers that are the same as a whole.
struct whole_layer {
  std::size_t kind = 0;                       ///< of `model_description::kinds`
  std::optional<std::size_t> feed_forward{};  ///< of `feed_forwards`
  std::int64_t layers = 0;
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
  std::int64_t hidden = 0;                 ///< columns of a token between layers; 0: not said
  std::vector<layer_kind> kinds;
  std::vector<feed_forward> feed_forwards;
  std::vector<whole_layer> whole_layers;
  model_head head{};
  std::vector<std::string> notes;              ///< what was left out, one sentence each
  std::vector<std::string> notes_on_products;  ///< for those who run products
};

/// Reads and checks a description. Refusals name the file, the key, the fact and both numbers.
model_description read_model(const std::string& path);

/// Says on stderr what was left out of that model, its products included.
void print_notes(const std::string& path, const model_description& model);

/// Adds `--dtype`, which takes the names of types that layers may have instead of their own.
void add_dtype_flag(CLI::App& command, std::string& name);
/// The model with layers of that type; empty: its own.
model_description with_dtype(model_description model, const std::string& name);

}  // namespace tessera::tool
