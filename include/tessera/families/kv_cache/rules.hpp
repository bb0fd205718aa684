// Which configs of kernels of caches are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/kv_cache/config.hpp>

namespace tessera {

enum class kv_cache_rule : std::uint8_t {
  none,
  cuda_rows_are_sm80,
  copies_are_portable,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(kv_cache_rule rule) noexcept {
  switch (rule) {
    case kv_cache_rule::none:
      return "the row is legal";
    case kv_cache_rule::cuda_rows_are_sm80:
      return "rows for GPUs are of cuda_sm80: newer instructions do not help to move tokens";
    case kv_cache_rule::copies_are_portable:
      return "table rows on a CPU that copy are of cpu_generic: the C library moves bytes as fast "
             "as memory does";
    case kv_cache_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help to move "
             "tokens";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr kv_cache_rule broken_rule(kv_cache_config config) noexcept {
  return is_cuda(config.target) && config.target != backend::cuda_sm80
             ? kv_cache_rule::cuda_rows_are_sm80
             : kv_cache_rule::none;
}

/// What a row of the generated table must meet besides.
constexpr kv_cache_rule broken_table_rule(kv_cache_config config) noexcept {
  const kv_cache_rule broken = broken_rule(config);
  if (broken != kv_cache_rule::none) return broken;
  if (has_bf16_products(config.target)) return kv_cache_rule::bf16_instructions_add_nothing;
  if (config.pass == kv_cache_pass::copy && is_cpu(config.target) &&
      config.target != backend::cpu_generic) {
    return kv_cache_rule::copies_are_portable;
  }
  return kv_cache_rule::none;
}

}  // namespace tessera
