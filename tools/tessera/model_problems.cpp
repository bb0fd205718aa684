#include "model_problems.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "failure.hpp"

namespace tessera::tool {
namespace {

constexpr std::int64_t default_prompt = 2048;
constexpr std::int64_t default_context = 8192;

layer_call call_of(const model_description& model, model_phase phase,
                   const model_question& question) {
  const std::int64_t standard = is_cached(phase) ? default_context : default_prompt;
  const std::int64_t length = question.tokens > 0
                                  ? question.tokens
                                  : std::min(standard, model.max_tokens.value_or(standard));
  layer_call call{.type = model.type, .batch = question.batch, .tokens = length, .context = length};
  if (phase == model_phase::decode) call.tokens = 1;
  if (phase == model_phase::append) {
    call.tokens = append_tokens;
    call.context += append_tokens;
  }
  return call;
}

/// The problems of a part: forward, and in training its gradients.
template <class Text>
void ask(std::vector<model_problem>& problems, model_problem asked, layer_call call,
         const Text& text_of) {
  const bool training = asked.phase == model_phase::training;
  asked.text = text_of(call);
  problems.push_back(asked);
  if (!training) return;
  call.gradient = true;
  asked.text = text_of(call);
  problems.push_back(std::move(asked));
}

void ask_products(std::vector<model_problem>& problems, model_problem asked,
                  const linear_products& products, const layer_call& call) {
  for (const linear_product& product : products) {
    if (product.goes_on && !call.goes_on()) continue;
    asked.name = product.name;
    asked.times = product.times;
    ask(problems, asked, call, [&](const layer_call& of) { return problem_of(product, of); });
  }
}

}  // namespace

std::vector<model_phase> phases_named(const std::vector<std::string>& names) {
  constexpr std::array known{model_phase::prefill, model_phase::decode, model_phase::append,
                             model_phase::training};
  std::vector<model_phase> phases;
  for (const std::string& name : names) {
    const auto found =
        std::ranges::find(known, name, [](model_phase phase) { return name_of(phase); });
    if (found == known.end()) {
      throw failure(fmt::format("--phase: \"{}\" is not one of the {} phases: {}", name,
                                known.size(), phase_names));
    }
    phases.push_back(*found);
  }
  return phases;
}

void add_parts_flag(CLI::App& command, std::vector<std::string>& names) {
  command.add_option("--parts", names, "Of models: " + std::string(part_names) + " (default both)")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void take_parts(const std::vector<std::string>& names, model_question& question) {
  if (names.empty()) return;
  question.mixers = question.products = false;
  for (const std::string& name : names) {
    if (name != "mixers" && name != "products") {
      throw failure(fmt::format("--parts: \"{}\" is not one of the 2 parts: {}", name, part_names));
    }
    (name == "mixers" ? question.mixers : question.products) = true;
  }
}

std::vector<model_problem> problems_of(const model_description& model,
                                       const model_question& question) {
  std::vector<model_problem> problems;
  const auto in_each_phase = [&](const auto& ask_in) {
    for (const model_phase phase : question.phases) {
      if (is_cached(phase) && !model.causal) continue;
      ask_in(phase, call_of(model, phase, question));
    }
  };
  for (std::size_t index = 0; index < model.kinds.size(); ++index) {
    const layer_kind& kind = model.kinds[index];
    in_each_phase([&](model_phase phase, const layer_call& call) {
      model_problem asked{.kind = kind.name,
                          .name = "mixer",
                          .index = index,
                          .layers = kind.layers,
                          .phase = phase};
      if (question.mixers) {
        ask(problems, asked, call, [&](const layer_call& of) {
          const mixer_operations operations = operations_of(kind.mixer, of);
          return fmt::format("{}{}", of.gradient ? operations.backward : operations.forward,
                             fields_of(kind.mixer, of));
        });
      }
      asked.part = model_part::product_of_mixer;
      if (question.products) ask_products(problems, asked, kind.products, call);
    });
  }
  if (!question.products) return problems;
  for (std::size_t index = 0; index < model.feed_forwards.size(); ++index) {
    const feed_forward& network = model.feed_forwards[index];
    in_each_phase([&](model_phase phase, const layer_call& call) {
      ask_products(problems,
                   {.kind = network.name,
                    .part = model_part::feed_forward,
                    .index = index,
                    .layers = network.layers,
                    .phase = phase},
                   network.products, call);
    });
  }
  if (model.head.classes == 0) return problems;
  in_each_phase([&](model_phase phase, const layer_call& call) {
    const bool training = phase == model_phase::training;
    ask(problems,
        {.kind = "head",
         .name = training ? "loss" : "logits",
         .part = model_part::head,
         .layers = 1,
         .phase = phase},
        call, [&](const layer_call& of) {
          return training ? model.head.loss(of) : model.head.problem(of);
        });
  });
  return problems;
}

}  // namespace tessera::tool
