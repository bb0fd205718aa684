// Which configs of fused losses are legal. Written once: the generator drops rows by `broken_rule`,
// an assertion in the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/losses/config.hpp>

namespace tessera {

enum class losses_rule : std::uint8_t {
  none,
  target_is_a_cpu,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(losses_rule rule) noexcept {
  switch (rule) {
    case losses_rule::none:
      return "the row is legal";
    case losses_rule::target_is_a_cpu:
      return "the row is for a CPU: losses have no CUDA kernels yet";
    case losses_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16: losses are computed in f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr losses_rule broken_rule(losses_config config) noexcept {
  return is_cpu(config.target) ? losses_rule::none : losses_rule::target_is_a_cpu;
}

/// What a row of the generated table must meet besides.
constexpr losses_rule broken_table_rule(losses_config config) noexcept {
  const losses_rule broken = broken_rule(config);
  if (broken != losses_rule::none) return broken;
  return has_bf16_products(config.target) ? losses_rule::bf16_instructions_add_nothing
                                          : losses_rule::none;
}

}  // namespace tessera
