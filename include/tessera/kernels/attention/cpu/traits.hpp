// What follows from a row's config on the CPU: instruction set, word kind, buffer shapes; and the
// assertion that stops an illegal or mis-compiled row.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/dot.hpp>
#include <tessera/prim/cpu/register_tile.hpp>

namespace tessera::kernels::attention::cpu {

template <class Row>
struct row_has_its_instructions {
  static_assert(isa::of<Row::config.target>::compiled,
                "this translation unit lacks the compiler flags of the row's backend "
                "(see tessera/prim/cpu/isa.hpp, or use -march=native)");
  static constexpr bool value = true;
};

/// Stops the compilation of a row that breaks a rule, naming both.
template <class Row>
constexpr bool require_legal() {
  return row_is_legal<Row, broken_rule(Row::config)>::value && row_has_its_instructions<Row>::value;
}

constexpr int round_up(int value, int step) {
  return (value + step - 1) / step * step;
}

/// Compile-time shape of a row's kernel. Strides count 32-bit words.
template <class Row>
struct traits {
  static_assert(require_legal<Row>());
  static constexpr attention_config config = resolved(Row::config);
  using isa_type = typename isa::of<config.target>::type;
  using words = typename prim::words_of<config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  using element = element_t<config.type>;

  static constexpr int width = vec::width;
  static constexpr int tile_rows = register_rows(config.target);
  static constexpr int tile_vectors = 2;
  static constexpr int tile_columns = tile_vectors * width;
  static constexpr int block_q = config.block_q;
  static constexpr int block_kv = config.block_kv;

  static constexpr int most_head_dim = config.head_dim != 0 ? config.head_dim : max_head_dim;
  /// One cache line more than the data keeps the rows of a register tile in different cache sets.
  static constexpr int padding = 16;
  static constexpr int q_stride =
      round_up((most_head_dim + words::per_word - 1) / words::per_word, width) + padding;
  static constexpr int score_stride = block_kv + padding;

  /// Prefill: most words of a running sum of scores, and most keys of one of outputs. Rounding
  /// errors of f32 grow with the length (those of 16-bit tensors are elsewhere), time with the
  /// number of sums; README.md has both.
  static constexpr bool has_short_sums = config.type == dtype::f32 && config.head_dim != 0;
  static constexpr int score_chain = has_short_sums && most_head_dim > 128 ? 96 : prim::any_length;
  static constexpr int output_chain = has_short_sums ? 128 : prim::any_length;

  static constexpr bool has(attention_feature one) { return config.features.has(one); }

  static TESSERA_INLINE int head_dim(const attention_kernel_args& args) {
    return config.head_dim != 0 ? config.head_dim : args.head_dim;
  }
  static TESSERA_INLINE int v_head_dim(const attention_kernel_args& args) {
    return config.v_head_dim != 0 ? config.v_head_dim : args.v_head_dim;
  }
};

/// Query heads that share one key/value head.
inline constexpr int group_of(const attention_kernel_args& args) {
  return args.q_heads / args.kv_heads;
}

/// Element (batch entry or sequence, row local to it, head) of a tensor of tokens.
template <class Element, class Data>
TESSERA_INLINE Element* token_row(Data* data, const row_strides& strides, std::int64_t entry,
                                  std::int64_t row, int head) {
  return static_cast<Element*>(data) + entry * strides.batch + row * strides.row +
         head * strides.head;
}

}  // namespace tessera::kernels::attention::cpu
