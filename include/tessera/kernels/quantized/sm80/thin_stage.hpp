// What a stage of a product of few rows holds: codes of 64 or 128 outputs, lines of 128 bytes, the
// scales and zeros of their groups as they are stored, and the same columns of x. All of it comes
// by copies that run ahead.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/quantized/sm80/thin_codes.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/shared_words.hpp>

namespace tessera::kernels::quantized::sm80 {

inline constexpr int thin_chunk = 32;  ///< columns of two products
inline constexpr int line_bytes = 128;

/// Where numbers of groups lie, and how a stage has them: `bytes` of each output, in pieces.
struct group_bytes {
  const std::byte* data = nullptr;  ///< null: there are none
  std::int64_t row = 0;             ///< bytes between outputs
  std::int64_t matrix = 0;          ///< bytes between matrices
  std::int64_t end = 0;             ///< bytes of an output
  int bytes = 0;                    ///< of an output in a stage
  int piece_shift = 2;              ///< log2 of the bytes that a copy brings: 4, 8 or 16
  int number = 0;                   ///< bytes of a number
};

/// A launch. Units are stages, tile by tile; blocks have even shares of them. Of groups, blocks
/// with the same y have the units of a few rows of a group.
struct thin_args {
  quantized_kernel_args call;
  group_bytes scales, zeros;
  grouped_matmul::sm80::row_table table;  ///< null: one matrix, and all rows are few
  int step = 1;                           ///< units that stay together
  int share = 0;                          ///< steps of a block
  int longer = 0;                         ///< blocks that have one more
  int stages_of_tile = 0;
  int tiles = 0;             ///< of a matrix
  int group_shift = 0;       ///< log2 of the group size
  int arrivals = -1;         ///< the place of the words
  float* partial = nullptr;  ///< two tiles of each block
};

/// The rows of x that a block has, and their matrix.
struct thin_rows_of_block {
  std::int64_t matrix = 0;  ///< below 0: rows of no group
  std::int64_t first = 0;
  int rows = 0;
};
/// All lanes of a warp ask together.
__device__ __forceinline__ thin_rows_of_block rows_of_block(const thin_args& args, int most) {
  const grouped_matmul::sm80::row_table& table = args.table;
  if (table.rows == nullptr) return {0, 0, static_cast<int>(args.call.batch)};
  const std::int64_t number = blockIdx.y;
  if (number >= table.tiles[table.segments]) return {};
  const std::int64_t segment = grouped_matmul::sm80::segment_of(table, number);
  thin_rows_of_block own;
  own.matrix = segment == 0 || segment + 1 == table.segments ? -1 : segment - 1;
  own.first = table.rows[segment] + (number - table.tiles[segment]) * most;
  own.rows = static_cast<int>(min(table.rows[segment + 1] - own.first, std::int64_t{most}));
  return own;
}

/// Where a block reads.
struct thin_operands {
  const std::byte *codes, *x, *scales, *zeros;
  int rows;  ///< of x

  __device__ __forceinline__ thin_operands(const thin_args& args, const thin_rows_of_block& own)
      : codes(static_cast<const std::byte*>(args.call.weights.codes.data) +
              own.matrix * args.call.weights.codes.matrix * 4),
        x(static_cast<const std::byte*>(args.call.x.data) + own.first * args.call.x.row * 2),
        scales(args.scales.data + own.matrix * args.scales.matrix),
        zeros(args.zeros.data + own.matrix * args.zeros.matrix),
        rows(own.rows) {}
};

/// Sizes for 8 or 16 rows of x. Many rows want many outputs to a block, which read x once; few want
/// long lines, which cost fewer instructions.
template <thin_code Code, int Tiles>
struct thin_layout {
  static constexpr int rows = Tiles * 8;  ///< of x
  static constexpr int warps = Tiles == 1 ? 4 : 8, threads = warps * 32;
  static constexpr int outputs = warps * 16;  ///< of a tile
  static constexpr int lines = Tiles == 1 ? 2 : 1;
  static constexpr int stages = Tiles == 1 ? 2 : 3;
  static constexpr int blocks = 16 / warps;  ///< of a multiprocessor
  static constexpr int bits = bits_of(Code);
  static constexpr int columns_of_line = line_bytes * 8 / bits, columns = lines * columns_of_line;
  static constexpr int row_bytes = lines * line_bytes, code_bytes = outputs * row_bytes;
  static constexpr int x_row_bytes = columns * 2, x_bytes = rows * x_row_bytes;
  static constexpr int scales_at = code_bytes + x_bytes;  ///< zeros are behind scales
  /// Numbers of an output in a stage: floats of the smallest groups, or bytes.
  static constexpr int most_group_bytes = has_byte_scales(Code) ? columns / 16 : columns / 32 * 4;

  static constexpr int stage_bytes(int scales, int zeros) {
    return scales_at + outputs * (scales + zeros);
  }
  static constexpr int shared_bytes(int scales, int zeros) {
    return stages * stage_bytes(scales, zeros);
  }
  static constexpr int most_bytes =
      shared_bytes(most_group_bytes, is_whole(Code) ? most_group_bytes : 0);
};

/// Where 16 bytes of codes of an output lie: eight outputs have different banks.
template <class Layout>
__device__ __forceinline__ std::uint32_t code_offset(std::uint32_t output, std::uint32_t chunk) {
  return output * Layout::row_bytes + (chunk / 8 * 8 + ((chunk % 8) ^ (output % 8))) * 16;
}
/// Where 16 bytes of a row of x lie: two rows that are read 64 bytes at a time, or four by 32, have
/// different banks.
template <class Layout>
__device__ __forceinline__ std::uint32_t x_offset(std::uint32_t row, std::uint32_t chunk) {
  return row * Layout::x_row_bytes + ((chunk ^ ((row & 1) * 4 | (row & 2))) * 16);
}

/// A stage of a launch: the tile of outputs and which columns.
template <class Layout>
struct thin_place {
  std::int64_t first = 0;  ///< output
  int stage = 0;           ///< of the tile

  __device__ __forceinline__ thin_place(const thin_args& args, int unit) {
    const int tile = unit / args.stages_of_tile;
    stage = unit - tile * args.stages_of_tile;
    first = std::int64_t{tile} * Layout::outputs;
  }
  __device__ __forceinline__ void advance(const thin_args& args) {
    if (++stage == args.stages_of_tile) {
      stage = 0;
      first += Layout::outputs;
    }
  }
};

/// The byte of the numbers of an output where those of a stage begin, a multiple of a piece.
template <class Layout>
__device__ __forceinline__ std::int64_t first_byte(const thin_args& args, const group_bytes& of,
                                                   int stage) {
  const std::int64_t group = std::int64_t{stage} * Layout::columns >> args.group_shift;
  return group * of.number & -(std::int64_t{1} << of.piece_shift);
}

/// The numbers of a stage on their way. Offsets in a tile have 32 bits.
template <class Layout>
__device__ __forceinline__ void copy_numbers(const thin_args& args, const group_bytes& from,
                                             const std::byte* data, std::uint32_t to,
                                             const thin_place<Layout>& place, int last) {
  const std::int64_t begin = first_byte<Layout>(args, from, place.stage);
  const std::byte* const source = data + place.first * from.row + begin;
  const auto left = static_cast<int>(from.end - begin < 1024 ? from.end - begin : 1024);
  const auto row_bytes = static_cast<std::uint32_t>(from.row);
  const int shift = from.piece_shift, pieces = from.bytes >> shift;
  const int pieces_shift = 31 - __clz(pieces);
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < Layout::outputs << pieces_shift;
       at += Layout::threads) {
    const int output = at >> pieces_shift, byte = (at & (pieces - 1)) << shift;
    const std::byte* const own =
        source + (static_cast<std::uint32_t>(min(output, last)) * row_bytes +
                  static_cast<std::uint32_t>(byte));
    const std::uint32_t target = to + static_cast<std::uint32_t>(at << shift);
    const bool wanted = byte < left;
    if (shift == 4) {
      prim::cuda::copy_async_16_or_zeros(target, own, wanted);
    } else if (shift == 3) {
      prim::cuda::copy_async_8(target, own, wanted);
    } else {
      prim::cuda::copy_async_4(target, own, wanted);
    }
  }
}

/// All of a stage on its way to `to`. What lies beyond the columns or the rows of x becomes 0.
template <class Layout>
__device__ __forceinline__ void copy_stage(const thin_args& args, const thin_operands& from,
                                           std::uint32_t to, const thin_place<Layout>& place) {
  const packed_weights& weights = args.call.weights;
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t outputs_left = weights.rows - place.first;
  const int last =
      static_cast<int>(outputs_left < Layout::outputs ? outputs_left : Layout::outputs) - 1;
  const std::int64_t columns_left = weights.columns() - std::int64_t{place.stage} * Layout::columns;
  const int columns =
      static_cast<int>(columns_left < Layout::columns ? columns_left : Layout::columns);

  constexpr int of_row = Layout::row_bytes / 16, outputs_at_once = Layout::threads / of_row;
  const auto row_bytes = static_cast<std::uint32_t>(weights.codes.row * 4);
  const int output = thread / of_row, chunk = thread % of_row;
  const std::byte* const codes = from.codes + place.first * weights.codes.row * 4 +
                                 (std::int64_t{place.stage} * Layout::row_bytes + chunk * 16);
  const std::uint32_t code = to + code_offset<Layout>(static_cast<std::uint32_t>(output),
                                                      static_cast<std::uint32_t>(chunk));
  const bool held = chunk * (128 / Layout::bits) < columns;
#pragma unroll
  for (int i = 0; i < Layout::outputs / outputs_at_once; ++i) {
    const auto row = static_cast<std::uint32_t>(min(output + i * outputs_at_once, last));
    prim::cuda::copy_async_16_or_zeros(
        code + static_cast<std::uint32_t>(i * outputs_at_once * Layout::row_bytes),
        codes + row * row_bytes, held);
  }
  static_assert(outputs_at_once % 8 == 0);

  constexpr int chunks = Layout::x_row_bytes / 16;  // 8 columns each
  const std::byte* const x = from.x + std::int64_t{place.stage} * Layout::x_row_bytes;
  const auto x_row = static_cast<std::uint32_t>(args.call.x.row * 2);
  constexpr int count = Layout::rows * chunks;
#pragma unroll
  for (int i = 0; i < count; i += Layout::threads) {
    const int at = i + thread;
    if (count % Layout::threads != 0 && at >= count) break;
    const auto row = static_cast<std::uint32_t>(at / chunks);
    const auto part = static_cast<std::uint32_t>(at % chunks);
    prim::cuda::copy_async_16_or_zeros(
        to + Layout::code_bytes + x_offset<Layout>(row, part), x + (row * x_row + part * 16),
        row < static_cast<std::uint32_t>(from.rows) && static_cast<int>(part) * 8 < columns);
  }

  const std::uint32_t numbers = to + Layout::scales_at;
  copy_numbers<Layout>(args, args.scales, from.scales, numbers, place, last);
  if (args.zeros.data != nullptr) {
    copy_numbers<Layout>(args, args.zeros, from.zeros,
                         numbers + static_cast<std::uint32_t>(Layout::outputs * args.scales.bytes),
                         place, last);
  }
}

}  // namespace tessera::kernels::quantized::sm80
