// Operands of a product on their way to shared memory: tiles as they are stored, 16 bytes at a
// time; or element by element, of any type and address, with their scales.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// Elements of the summed axis in a tile for the matrix unit.
inline constexpr int tile_depth = 64;

/// A number of any type that operands have.
__device__ __forceinline__ float stored_number(const grouped_matrix& of, std::int64_t offset) {
  if (of.type == dtype::i8) {
    return static_cast<float>(static_cast<const std::int8_t*>(of.data)[offset]);
  }
  return prim::cuda::number_at(of.data, of.type, offset);
}

/// The part of an operand that a tile of the result is made of.
struct operand_part {
  const factor* of = nullptr;
  std::int64_t matrix = 0;
  std::int64_t line = 0, column = 0;  ///< of the first element
  std::int64_t extent = 0;            ///< rows or columns of the result, from there on
  std::int64_t depth = 0;

  /// Of a: `start` is the row of the result where the tile begins; of b the column.
  __device__ __forceinline__ operand_part(const factor& operand, const tile_place& at,
                                          std::int64_t first_line, std::int64_t start,
                                          std::int64_t all)
      : of(&operand),
        matrix(at.stored_matrix()),
        line(first_line + (operand.across ? 0 : start)),
        column(operand.across ? start : 0),
        extent(all - start),
        depth(at.depth) {}

  static __device__ __forceinline__ operand_part of_a(const product_args& args,
                                                      const tile_place& at) {
    return {args.a, at, at.first, at.row, at.rows};
  }
  static __device__ __forceinline__ operand_part of_b(const product_args& args,
                                                      const tile_place& at) {
    return {args.b, at, args.sums_rows ? at.first : 0, at.column, args.columns};
  }

  __device__ __forceinline__ std::int64_t offset() const {
    return of->matrix.offset(matrix, line, column);
  }

  /// Element `at` of the extent and `k` of the summed axis, scaled.
  __device__ __forceinline__ float value(std::int64_t at, std::int64_t k) const {
    const std::int64_t l = line + (of->across ? k : at), c = column + (of->across ? at : k);
    const float x = stored_number(of->matrix, of->matrix.offset(matrix, l, c));
    return of->scale.data == nullptr ? x : x * scale_of(*of, matrix, l, c);
  }
  /// The scale of a weight at its place in storage.
  static __device__ __forceinline__ float scale_of(const factor& weights, std::int64_t matrix,
                                                   std::int64_t l, std::int64_t c) {
    const auto block = static_cast<std::uint32_t>(weights.scale_by_line ? l : c) /
                       static_cast<std::uint32_t>(weights.scale_block);
    return prim::cuda::number_at(
        weights.scale.data, weights.scale.type,
        weights.scale.offset(matrix, block, weights.scale_by_line ? c : l));
  }
};

/// Copies the tiles of an operand of 16-bit elements, one after the other along the summed axis:
/// `Extent` lines of 64 elements, or 64 lines of `Extent`. What lies beyond becomes zeros. Lines
/// are whole chunks of 16 bytes.
template <int Extent, bool Across, int Threads>
class tile_copy {
 public:
  using tile = std::conditional_t<Across, prim::cuda::shared_tile<tile_depth, Extent>,
                                  prim::cuda::shared_tile<Extent, tile_depth>>;

  __device__ __forceinline__ explicit tile_copy(const operand_part& part) {
    const int line = static_cast<int>(threadIdx.x) / tile::chunks;
    const int chunk = static_cast<int>(threadIdx.x) % tile::chunks;
    line_bytes_ = part.of->matrix.row * 2;
    from_ = static_cast<const char*>(part.of->matrix.data) + part.offset() * 2 +
            line * line_bytes_ + chunk * 16;
    to_ = tile::offset(static_cast<unsigned>(line), static_cast<unsigned>(chunk));
    const std::int64_t held = Across ? part.extent - chunk * 8 : part.extent - line;
    held_ = static_cast<int>(held < Extent ? held : Extent);
    left_ = Across ? part.depth - line : part.depth - chunk * 8;
  }

  /// Starts the copy of the next tile.
  __device__ __forceinline__ void start(std::uint32_t to) {
    const int left = static_cast<int>(left_ < tile_depth ? left_ : tile_depth);
    const char* from = from_;
#pragma unroll
    for (int i = 0; i < tile::rows / lines; ++i) {
      const bool wanted = (Across ? held_ : left) > 0 && (Across ? left : held_) > i * lines;
      prim::cuda::copy_async_16_or_zeros(
          to + to_ + static_cast<unsigned>(i * lines * tile::row_bytes), from, wanted);
      from += lines * line_bytes_;
    }
    from_ += Across ? tile_depth * line_bytes_ : tile_depth * 2;
    left_ -= tile_depth;
  }

 private:
  static constexpr int lines = Threads / tile::chunks;  ///< that all threads copy at a time
  static_assert(lines % 8 == 0 && tile::rows % lines == 0);

  const char* from_;
  std::int64_t line_bytes_;
  int held_;           ///< of the extent, from this thread's first element on
  std::int64_t left_;  ///< of the summed axis
  std::uint32_t to_;
};

/// The same of any operand: tiles of `Extent` lines of 64 elements along the summed axis, however
/// it is stored.
template <class Element, int Extent, int Threads>
class tile_read {
 public:
  using tile = prim::cuda::shared_tile<Extent, tile_depth>;

  __device__ __forceinline__ explicit tile_read(const operand_part& part)
      : part_(part), copy_(part), copied_(part.of->direct && !part.of->across) {}

  __device__ __forceinline__ void start(std::uint32_t to) {
    if (copied_) return copy_.start(to);
    for (int at = static_cast<int>(threadIdx.x); at < Extent * tile::chunks; at += Threads) {
      const int line = part_.of->across ? at % Extent : at / tile::chunks;
      const int chunk = part_.of->across ? at / Extent : at % tile::chunks;
      std::uint32_t words[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const std::int64_t k = k_ + chunk * 8 + pair * 2;
        words[pair] = prim::cuda::half_words<Element>::pack(value(line, k), value(line, k + 1));
      }
      prim::cuda::store_shared_16(
          to + tile::offset(static_cast<unsigned>(line), static_cast<unsigned>(chunk)), words);
    }
    k_ += tile_depth;
  }

 private:
  __device__ __forceinline__ float value(int line, std::int64_t k) const {
    return line < part_.extent && k < part_.depth ? part_.value(line, k) : 0.0f;
  }

  operand_part part_;
  tile_copy<Extent, false, Threads> copy_;
  bool copied_;
  std::int64_t k_ = 0;
};

}  // namespace tessera::kernels::grouped_matmul::sm80
