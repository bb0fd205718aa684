// A tile of a product: the summed axis in blocks, each packed and multiplied in register tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows and columns of a tile.
struct tile_size {
  int rows = 0;
  int columns = 0;
};

/// memory.c = A B over `depth` elements of the summed axis. `pack_a(first, count)` packs that part
/// of A, `pack_b(first, count, panels)` that of B. What a sum is made of and in which order does
/// not depend on the tile: a block is one running sum, and blocks are added one after the other.
template <class Kernel, class PackA, class PackB>
void multiply_tile(tile_size size, std::int64_t depth, const tile_memory<Kernel>& memory,
                   const PackA& pack_a, const PackB& pack_b) {
  using shape = traits<Kernel>;
  using words = typename shape::words;
  if (depth == 0) std::fill_n(memory.c, std::int64_t{size.rows} * shape::block_n, 0.0f);
  for (std::int64_t first = 0; first < depth; first += shape::block_k) {
    const std::int64_t left = depth - first;
    const int count = left < shape::block_k ? static_cast<int>(left) : shape::block_k;
    const typename shape::panels b{memory.b, prim::words_for<words>(count),
                                   shape::up_to(size.columns, shape::panels::nr)};
    pack_a(first, count);
    pack_b(first, count, b);
    const prim::product_range sum{0, b.words};
    const prim::product_range columns{0, shape::up_to(size.columns, shape::width)};
    const auto multiply = [&]<prim::product_kind Kind>() {
      prim::product<Kind, words, shape::mr, shape::a_stride>(memory.a, size.rows, b, sum, columns,
                                                             memory.c, shape::block_n);
    };
    if (first == 0) {
      multiply.template operator()<prim::product_kind::overwrite>();
    } else {
      multiply.template operator()<prim::product_kind::add>();
    }
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
