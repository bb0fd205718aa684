// The work of a block of streamed_product.hpp: what a launch is, which stages of which tiles a
// block goes through, and how they come.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/shared_words.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::quantized::sm90 {

/// Numbers of groups as they are stored.
struct number_lines {
  const std::byte* data = nullptr;
  std::int64_t row = 0;     ///< bytes between outputs
  std::int64_t matrix = 0;  ///< and between matrices
  int end = 0;              ///< bytes of an output
  int piece = 16;           ///< bytes that a copy brings: addresses are multiples of it
};

/// A launch. Units are stages of the tiles behind those of the waves, tile by tile.
struct streamed_args {
  CUtensorMap codes;
  CUtensorMap rows_of_x;         ///< of groups, whose tiles begin at any row
  const std::byte* x = nullptr;  ///< of one matrix: boxes of stages
  number_lines scales, zeros;
  strided_matrix out;
  const float* tensor_scale = nullptr;
  float* partial = nullptr;  ///< two tiles of each block
  std::int64_t outputs = 0;
  int batch = 0;
  int tiles = 0, output_tiles = 0, batch_tiles = 0;
  int stages_of_tile = 0;
  int waves = 0;        ///< whole tiles of a block
  int share = 0;        ///< units of a block
  int longer = 0;       ///< blocks that have one more
  int paired = 0;       ///< tiles behind the waves of which two blocks have half of the stages each
  int group_shift = 0;  ///< log2 of the group size
  int slot_shift = 0;   ///< log2 of the stages that a line of numbers is for
  int arrivals = -1;    ///< the place of the words
  /// Of groups: tiles of the batch, as many as there are behind the table's last segment.
  const int4* listed = nullptr;
  grouped_matmul::sm80::row_table table{};
  number_form form{};
};

/// The tile of a block: `Rows` of x.
template <thin_code Code, int Rows>
struct streamed_shape {
  using line = code_line<Code>;
  static constexpr int rows = Rows;
  /// Tiles of 64 outputs of a warpgroup, and warpgroups that multiply: many, as far as their sums
  /// leave registers.
  static constexpr int tiles = Rows == 128 ? 2 : 1, groups = Rows > 64 ? 2 : 4;
  static constexpr int outputs = 64 * tiles * groups;
  /// Of a stage: long copies, as far as x leaves room for three stages or more.
  static constexpr int lines = Rows > 64 ? 1 : 2, columns = lines * line::columns;
  static constexpr int panels = columns / prim::cuda::panel_columns;
  static constexpr int panel_bytes = rows * prim::cuda::panel_row_bytes;
  static constexpr int x_bytes = panels * panel_bytes,
                       code_bytes = outputs * lines * code_line_bytes;
  static constexpr int number_bytes = outputs * number_line_bytes;
  static constexpr int slots = Rows > 128 ? 2 : 3;  ///< of numbers
  static constexpr int fitting = (226 * 1024 - slots * 2 * number_bytes) / (x_bytes + code_bytes);
  static constexpr int stages = fitting > 8 ? 8 : fitting;
  static constexpr int early = 2;           ///< stages whose codes are asked for before x is there
  static constexpr int warps = 4 * groups;  ///< that multiply
  static constexpr int multiplying = groups * prim::cuda::warpgroup_size;
  static constexpr int threads = multiplying + prim::cuda::warpgroup_size;
  static constexpr int multiplying_registers = groups == 4 ? 112 : Rows > 128 ? 216 : 232;
  static constexpr int copying_registers = groups == 4 ? 32 : Rows > 128 ? 72 : 40;
  static constexpr int band_tiles = 1024 / Rows;  ///< of the batch, that blocks work on together

  struct alignas(1024) shared_memory {
    unsigned char x[stages][x_bytes];
    unsigned char codes[stages][code_bytes];
    unsigned char numbers[slots][2][number_bytes];
    prim::cuda::ring_barriers<stages> of_stage;
    prim::cuda::ring_barriers<slots> of_slot;
    unsigned parts;
  };
};

/// Rows of a tile of the batch.
struct streamed_rows {
  int first, end;
  int matrix;  ///< -1: rows of no group

  __device__ __forceinline__ streamed_rows(const streamed_args& args, int tile, int height)
      : first(tile * height), end(args.batch), matrix(0) {
    if (args.listed == nullptr) return;
    const int4 at = __ldg(args.listed + tile);
    first = at.x, end = at.y, matrix = at.z;
  }
};

inline constexpr int list_threads = 256;

/// Lists the tiles of the batch of a table: a warp has one.
static __global__ void __launch_bounds__(list_threads)
    list_tiles(const grouped_matmul::sm80::product_args rows, const int height, int4* to) {
  const std::int64_t tile =
      (std::int64_t{blockIdx.x} * list_threads + threadIdx.x) / prim::cuda::warp_size;
  const auto at = grouped_matmul::sm80::place_of(rows, tile, height, 1);
  if (!at.exists || threadIdx.x % prim::cuda::warp_size != 0) return;
  to[tile] = make_int4(static_cast<int>(at.first + at.row), static_cast<int>(at.first + at.rows),
                       static_cast<int>(at.matrix), 0);
}

/// The first unit of a block.
__device__ __forceinline__ int first_unit(const streamed_args& args, int block) {
  if (args.paired > 0) {
    const int of_pairs = min(block, 2 * args.paired);
    return of_pairs / 2 * args.stages_of_tile + of_pairs % 2 * (args.stages_of_tile / 2);
  }
  return block * args.share + min(block, args.longer);
}
/// The block that has a unit.
__device__ __forceinline__ int block_of(const streamed_args& args, int unit) {
  const int of_longer = args.longer * (args.share + 1);
  return unit < of_longer ? unit / (args.share + 1) : args.longer + (unit - of_longer) / args.share;
}

/// The word of a tile, in the module's memory (prim/cuda/arrival_table.hpp).
__device__ __forceinline__ unsigned* streamed_word(int place, int tile) {
  static __device__ unsigned words[prim::cuda::arrival_places][prim::cuda::counted_tiles];
  return &words[place][tile];
}

/// A warp has read what lies at a place of a ring and goes on to the next.
template <class Place>
__device__ __forceinline__ void leave(Place& place, std::uint32_t barriers) {
  __syncwarp();
  if (threadIdx.x % prim::cuda::warp_size == 0) place.release(barriers);
  place.advance();
}

/// Stages of a tile that a block goes through together.
struct streamed_piece {
  int first_output;
  int batch_tile;
  int shared_tile;   ///< of those behind the waves
  int first, count;  ///< rows of no group have none

  /// Whether stage `number` needs the next line of numbers.
  __device__ __forceinline__ bool begins_slot(const streamed_args& args, int number) const {
    return number == first || (number & ((1 << args.slot_shift) - 1)) == 0;
  }
};

/// The pieces of a block, one after the other.
template <class Shape>
class streamed_walk {
 public:
  __device__ __forceinline__ explicit streamed_walk(const streamed_args& args)
      : args_(args),
        unit_(first_unit(args, static_cast<int>(blockIdx.x))),
        end_(first_unit(args, static_cast<int>(blockIdx.x) + 1)) {}

  /// Whether there is no piece of a shared tile behind those that were asked for.
  __device__ __forceinline__ bool ended() const { return unit_ >= end_; }

  /// False if there is none.
  __device__ __forceinline__ bool next(streamed_piece& piece) {
    const auto blocks = static_cast<int>(gridDim.x);
    int tile = wave_ * blocks + static_cast<int>(blockIdx.x);
    const int batch_tiles = args_.listed == nullptr
                                ? args_.batch_tiles
                                : static_cast<int>(args_.table.tiles[args_.table.segments]);
    if (wave_ < args_.waves && tile < batch_tiles * args_.output_tiles) {
      ++wave_;
      piece.first = 0;
      piece.count = args_.stages_of_tile;
    } else {
      if (unit_ >= end_) return false;
      piece.shared_tile = unit_ / args_.stages_of_tile;
      piece.first = unit_ - piece.shared_tile * args_.stages_of_tile;
      piece.count = min(args_.stages_of_tile - piece.first, end_ - unit_);
      unit_ += piece.count;
      tile = args_.waves * blocks + piece.shared_tile;
    }
    // Bands of x, output by output.
    const int of_band = Shape::band_tiles * args_.output_tiles;
    const int band = tile / of_band, in = tile - band * of_band;
    const int rows = min(Shape::band_tiles, batch_tiles - band * Shape::band_tiles);
    const int output = in / rows;
    piece.first_output = output * Shape::outputs;
    piece.batch_tile = band * Shape::band_tiles + in - output * rows;
    if (args_.listed != nullptr && streamed_rows(args_, piece.batch_tile, Shape::rows).matrix < 0) {
      piece.count = 0;
    }
    return true;
  }

 private:
  const streamed_args& args_;
  int wave_ = 0, unit_, end_;
};

/// The thread that brings stages.
template <thin_code Code, class Shape>
class streamed_copies {
  using memory = typename Shape::shared_memory;

 public:
  __device__ __forceinline__ streamed_copies(const streamed_args& args, memory& shared)
      : args_(args), shared_(shared) {}

  __device__ __forceinline__ void run() {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    streamed_walk<Shape> walk(args_);
    streamed_piece piece;
    if (!walk.next(piece)) return;
    // Codes were there before the grid that orders x began, so that they need not wait for it.
    const int early = min(piece.count, Shape::early);
    streamed_rows rows(args_, piece.batch_tile, Shape::rows);
    for (int i = 0; i < early; ++i) {
      const auto stage = static_cast<std::uint32_t>(i);
      bring_codes(piece, rows, piece.first + i, stage,
                  prim::cuda::ring_place<Shape::stages>::full(barriers, stage));
    }
    prim::cuda::wait_for_grid_before();
    int ahead = early;  // stages whose codes are on their way
    do {
      rows = {args_, piece.batch_tile, Shape::rows};
#pragma unroll 1
      for (int i = piece.first; i < piece.first + piece.count; ++i) {
        const std::uint32_t full = ring_.full(barriers), stage = ring_.stage();
        if (ahead > 0) {
          --ahead;
        } else {
          ring_.wait_empty(barriers);
          bring_codes(piece, rows, i, stage, full);
        }
        bring_x(piece, rows, i, stage, full);
        ring_.advance();
      }
    } while (walk.next(piece));
  }

 private:
  __device__ __forceinline__ void bring_codes(const streamed_piece& piece,
                                              const streamed_rows& rows, int number,
                                              std::uint32_t stage, std::uint32_t full) const {
    prim::cuda::arrive_expecting(full, Shape::x_bytes + Shape::code_bytes);
    const int box[4] = {number * Shape::lines * code_line_bytes / 2, piece.first_output,
                        rows.matrix, 0};
    prim::cuda::copy_box(prim::cuda::shared_address(shared_.codes[stage]), args_.codes, full, box,
                         args_.batch_tiles == 1 ? prim::cuda::cache_hint::evict_first
                                                : prim::cuda::cache_hint::evict_normal);
  }
  __device__ __forceinline__ void bring_x(const streamed_piece& piece, const streamed_rows& rows,
                                          int number, std::uint32_t stage,
                                          std::uint32_t full) const {
    const std::uint32_t to = prim::cuda::shared_address(shared_.x[stage]);
    if (args_.listed != nullptr) {
#pragma unroll
      for (int panel = 0; panel < Shape::panels; ++panel) {
        const int at[4] = {number * Shape::columns + panel * prim::cuda::panel_columns, rows.first,
                           0, 0};
        prim::cuda::copy_box(to + panel * Shape::panel_bytes, args_.rows_of_x, full, at,
                             prim::cuda::cache_hint::evict_normal);
      }
      return;
    }
    const std::int64_t box = std::int64_t{piece.batch_tile} * args_.stages_of_tile + number;
    prim::cuda::copy_bytes(to, args_.x + box * Shape::x_bytes, Shape::x_bytes, full,
                           prim::cuda::cache_hint::evict_last);
  }

  const streamed_args& args_;
  memory& shared_;
  prim::cuda::ring_place<Shape::stages> ring_;
};

/// The warp that brings numbers of groups.
template <thin_code Code, class Shape>
class streamed_numbers {
  using memory = typename Shape::shared_memory;

 public:
  __device__ __forceinline__ streamed_numbers(const streamed_args& args, memory& shared)
      : args_(args), shared_(shared), lane_(static_cast<int>(threadIdx.x % 32)) {}

  __device__ __forceinline__ void run() {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_slot);
    prim::cuda::ring_place<Shape::slots> slot;
    streamed_walk<Shape> walk(args_);
    streamed_piece piece;
    while (walk.next(piece)) {
      const int last = piece.first + piece.count - 1;
      const std::int64_t matrix = streamed_rows(args_, piece.batch_tile, Shape::rows).matrix;
      for (int line = piece.first >> args_.slot_shift; line <= last >> args_.slot_shift; ++line) {
        slot.wait_empty(barriers);
        auto& own = shared_.numbers[slot.stage()];
        bring(args_.scales, matrix, prim::cuda::shared_address(own[0]), piece.first_output, line);
        if constexpr (sm80::is_whole(Code)) {
          bring(args_.zeros, matrix, prim::cuda::shared_address(own[1]), piece.first_output, line);
        }
        arrive(slot.full(barriers));
        slot.advance();
      }
    }
  }

 private:
  __device__ __forceinline__ void arrive(std::uint32_t full) const {
    if (args_.scales.piece == 2 || args_.zeros.piece == 2) {
      prim::cuda::commit_copies();
      prim::cuda::wait_copies<0>();
      prim::cuda::arrive(full);
    } else {
      prim::cuda::arrive_after_copies(full);
    }
  }

  /// Numbers of two bytes, which are no copy.
  static __device__ __forceinline__ std::uint32_t pair_at(const std::byte* from, int left) {
    const auto* const numbers = reinterpret_cast<const std::uint16_t*>(from);
    const std::uint32_t low = left > 0 ? __ldg(numbers) : 0;
    return left > 2 ? low | std::uint32_t{__ldg(numbers + 1)} << 16 : low;
  }

  /// A line of the numbers of all outputs of a tile; zeros beyond the groups.
  __device__ __forceinline__ void bring(const number_lines& from, std::int64_t matrix,
                                        std::uint32_t to, int first_output, int line) const {
    const auto left = static_cast<int>(args_.outputs) - 1 - first_output;
    const int begin = line * number_line_bytes;
    const std::byte* const first = from.data + matrix * from.matrix + begin;
    const auto source_of = [&](int output) {
      return first + std::int64_t{first_output + min(output, left)} * from.row;
    };
    if (from.piece == 2) {  // in few registers
#pragma unroll 1
      for (int output = lane_; output < Shape::outputs; output += 32) {
        const std::byte* const source = source_of(output);
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = pair_at(source + i * 4, from.end - begin - i * 4);
        prim::cuda::store_shared_16(to + static_cast<unsigned>(output * number_line_bytes), words);
      }
      return;
    }
#pragma unroll 4
    for (int output = lane_; output < Shape::outputs; output += 32) {
      const std::byte* const source = source_of(output);
      const std::uint32_t target = to + static_cast<unsigned>(output * number_line_bytes);
      if (from.piece == 16) {
        prim::cuda::copy_async_16_or_zeros(target, source, begin < from.end);
      } else if (from.piece == 8) {
#pragma unroll
        for (int at = 0; at < number_line_bytes; at += 8) {
          prim::cuda::copy_async_8(target + at, source + at, begin + at < from.end);
        }
      } else {
#pragma unroll
        for (int at = 0; at < number_line_bytes; at += 4) {
          prim::cuda::copy_async_4(target + at, source + at, begin + at < from.end);
        }
      }
    }
  }

  const streamed_args& args_;
  memory& shared_;
  int lane_;
};

}  // namespace tessera::kernels::quantized::sm90
