// Which configs of kernels of caches are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/spec/row_rule.hpp>

namespace tessera {

/// What legal rows meet.
namespace kv_cache_rules {

inline constexpr row_rule cuda_rows_are_sm80{
    "rows for GPUs are of cuda_sm80: newer instructions do not help to move tokens"};
inline constexpr row_rule copies_are_portable{
    "table rows on a CPU that copy are of cpu_generic: the C library moves bytes as fast as memory "
    "does"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16, whose products do not help to move "
    "tokens"};

}  // namespace kv_cache_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(kv_cache_config config) noexcept {
  using namespace kv_cache_rules;
  if (is_cuda(config.target) && config.target != backend::cuda_sm80) return &cuda_rows_are_sm80;
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(kv_cache_config config) noexcept {
  using namespace kv_cache_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) return &bf16_instructions_add_nothing;
  if (config.pass == kv_cache_pass::copy && is_cpu(config.target) &&
      config.target != backend::cpu_generic) {
    return &copies_are_portable;
  }
  return nullptr;
}

}  // namespace tessera
