// What follows from the config of a row of grouped matrix products on the CPU, and the assertion
// that stops an illegal or mis-compiled row.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/gemm/panels.hpp>
#include <tessera/prim/cpu/gemm/signed_bytes.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Compile-time shape of a row's kernel. Strides count words.
template <class Kernel>
struct traits {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr grouped_matmul_config config = resolved(Kernel::config);
  using isa_type = typename isa::of<config.target>::type;
  using vec = prim::simd<isa_type>;
  /// Whole numbers are multiplied: i8 with scales, forward.
  static constexpr bool has_byte_products = multiplies_bytes(config);
  using words = typename std::conditional_t<has_byte_products, prim::byte_words_of<config.target>,
                                            prim::words_of<config.target>>::type;
  /// By tile registers (tile_register_product.hpp).
  static constexpr bool has_tiles = has_tile_products(config.target);

  static constexpr int width = vec::width;
  static constexpr int mr = rows_together(config);
  static constexpr int vectors = register_columns(config.target) / width;
  using panels = prim::panels<isa_type, vectors>;

  static constexpr int block_m = config.block_m;
  static constexpr int block_n = config.block_n;
  static constexpr int block_k = config.block_k;
  /// Rows of A: not a power of two apart, or they would meet in the same lines of a cache. Of tiles
  /// rows of one register.
  static constexpr int a_stride = has_tiles ? width : block_k / words::k_pack + 16;
  /// Where a register of words of a row of A lies. Of tiles mr rows lie side by side, then their
  /// next words.
  static TESSERA_INLINE std::int64_t a_at(std::int64_t row, std::int64_t word) {
    return row * a_stride + word * (has_tiles ? mr : 1);
  }

  static TESSERA_INLINE int up_to(int count, int step) { return (count + step - 1) / step * step; }
};

template <class Kernel>
TESSERA_INLINE std::int64_t blocks_of(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

}  // namespace tessera::kernels::grouped_matmul::cpu
