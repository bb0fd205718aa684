// Which configs of grouped matrix products are legal. Written once: the generator drops rows by
// `broken_rule`, an assertion in the launcher names the rule and the row, and the run time prints
// `sentence_of`.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/families/grouped_matmul/config.hpp>

namespace tessera {

enum class grouped_matmul_rule : std::uint8_t {
  none,
  target_is_a_cpu,
  block_m_is_whole_register_tiles,
  block_n_is_whole_register_tiles,
  block_k_is_whole_vectors,
  tile_is_small,
};

/// The condition a legal row meets, as a sentence.
constexpr std::string_view sentence_of(grouped_matmul_rule rule) noexcept {
  switch (rule) {
    case grouped_matmul_rule::none:
      return "the row is legal";
    case grouped_matmul_rule::target_is_a_cpu:
      return "target is a CPU: there are no kernels for GPUs yet";
    case grouped_matmul_rule::block_m_is_whole_register_tiles:
      return "block_m is a positive multiple of the rows of a register tile";
    case grouped_matmul_rule::block_n_is_whole_register_tiles:
      return "block_n is a positive multiple of the columns of a register tile";
    case grouped_matmul_rule::block_k_is_whole_vectors:
      return "block_k is a positive multiple of 32, so that operands are whole vectors of words";
    case grouped_matmul_rule::tile_is_small:
      return "block_m, block_n and block_k are at most 4096";
  }
  return "invalid";
}

/// The first rule that `config` breaks, or `none`. Holds for user rows on the header path.
constexpr grouped_matmul_rule broken_rule(grouped_matmul_config config) noexcept {
  using enum grouped_matmul_rule;
  if (is_cuda(config.target)) return target_is_a_cpu;
  config = resolved(config);
  if (config.block_m <= 0 || config.block_m % register_rows(config.target) != 0) {
    return block_m_is_whole_register_tiles;
  }
  if (config.block_n <= 0 || config.block_n % register_columns(config.target) != 0) {
    return block_n_is_whole_register_tiles;
  }
  if (config.block_k <= 0 || config.block_k % 32 != 0) return block_k_is_whole_vectors;
  constexpr int most = 4096;
  if (config.block_m > most || config.block_n > most || config.block_k > most) {
    return tile_is_small;
  }
  return none;
}

/// What a row of the generated table must meet besides: nothing.
constexpr grouped_matmul_rule broken_table_rule(grouped_matmul_config config) noexcept {
  return broken_rule(config);
}

}  // namespace tessera
