// Which configs of elementwise recurrences are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/selective_scan/config.hpp>

namespace tessera {

enum class selective_scan_rule : std::uint8_t {
  none,
  cuda_rows_are_sm80,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(selective_scan_rule rule) noexcept {
  switch (rule) {
    case selective_scan_rule::none:
      return "the row is legal";
    case selective_scan_rule::cuda_rows_are_sm80:
      return "target of a CUDA row is cuda_sm80, whose code runs on every later GPU";
    case selective_scan_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help a recurrence";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr selective_scan_rule broken_rule(selective_scan_config config) noexcept {
  return is_cpu(config.target) || config.target == backend::cuda_sm80
             ? selective_scan_rule::none
             : selective_scan_rule::cuda_rows_are_sm80;
}

/// What a row of the generated table must meet besides.
constexpr selective_scan_rule broken_table_rule(selective_scan_config config) noexcept {
  const selective_scan_rule broken = broken_rule(config);
  if (broken != selective_scan_rule::none) return broken;
  return has_bf16_products(config.target) ? selective_scan_rule::bf16_instructions_add_nothing
                                          : selective_scan_rule::none;
}

}  // namespace tessera
