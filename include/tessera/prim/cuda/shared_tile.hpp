// A tile of 16-bit elements in shared memory: rows of whole 128-byte lines, in which the 16-byte
// chunk c of row r lies at chunk c ^ (r % 8) of its line. Then the eight rows of an 8x8 tile lie in
// different banks (ldmatrix has no conflicts), and each line of global memory fills one line of
// shared memory: rows padded by 16 bytes were measured to cost cp.async 10.5 instead of 4 accesses
// an instruction.
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// Tile of `Rows` rows of `Width` elements; Width is a multiple of 16.
template <int Rows, int Width>
struct shared_tile {
  static constexpr int rows = Rows;
  static constexpr int width = Width;
  static constexpr int chunks = Width / 8;               ///< of 16 bytes, in a row
  static constexpr int lines = (Width * 2 + 127) / 128;  ///< of 128 bytes, in a row
  static constexpr int row_bytes = lines * 128;
  static constexpr int bytes = Rows * row_bytes;

  /// Offset of a chunk. (Unsigned, because signed quotients by powers of 2 take three
  /// instructions.)
  static __device__ __forceinline__ std::uint32_t offset(std::uint32_t row, std::uint32_t chunk) {
    return row * row_bytes + (chunk / 8) * 128 + ((chunk % 8) ^ (row % 8)) * 16;
  }

  /// The address `rows` rows below an address of a chunk; rows is a multiple of 4, and the address
  /// lies in rows 0 to 3 if it is no multiple of 8.
  static __device__ __forceinline__ std::uint32_t down(std::uint32_t address, std::uint32_t rows) {
    return (address ^ ((rows % 8) * 16)) + rows * row_bytes;
  }

  /// Where a lane finds its row of the operand A (rows 0 to 15, k 0 to 15), or of a transposed B.
  static __device__ __forceinline__ std::uint32_t lane_of_a(std::uint32_t lane) {
    return offset(lane % 16, lane / 16);
  }
  /// Where a lane finds its row of two operands B (columns 0 to 15 are rows of the tile).
  static __device__ __forceinline__ std::uint32_t lane_of_b(std::uint32_t lane) {
    return offset(lane % 8 + (lane / 16) * 8, lane / 8 % 2);
  }

  /// Where a lane finds its f32 element (row 2t, column g) of a tile of f32 that is half as wide;
  /// row 2t + 1 is at `(address ^ 16) + row_bytes`. Eight rows and eight columns have no conflicts.
  static __device__ __forceinline__ std::uint32_t lane_of_single(std::uint32_t lane) {
    return offset(lane % 4 * 2, lane / 16) + lane / 4 % 4 * 4;
  }

  /// The lane's address `16 * row_step` rows down and `16 * k_step` columns right. `base` is a
  /// multiple of 128 plus one of the offsets above.
  static __device__ __forceinline__ std::uint32_t step(std::uint32_t base, int row_step,
                                                       int k_step) {
    return (base ^ static_cast<std::uint32_t>((k_step % 4) * 32)) +
           static_cast<std::uint32_t>((k_step / 4) * 128 + row_step * 16 * row_bytes);
  }
};

}  // namespace tessera::prim::cuda
