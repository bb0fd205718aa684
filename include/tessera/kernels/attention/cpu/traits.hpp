// What follows from a kernel's config on the CPU: instruction set, word kind, buffer shapes; and
// the assertion that stops an illegal or mis-compiled one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/panels.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::kernels::attention::cpu {

using schedule_cpu::round_up;
using schedule_cpu::strides;

/// What a kernel is at compile time. Strides count 32-bit words.
template <class Kernel>
struct traits {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr attention_config config = resolved(Kernel::config);
  using isa_type = typename isa::of<config.target>::type;
  using words = typename prim::words_of<config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  using element = element_t<config.type>;

  static constexpr int width = vec::width;
  static_assert(words::k_pack == schedule_cpu::k_pack(config.target));
  /// Products are of AMX tiles: two rows and two columns of them at a time.
  static constexpr bool tiles = has_tile_products(config.target);
  /// What a thread holds while it works on an item.
  using tile_scope = prim::tile_scope<std::conditional_t<tiles, prim::tiles, prim::no_tiles>>;
  /// The register tile of the microkernel: mr rows, nr columns.
  static constexpr int mr = prefill_rows(config.target);
  static constexpr int nr = register_columns(config.target);
  static constexpr int vectors = nr / width;
  using panels = prim::panels<isa_type, vectors>;
  /// Keys that columns in use are rounded to.
  static constexpr int key_step = tiles ? 2 * prim::tile_width : width;
  static constexpr int block_q = config.block_q;
  static constexpr int block_kv = config.block_kv;

  static constexpr int most_head_dim = config.head_dim != 0 ? config.head_dim : max_head_dim;
  static constexpr int q_stride = strides::q(config);
  static constexpr int score_stride = strides::scores(config);

  /// Prefill: most words of a running sum of scores, and most keys of one of outputs. Rounding
  /// errors of f32 grow with the length (those of 16-bit tensors are elsewhere), time with the
  /// number of sums; NOTES.md has both.
  static constexpr bool has_short_sums = config.type == dtype::f32 && config.head_dim != 0;
  static constexpr int score_chain = has_short_sums && most_head_dim > 128 ? 96 : prim::any_length;
  static constexpr int output_chain = has_short_sums ? 128 : prim::any_length;

  /// Heads of k and v, and of q if it is f8_e4m3, may have scales.
  static constexpr bool scales_heads =
      config.keys == key_storage::paged || config.type == dtype::f8_e4m3;

  static constexpr bool has(attention_feature feature) { return config.features.has(feature); }

  static TESSERA_INLINE int head_dim(const attention_kernel_args& args) {
    return config.head_dim != 0 ? config.head_dim : args.head_dim;
  }
  static TESSERA_INLINE int v_head_dim(const attention_kernel_args& args) {
    return config.v_head_dim != 0 ? config.v_head_dim : args.v_head_dim;
  }

  /// Keys of a tile as columns of B.
  static TESSERA_INLINE panels k_panels(const attention_kernel_args& args, float* data) {
    return {data, words_of_head(head_dim(args)), block_kv};
  }
  /// Words of K's summed axis: whole tiles where there are tiles.
  static constexpr int words_of_head(int head_dim) {
    const int used = prim::words_for<words>(head_dim);
    return tiles ? round_up(used, prim::tile_width) : used;
  }
  /// Values of a tile of `count` keys as rows of B.
  static TESSERA_INLINE panels v_panels(const attention_kernel_args& args, float* data, int count) {
    return {data, round_up(count, key_step) / words::k_pack, round_up(v_head_dim(args), width)};
  }
};

/// Element (batch entry or sequence, row local to it, head) of a tensor of tokens.
template <class Element, class Data>
TESSERA_INLINE Element* token_row(Data* data, const row_strides& strides, std::int64_t entry,
                                  std::int64_t row, int head) {
  return static_cast<Element*>(data) + entry * strides.batch + row * strides.row +
         head * strides.head;
}

}  // namespace tessera::kernels::attention::cpu
