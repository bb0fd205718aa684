// The two products of a block of rows with latents on AMX tiles, whose operands lie as they do for
// VDPBF16PS: sixteen latents, or the weights of sixteen rows, are the rows of an operand A, words
// of packed queries and of pairs of values those of B. Both go over whole tiles of words: those
// behind the last are zeros in each of the two operands.
//
// Rows of A behind the last are anything, and so are those of the result, which have room.
#pragma once

#include <type_traits>

#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Rows of a matrix that has room for `stride` words each.
struct word_rows {
  float* data = nullptr;
  std::int64_t stride = 0;

  float* at(int row, int column) const { return data + row * stride + column; }
};

template <class Kernel>
class absorbed_tiles {
  using shape = traits<Kernel>;
  static constexpr int tile = prim::tile_rows;
  static_assert(prim::tile_width == tile);
  static constexpr int k_pack = shape::latent_words::k_pack;
  using latent_slabs = slabs<Kernel, typename shape::latent_words>;

 public:
  /// `count` in whole tiles.
  static constexpr int in_tiles(int count) { return (count + tile - 1) / tile * tile; }
  /// Words of a summed axis of `length` elements.
  static constexpr int words_of(int length) {
    return in_tiles(prim::words_for<typename shape::latent_words>(length));
  }

  /// S^T = K Q^T for latents [0, keys) and `rows` queries.
  static void multiply_scores(const latent_slabs& latents, int keys,
                              const typename shape::panels& q, int rows, const word_rows& to) {
    constexpr int words_of_slab = latent_slabs::depth / k_pack;
    for_each_block(in_tiles(keys), in_tiles(rows), [&](auto& product, int key, int column) {
      for (int word = 0; word < q.words; word += words_of_slab) {
        const int left = q.words - word, words = left < words_of_slab ? left : words_of_slab;
        const typename std::remove_reference_t<decltype(product)>::operands from{
            reinterpret_cast<const float*>(latents.at(key, word * k_pack)), latent_slabs::stride,
            q.at(word, column), q.stride(column)};
        if (word > 0) {
          product.add(from, words);
        } else {
          product.template begin<false>(from, to.at(key, column), to.stride);
          product.add(product.next(from), words - tile);
        }
      }
    });
  }

  /// O += P V for `rows` rows of weights of pairs of keys, whose `words` are whole tiles.
  static void add_values(const word_rows& weights, int rows, const slabs<Kernel>& values, int words,
                         int columns, const word_rows& to) {
    for_each_block(in_tiles(rows), columns, [&](auto& product, int row, int column) {
      const typename std::remove_reference_t<decltype(product)>::operands from{
          weights.at(row, 0), weights.stride, values.at(0, column), slabs<Kernel>::stride};
      product.template begin<true>(from, to.at(row, column), to.stride);
      product.add(product.next(from), words - tile);
    });
  }

 private:
  /// Calls body(product, row, column) for blocks of up to two by two tiles of a matrix of whole
  /// ones. Blocks of one shape follow each other: sums of one are stored beside the next.
  template <class Body>
  static void for_each_block(int rows, int columns, const Body& body) {
    const auto blocks = [&]<int RowTiles, int ColumnTiles>(int row, int end_row, int column,
                                                           int end_column) {
      if (row >= end_row || column >= end_column) return;
      prim::tile_product<prim::tiles, RowTiles, ColumnTiles> product;
      for (int c = column; c < end_column; c += ColumnTiles * tile) {
        for (int r = row; r < end_row; r += RowTiles * tile) body(product, r, c);
      }
      product.finish();
    };
    const int even_rows = rows / (2 * tile) * (2 * tile);
    const int even_columns = columns / (2 * tile) * (2 * tile);
    blocks.template operator()<2, 2>(0, even_rows, 0, even_columns);
    blocks.template operator()<2, 1>(0, even_rows, even_columns, columns);
    blocks.template operator()<1, 2>(even_rows, rows, 0, even_columns);
    blocks.template operator()<1, 1>(even_rows, rows, even_columns, columns);
  }
};

}  // namespace tessera::kernels::latent_attention::cpu
