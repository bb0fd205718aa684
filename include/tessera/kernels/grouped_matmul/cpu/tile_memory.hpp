// Scratch memory of a thread: the packed operands of a tile, its sums, and rows in between.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

template <class Kernel>
struct tile_memory {
  using shape = traits<Kernel>;

  float* a = nullptr;        ///< [block_m][a_stride] words; of tiles [2][block_m][block_k words]
  float* b = nullptr;        ///< panels: [block_k words][block_n]; of tiles two of them
  float* c = nullptr;        ///< [block_m][c_stride]
  float* weights = nullptr;  ///< stored rows of scaled or whole-numbered weights as floats
  float* rows[3] = {};       ///< any side of a tile each
  /// Of products of bytes, for each 128 elements of the summed axis: scales of the rows of A, and
  /// the whole numbers that their sums begin with; of tiles sums of one part and of the next.
  float* scales = nullptr;  ///< [block_k / 128][block_m]
  float* starts = nullptr;
  std::int64_t c_stride = 0;  ///< whole lines, and not all rows in one set of a cache
  std::size_t bytes = 0;

  /// Stored weights lie along the summed axis or along the columns of a tile.
  static constexpr int longest_weights =
      shape::block_k > shape::block_n ? shape::block_k : shape::block_n;
  static constexpr int weights_stride = longest_weights + 16;
  /// Any side of a tile, up to whole registers.
  static constexpr int longest_side =
      longest_weights > shape::block_m ? longest_weights : shape::block_m;

  /// Of few rows so many blocks of the summed axis are multiplied together on tiles.
  static constexpr int deepest = 8;
  /// Where operands of tiles are packed while others are multiplied, and what is multiplied first.
  static constexpr std::int64_t words_of_a =
      std::int64_t{shape::block_m} * (shape::block_k / shape::words::k_pack);
  static constexpr std::int64_t words_of_b =
      std::int64_t{shape::block_k} / shape::words::k_pack *
      (shape::has_tiles ? std::max(shape::block_n, deepest* shape::panels::nr) : shape::block_n);

  /// For the tiles of a call. Counts bytes without memory.
  tile_memory(std::byte* base, const grouped_matmul_kernel_args& args)
      : c_stride(shape::up_to(static_cast<int>(most_columns(args)), 32)) {
    if (c_stride % 128 == 0) c_stride += 16;
    const auto take = [&](std::int64_t floats) {
      float* const part = base == nullptr ? nullptr : reinterpret_cast<float*>(base + bytes);
      bytes += (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
      return part;
    };
    // Whole registers of rows where columns of a tensor become rows of A.
    a = take(shape::has_tiles
                 ? 2 * words_of_a
                 : std::int64_t{shape::up_to(shape::block_m, shape::width)} * shape::a_stride);
    b = take((shape::has_tiles ? 2 : 1) * words_of_b);
    c = take(std::int64_t{shape::block_m} * c_stride);
    if constexpr (shape::has_byte_products) {
      constexpr std::int64_t parts = shape::block_k / scale_block;
      scales = take(parts * shape::block_m);
      starts = take(shape::has_tiles ? 2 * shape::mr * shape::panels::nr : parts * shape::block_m);
    } else if constexpr (!shape::has_tiles) {
      weights = take(std::int64_t{longest_weights} * weights_stride);
    }
    for (float*& row : rows) row = take(std::max<std::int64_t>(longest_side + 16, c_stride));
    // The prefetcher of one core may not reach what another writes.
    bytes += 4096;
  }

 private:
  /// Of a result: of gradients n or k, whose blocks may be shorter than those of a tile.
  static std::int64_t most_columns(const grouped_matmul_kernel_args& args) {
    const std::int64_t columns = args.d_out.data == nullptr ? args.n : std::max(args.n, args.k);
    return std::clamp<std::int64_t>(columns, shape::block_n, most_item_columns(shape::config));
  }
};

}  // namespace tessera::kernels::grouped_matmul::cpu
