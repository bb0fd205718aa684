// Which configs of kernels of quantised weights are legal. Written once: the generator drops rows
// by `broken_rule`, an assertion in the launcher names the rule and the row, and the run time
// prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/config.hpp>

namespace tessera {

enum class quantized_rule : std::uint8_t {
  none,
  target_is_a_cpu,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(quantized_rule rule) noexcept {
  switch (rule) {
    case quantized_rule::none:
      return "the row is legal";
    case quantized_rule::target_is_a_cpu:
      return "target is a CPU: quantised weights have no kernels for GPUs yet";
    case quantized_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16: codes become f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr quantized_rule broken_rule(quantized_config config) noexcept {
  return is_cpu(config.target) ? quantized_rule::none : quantized_rule::target_is_a_cpu;
}

/// What a row of the generated table must meet besides.
constexpr quantized_rule broken_table_rule(quantized_config config) noexcept {
  const quantized_rule broken = broken_rule(config);
  if (broken != quantized_rule::none) return broken;
  return has_bf16_products(config.target) ? quantized_rule::bf16_instructions_add_nothing
                                          : quantized_rule::none;
}

}  // namespace tessera
