// What follows from a row's config on the CPU: registers, tiles, strides of scratch memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/families/latent_attention/schedule_cpu.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/cpu/gemm/panels.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Strides count floats.
template <class Kernel>
struct traits {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr latent_attention_config config = resolved(Kernel::config);
  using isa_type = typename isa::of<config.target>::type;
  using words = prim::f32_words<isa_type>;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  static constexpr int width = vec::width;

  /// The register tile of the microkernel: mr rows, nr columns.
  static constexpr int mr = register_rows(config.target);
  static constexpr int vectors = register_columns(config.target) / width;
  using panels = prim::panels<isa_type, vectors>;
  /// What absorbed latents are multiplied as: pairs of bf16 where the row is of that type.
  using latent_words = std::conditional_t<config.type == dtype::bf16,
                                          typename prim::words_of<config.target>::type, words>;

  /// Absorbed latents are multiplied on AMX tiles.
  static constexpr bool on_tiles = has_tile_products(config.target) && config.type == dtype::bf16;
  /// What a thread holds while it has a block of rows.
  using tile_scope = prim::tile_scope<std::conditional_t<on_tiles, prim::tiles, prim::no_tiles>>;

  static constexpr int block_rows = latent_schedule::block_rows(config.target);
  static constexpr int block_keys = latent_schedule::block_keys;
  /// Of a row of scores, and of one of their transpose: no power of two, or the rows of a register
  /// tile would share cache sets.
  static constexpr int score_stride = block_keys + 16;
  static constexpr int query_stride = block_rows + 16;

  /// `count` columns in whole registers.
  static constexpr std::int64_t columns_of(std::int64_t count) {
    return prim::padded<isa_type>(count);
  }
  /// Of a row of sums over `count` columns: rows of a tile share no cache set.
  static constexpr std::int64_t sum_stride(std::int64_t count) {
    return columns_of(count) + (on_tiles ? width : 0);
  }
};

}  // namespace tessera::kernels::latent_attention::cpu
