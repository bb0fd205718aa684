// Which mean pooling configs are legal. Written once: the generator drops rows by `broken_rule`, an
// assertion in the launcher names the rule and the row, and the run time prints `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/mean_pooling/config.hpp>

namespace tessera {

enum class mean_pooling_rule : std::uint8_t {
  none,
  type_is_floating,
  streams_is_a_small_power_of_two,
  cuda_streams_fit_in_registers,
  forward_stores_are_cached,
  backward_has_no_streams,
  generic_stores_are_cached,
  bf16_instructions_take_bf16,
  bf16_instructions_add_nothing,
  cuda_rows_are_sm80,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(mean_pooling_rule rule) noexcept {
  switch (rule) {
    case mean_pooling_rule::none:
      return "the row is legal";
    case mean_pooling_rule::type_is_floating:
      return "type is f32, f16 or bf16";
    case mean_pooling_rule::streams_is_a_small_power_of_two:
      return "streams of a forward row is 1, 2, 4, 8 or 16";
    case mean_pooling_rule::cuda_streams_fit_in_registers:
      return "streams of a CUDA row is at most 8: a thread has registers for no more tokens";
    case mean_pooling_rule::forward_stores_are_cached:
      return "a forward row has cached stores: it writes one mean for many tokens";
    case mean_pooling_rule::backward_has_no_streams:
      return "a backward row has streams 0: it reads one mean for many tokens";
    case mean_pooling_rule::generic_stores_are_cached:
      return "cpu_generic rows have cached stores: portable C++ has no others";
    case mean_pooling_rule::bf16_instructions_take_bf16:
      return "cpu_avx512_bf16 rows have type bf16";
    case mean_pooling_rule::cuda_rows_are_sm80:
      return "rows for GPUs are of cuda_sm80: newer instructions do not help to add tokens";
    case mean_pooling_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help to add tokens";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr mean_pooling_rule broken_rule(mean_pooling_config config) noexcept {
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return mean_pooling_rule::type_is_floating;
  if (is_cuda(config.target) && config.target != backend::cuda_sm80) {
    return mean_pooling_rule::cuda_rows_are_sm80;
  }
  if (config.pass == pooling_pass::forward) {
    const bool power = config.streams > 0 && (config.streams & (config.streams - 1)) == 0;
    if (!power || config.streams > max_pooling_streams) {
      return mean_pooling_rule::streams_is_a_small_power_of_two;
    }
    if (is_cuda(config.target) && config.streams > max_cuda_pooling_streams) {
      return mean_pooling_rule::cuda_streams_fit_in_registers;
    }
    if (config.stores != pooling_stores::cached) {
      return mean_pooling_rule::forward_stores_are_cached;
    }
  } else {
    if (config.streams != 0) return mean_pooling_rule::backward_has_no_streams;
    if (config.target == backend::cpu_generic && config.stores != pooling_stores::cached) {
      return mean_pooling_rule::generic_stores_are_cached;
    }
  }
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return mean_pooling_rule::bf16_instructions_take_bf16;
  }
  return mean_pooling_rule::none;
}

/// What a row of the generated table must meet besides.
constexpr mean_pooling_rule broken_table_rule(mean_pooling_config config) noexcept {
  const mean_pooling_rule broken = broken_rule(config);
  if (broken != mean_pooling_rule::none) return broken;
  if (has_bf16_products(config.target)) {
    return mean_pooling_rule::bf16_instructions_add_nothing;
  }
  return mean_pooling_rule::none;
}

}  // namespace tessera
