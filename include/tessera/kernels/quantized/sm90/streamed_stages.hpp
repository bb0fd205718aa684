// The work of a block of streamed_product.hpp: what a launch is, which stages of which tiles a
// block goes through, and how they come.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>
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
  std::int64_t row = 0;  ///< bytes between outputs
  int end = 0;           ///< bytes of an output
  int piece = 16;        ///< bytes that a copy brings: addresses are multiples of it
};

/// A launch. Units are stages of the tiles behind those of the waves, tile by tile.
struct streamed_args {
  CUtensorMap codes;
  const std::byte* x = nullptr;  ///< boxes of stages
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
  int group_shift = 0;  ///< log2 of the group size
  int slot_shift = 0;   ///< log2 of the stages that a line of numbers is for
  int arrivals = -1;    ///< the place of the words
  number_form form{};
};

/// The tile of a block: `Rows` of x.
template <thin_code Code, int Rows>
struct streamed_shape {
  using line = code_line<Code>;
  static constexpr int rows = Rows;
  /// Tiles of 64 outputs of a warpgroup, and warpgroups that multiply: many, as far as their sums
  /// leave registers.
  static constexpr int tiles = Rows > 64 ? 2 : 1, groups = 4 / tiles;
  static constexpr int outputs = 64 * tiles * groups;
  /// Of a stage: long copies, as far as x leaves room for three stages or more.
  static constexpr int lines = Rows > 64 ? 1 : 2, columns = lines * line::columns;
  static constexpr int panels = columns / prim::cuda::panel_columns;
  static constexpr int panel_bytes = rows * prim::cuda::panel_row_bytes;
  static constexpr int x_bytes = panels * panel_bytes,
                       code_bytes = outputs * lines * code_line_bytes;
  static constexpr int number_bytes = outputs * number_line_bytes;
  static constexpr int slots = 3;  ///< of numbers
  static constexpr int fitting = (226 * 1024 - slots * 2 * number_bytes) / (x_bytes + code_bytes);
  static constexpr int stages = fitting > 8 ? 8 : fitting;
  static constexpr int warps = 4 * groups;  ///< that multiply
  static constexpr int multiplying = groups * prim::cuda::warpgroup_size;
  static constexpr int threads = multiplying + prim::cuda::warpgroup_size;
  static constexpr int multiplying_registers = groups == 4 ? 112 : 232;
  static constexpr int copying_registers = groups == 4 ? 32 : 40;
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

/// The first unit of a block.
__device__ __forceinline__ int first_unit(const streamed_args& args, int block) {
  return block * args.share + min(block, args.longer);
}
/// The block that has a unit.
__device__ __forceinline__ int block_of(const streamed_args& args, int unit) {
  const int of_longer = args.longer * (args.share + 1);
  return unit < of_longer ? unit / (args.share + 1) : args.longer + (unit - of_longer) / args.share;
}

/// Stages of a tile that a block goes through together.
struct streamed_piece {
  int first_output, first_row;
  int shared_tile;  ///< of those behind the waves
  int first, count;

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

  /// False if there is none.
  __device__ __forceinline__ bool next(streamed_piece& piece) {
    const auto blocks = static_cast<int>(gridDim.x);
    int tile = wave_ * blocks + static_cast<int>(blockIdx.x);
    if (wave_ < args_.waves && tile < args_.tiles) {
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
    const int rows = min(Shape::band_tiles, args_.batch_tiles - band * Shape::band_tiles);
    const int output = in / rows;
    piece.first_output = output * Shape::outputs;
    piece.first_row = (band * Shape::band_tiles + in - output * rows) * Shape::rows;
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
    const int early = min(piece.count, Shape::stages);
    for (int i = 0; i < early; ++i) {
      const auto stage = static_cast<std::uint32_t>(i);
      bring_codes(piece, piece.first + i, stage,
                  prim::cuda::ring_place<Shape::stages>::full(barriers, stage));
    }
    prim::cuda::wait_for_grid_before();
    int ahead = early;  // stages whose codes are on their way
    do {
#pragma unroll 1
      for (int i = piece.first; i < piece.first + piece.count; ++i) {
        const std::uint32_t full = ring_.full(barriers), stage = ring_.stage();
        if (ahead > 0) {
          --ahead;
        } else {
          ring_.wait_empty(barriers);
          bring_codes(piece, i, stage, full);
        }
        bring_x(piece, i, stage, full);
        ring_.advance();
      }
    } while (walk.next(piece));
  }

 private:
  __device__ __forceinline__ void bring_codes(const streamed_piece& piece, int number,
                                              std::uint32_t stage, std::uint32_t full) const {
    prim::cuda::arrive_expecting(full, Shape::x_bytes + Shape::code_bytes);
    const int box[4] = {number * Shape::lines * code_line_bytes / 2, piece.first_output, 0, 0};
    prim::cuda::copy_box(prim::cuda::shared_address(shared_.codes[stage]), args_.codes, full, box,
                         args_.batch_tiles == 1 ? prim::cuda::cache_hint::evict_first
                                                : prim::cuda::cache_hint::evict_normal);
  }
  __device__ __forceinline__ void bring_x(const streamed_piece& piece, int number,
                                          std::uint32_t stage, std::uint32_t full) const {
    const std::int64_t box =
        std::int64_t{piece.first_row / Shape::rows} * args_.stages_of_tile + number;
    prim::cuda::copy_bytes(prim::cuda::shared_address(shared_.x[stage]),
                           args_.x + box * Shape::x_bytes, Shape::x_bytes, full,
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
      for (int line = piece.first >> args_.slot_shift; line <= last >> args_.slot_shift; ++line) {
        slot.wait_empty(barriers);
        auto& own = shared_.numbers[slot.stage()];
        bring(args_.scales, prim::cuda::shared_address(own[0]), piece.first_output, line);
        if constexpr (sm80::is_whole(Code)) {
          bring(args_.zeros, prim::cuda::shared_address(own[1]), piece.first_output, line);
        }
        prim::cuda::arrive_after_copies(slot.full(barriers));
        slot.advance();
      }
    }
  }

 private:
  /// A line of the numbers of all outputs of a tile; zeros beyond the groups.
  __device__ __forceinline__ void bring(const number_lines& from, std::uint32_t to,
                                        int first_output, int line) const {
    const auto left = static_cast<int>(args_.outputs) - 1 - first_output;
    const int begin = line * number_line_bytes;
#pragma unroll 4
    for (int output = lane_; output < Shape::outputs; output += 32) {
      const std::byte* const source =
          from.data + std::int64_t{first_output + min(output, left)} * from.row + begin;
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
