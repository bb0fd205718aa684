// Which mean pooling configs are legal. See spec/row_rule.hpp.
#pragma once

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/shared_rules.hpp>

namespace tessera {

/// What legal rows meet.
namespace mean_pooling_rules {

using shared_rules::bf16_instructions_take_bf16;
using shared_rules::type_is_floating;

inline constexpr row_rule streams_is_a_small_power_of_two{
    "streams of a forward row is 1, 2, 4, 8 or 16"};
inline constexpr row_rule cuda_streams_fit_in_registers{
    "streams of a CUDA row is at most 8: a thread has registers for no more tokens"};
inline constexpr row_rule forward_stores_are_cached{
    "a forward row has cached stores: it writes one mean for many tokens"};
inline constexpr row_rule backward_has_no_streams{
    "a backward row has streams 0: it reads one mean for many tokens"};
inline constexpr row_rule generic_stores_are_cached{
    "cpu_generic rows have cached stores: portable C++ has no others"};
inline constexpr row_rule bf16_instructions_add_nothing{
    "table rows are not of cpu_avx512_bf16 or cpu_amx_bf16, whose products do not help to add "
    "tokens"};
inline constexpr row_rule cuda_rows_are_sm80{
    "rows for GPUs are of cuda_sm80: newer instructions do not help to add tokens"};

}  // namespace mean_pooling_rules

/// The first rule that `config` breaks, or null. Holds for user rows on the header path.
template <class Answer = const row_rule*>
constexpr Answer broken_rule(mean_pooling_config config) noexcept {
  using namespace mean_pooling_rules;
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return &type_is_floating;
  if (is_cuda(config.target) && config.target != backend::cuda_sm80) {
    return &cuda_rows_are_sm80;
  }
  if (config.pass == pooling_pass::forward) {
    const bool power = config.streams > 0 && (config.streams & (config.streams - 1)) == 0;
    if (!power || config.streams > max_pooling_streams) {
      return &streams_is_a_small_power_of_two;
    }
    if (is_cuda(config.target) && config.streams > max_cuda_pooling_streams) {
      return &cuda_streams_fit_in_registers;
    }
    if (config.stores != pooling_stores::cached) {
      return &forward_stores_are_cached;
    }
  } else {
    if (config.streams != 0) return &backward_has_no_streams;
    if (config.target == backend::cpu_generic && config.stores != pooling_stores::cached) {
      return &generic_stores_are_cached;
    }
  }
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return &bf16_instructions_take_bf16;
  }
  return nullptr;
}

/// What a row of the generated table must meet besides.
template <class Answer = const row_rule*>
constexpr Answer broken_table_rule(mean_pooling_config config) noexcept {
  using namespace mean_pooling_rules;
  if (const Answer broken = broken_rule<Answer>(config)) return broken;
  if (has_bf16_products(config.target)) {
    return &bf16_instructions_add_nothing;
  }
  return nullptr;
}

}  // namespace tessera
