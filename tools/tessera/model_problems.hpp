// What a model asks, as the text of problems: phases, and the parts of its layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include "model_description.hpp"

namespace tessera::tool {

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

/// The context was there before: its keys, values and states, like a server's weights, come from
/// memory and not from the last-level cache.
constexpr bool is_cached(model_phase phase) noexcept {
  return phase == model_phase::decode || phase == model_phase::append;
}

/// What `--phase` takes. Ends the command where a name is none.
inline constexpr std::string_view phase_names = "prefill, decode, append, training";
std::vector<model_phase> phases_named(const std::vector<std::string>& names);

/// New tokens of `append`.
inline constexpr std::int64_t append_tokens = 256;

/// What mixes tokens (attention, recurrences), and what multiplies each of them by weights.
inline constexpr std::string_view part_names = "mixers, products";

/// What is asked of a model.
struct model_question {
  std::vector<model_phase> phases;
  std::int64_t batch = 1;
  /// The prompt's length, or that of the context; 0: a prompt of 2048, a context of 8192, or what
  /// the model is made for if that is less.
  std::int64_t tokens = 0;
  bool mixers = true;
  bool products = true;
};

/// Adds `--parts`, and reads what it was given: any of `part_names`, or none for all. Ends the
/// command where a name is none.
void add_parts_flag(CLI::App& command, std::vector<std::string>& names);
void take_parts(const std::vector<std::string>& names, model_question& question);

enum class model_part { mixer, product_of_mixer, feed_forward, head };

/// A problem that layers ask in a phase.
struct model_problem {
  std::string kind{};  ///< of the layers: "full", "gated 14336", "head"
  std::string name{};  ///< "mixer", "qkv", "loss"
  model_part part = model_part::mixer;
  std::size_t index = 0;  ///< of the kind of layers or the feed-forward network
  std::int64_t layers = 0;
  std::int64_t times = 1;  ///< that each of them asks it
  model_phase phase = model_phase::prefill;
  std::string text{};  ///< the problem
};

/// What the model asks, kind by kind. Training asks two problems where another phase asks one. An
/// encoder knows prefill and training only.
std::vector<model_problem> problems_of(const model_description& model,
                                       const model_question& question);

}  // namespace tessera::tool
