// Which configs of elementwise recurrences are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace selective_scan_rules {

inline constexpr row_rule cuda_rows_are_sm80{
    "target of a CUDA row is cuda_sm80, whose code runs on every later GPU"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16, whose products do not help a "
    "recurrence"};

}  // namespace selective_scan_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(selective_scan_config config) noexcept {
  using namespace selective_scan_rules;
  if (is_cuda(config.target) && config.target != backend::cuda_sm80) return &cuda_rows_are_sm80;
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(selective_scan_config config) noexcept {
  using namespace selective_scan_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) return &bf16_instructions_add_nothing;
  return nullptr;
}

}  // namespace tessera
