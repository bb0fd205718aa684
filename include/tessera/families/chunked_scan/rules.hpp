// Which configs of linear attention with decay are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>

namespace tessera {

enum class chunked_scan_rule : std::uint8_t {
  none,
  type_is_floating,
  sm90_rows_are_chunks_of_bf16,
  cuda_key_dim_is_known,
  cpu_rows_take_any_key_dim,
  chunks_are_products_of_16_bits,
  chunks_have_short_keys,
  bf16_instructions_take_bf16,
  bf16_instructions_add_nothing,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(chunked_scan_rule rule) noexcept {
  switch (rule) {
    case chunked_scan_rule::none:
      return "the row is legal";
    case chunked_scan_rule::type_is_floating:
      return "type is f32, f16 or bf16";
    case chunked_scan_rule::sm90_rows_are_chunks_of_bf16:
      return "rows of cuda_sm90 go by chunks of bf16: no others are written with wgmma";
    case chunked_scan_rule::cuda_key_dim_is_known:
      return "key_dim of a CUDA row is 64, 128, 256 or 1024";
    case chunked_scan_rule::cpu_rows_take_any_key_dim:
      return "key_dim of a CPU row is 0";
    case chunked_scan_rule::chunks_are_products_of_16_bits:
      return "rows of chunks are CUDA rows for f16 or bf16";
    case chunked_scan_rule::chunks_have_short_keys:
      return "key_dim of a row of chunks is 64 or 128";
    case chunked_scan_rule::bf16_instructions_take_bf16:
      return "cpu_avx512_bf16 rows have type bf16";
    case chunked_scan_rule::bf16_instructions_add_nothing:
      return "table rows are not of cpu_avx512_bf16, whose dot product does not help to step a "
             "state in f32";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr chunked_scan_rule broken_rule(chunked_scan_config config) noexcept {
  config = resolved(config);
  if (!is_floating_16_or_32(config.type)) return chunked_scan_rule::type_is_floating;
  if (goes_by_chunks(config)) {
    if (!is_cuda(config.target) || size_of(config.type) != 2) {
      return chunked_scan_rule::chunks_are_products_of_16_bits;
    }
    if (config.key_dim > most_chunk_keys) return chunked_scan_rule::chunks_have_short_keys;
  }
  if (is_cuda(config.target)) {
    if (config.target == backend::cuda_sm90 &&
        (!goes_by_chunks(config) || config.type != dtype::bf16)) {
      return chunked_scan_rule::sm90_rows_are_chunks_of_bf16;
    }
    const bool known = is_recurrent_key_dim(config.key_dim);
    return known ? chunked_scan_rule::none : chunked_scan_rule::cuda_key_dim_is_known;
  }
  if (config.key_dim != 0) return chunked_scan_rule::cpu_rows_take_any_key_dim;
  if (has_bf16_products(config.target) && config.type != dtype::bf16) {
    return chunked_scan_rule::bf16_instructions_take_bf16;
  }
  return chunked_scan_rule::none;
}

/// What a row of the generated table must meet besides.
constexpr chunked_scan_rule broken_table_rule(chunked_scan_config config) noexcept {
  const chunked_scan_rule broken = broken_rule(config);
  if (broken != chunked_scan_rule::none) return broken;
  if (has_bf16_products(config.target)) {
    return chunked_scan_rule::bf16_instructions_add_nothing;
  }
  return chunked_scan_rule::none;
}

}  // namespace tessera
