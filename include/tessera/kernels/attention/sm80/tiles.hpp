// Q, K and V on their way to shared memory, and what is done about values that are not finite.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Eight units of a row, from `column` on; columns from `width` on are 0. Any alignment.
__device__ __forceinline__ void copy_elements(std::uint32_t to, const std::uint16_t* row,
                                              int column, int width) {
  std::uint32_t words[4];
  for (int word = 0; word < 4; ++word) {
    const int at = column + 2 * word;
    const std::uint32_t low = at < width ? row[at] : 0;
    const std::uint32_t high = at + 1 < width ? row[at + 1] : 0;
    words[word] = low | (high << 16);
  }
  prim::cuda::store_shared_16(to, words);
}

/// Eight lanes copy a line of 128 bytes; a block copies threads / 8 rows at a time. Widths and
/// strides are in units of 16 bits.
template <class Traits, class Tile>
struct tile_loader {
  static constexpr int rows_at_once = Traits::threads / 8;
  static constexpr int passes = Tile::rows / rows_at_once;
  static_assert(Tile::rows % rows_at_once == 0, "a block copies whole tiles");

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / 8; }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % 8; }

  /// One row of the tile, at `source` (unit 0); zeros, and nothing is read, unless `present`.
  static __device__ __forceinline__ void copy_row(std::uint32_t tile, int row_in_tile,
                                                  const std::uint16_t* source, int width,
                                                  bool present, int first_chunk) {
    const int chunks = Traits::aligned ? width / 8 : Tile::chunks;
#pragma unroll 1
    for (int at = first_chunk; at < chunks; at += 8) {
      const std::uint32_t to =
          tile + Tile::offset(static_cast<unsigned>(row_in_tile), static_cast<unsigned>(at));
      if (Traits::aligned) {
        prim::cuda::copy_async_16(to, source + at * 8, present ? 16 : 0);
      } else {
        copy_elements(to, source, at * 8, present ? width : 0);
      }
    }
  }

  /// Rows [first, first + Tile::rows) of a tensor if `wanted`. Row `limit` and later are not there:
  /// aligned tokens leave them as they are (see `clear_from`), others make them zeros. So it is
  /// with columns from `width` on (see `clear_columns`).
  static __device__ __forceinline__ void copy(std::uint32_t tile, const std::uint16_t* base,
                                              std::int64_t row_stride, int first, int limit,
                                              int width, bool wanted) {
    if constexpr (Traits::aligned) {
      const unsigned thread = prim::cuda::thread_index();
      const int row = first + static_cast<int>(thread / 8);
      const std::int64_t stride = prim::cuda::computed_anew(row_stride);
      copy_lines(tile + Tile::offset(thread / 8, thread % 8), base + row * stride + thread % 8 * 8,
                 stride, wanted ? limit - row : 0, width, thread % 8);
    } else {
      if (wanted) copy_part(tile, base, row_stride, first, limit, width);
    }
  }

  /// The thread's part of an aligned tile: `to` and `source` are those of its first row and of its
  /// chunk in the first line; `left` rows are there, counted from that one.
  static __device__ __forceinline__ void copy_lines(std::uint32_t to, const std::uint16_t* source,
                                                    std::int64_t stride, int left, int width,
                                                    unsigned chunk) {
    const unsigned chunks = static_cast<unsigned>(width) / 8;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll
      for (int line = 0; line < Tile::lines; ++line) {
        const bool inside = static_cast<unsigned>(line) * 8 + chunk < chunks;
        prim::cuda::copy_async_16_if(
            inside && pass * rows_at_once < left,
            Tile::down(to, pass * rows_at_once) + static_cast<std::uint32_t>(line * 128),
            source + line * 64);
      }
      source += rows_at_once * stride;
      // Else every line has an address of its own, computed for each tile.
      if constexpr (Tile::lines > 2) source = prim::cuda::computed_anew(source);
    }
  }

  /// Zeros in rows from `row` on, where `copy` leaves what was there.
  static __device__ __forceinline__ void clear_from(std::uint32_t tile, int row) {
    const std::uint32_t zeros[4] = {};
    for_each_chunk(tile, row, [&](std::uint32_t at) { prim::cuda::store_shared_16(at, zeros); });
  }

  /// Zeros in the columns from `width` on, of all rows.
  static __device__ __forceinline__ void clear_columns(std::uint32_t tile, int width) {
    const std::uint32_t zeros[4] = {};
    if (Traits::aligned && width < Tile::width) {
#pragma unroll 1
      for (int in_tile = row(); in_tile < Tile::rows; in_tile += rows_at_once) {
#pragma unroll 1
        for (int at = width / 8 + chunk(); at < Tile::chunks; at += 8) {
          prim::cuda::store_shared_16(
              tile + Tile::offset(static_cast<unsigned>(in_tile), static_cast<unsigned>(at)),
              zeros);
        }
      }
    }
  }

  static __device__ __forceinline__ void copy_part(std::uint32_t tile, const std::uint16_t* base,
                                                   std::int64_t row_stride, int first, int limit,
                                                   int width) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll 1
    for (int in_tile = thread / 8; in_tile < Tile::rows; in_tile += rows_at_once) {
      copy_row(tile, in_tile, base + (first + in_tile) * row_stride, width, first + in_tile < limit,
               thread % 8);
    }
  }

  /// True if an element that this thread copied is infinite or NaN.
  static __device__ __forceinline__ bool has_not_finite(std::uint32_t tile) {
    bool found = false;
    for_each_chunk(tile, 0, [&](std::uint32_t at) {
      std::uint32_t words[4];
      prim::cuda::load_shared_16(words, at);
#pragma unroll
      for (const std::uint32_t word : words) {
        found = found || prim::cuda::any_not_finite<typename Traits::element>(word);
      }
    });
    return found;
  }

  /// Puts 0 in the place of what `has_not_finite` finds.
  static __device__ __forceinline__ void keep_finite(std::uint32_t tile) {
    for_each_chunk(tile, 0, [](std::uint32_t at) {
      std::uint32_t words[4];
      prim::cuda::load_shared_16(words, at);
#pragma unroll
      for (std::uint32_t& word : words) {
        word = prim::cuda::finite_only<typename Traits::element>(word);
      }
      prim::cuda::store_shared_16(at, words);
    });
  }

 private:
  /// `action(address)` for the chunks that this thread copies of the rows from `row` on.
  template <class Action>
  static __device__ __forceinline__ void for_each_chunk(std::uint32_t tile, int row,
                                                        const Action& action) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll 1
    for (int in_tile = row + thread / 8; in_tile < Tile::rows; in_tile += rows_at_once) {
#pragma unroll 1
      for (int at = thread % 8; at < Tile::chunks; at += 8) {
        action(tile + Tile::offset(static_cast<unsigned>(in_tile), static_cast<unsigned>(at)));
      }
    }
  }
};

/// Copies the block's query rows, one pointer per row: heads of a group are rows of the tile.
template <class Traits>
__device__ __forceinline__ void copy_queries(const launch_args& args, const row_range& range,
                                             std::uint32_t tile) {
  using loader = tile_loader<Traits, typename Traits::q_tile>;
  const attention_kernel_args& call = args.call;
  if (args.group.value == 1) {
    loader::copy(tile,
                 token_units<Traits>(call.q, call.q_strides, range.seq,
                                     range.seq.q_begin + range.first_row, range.kv_head),
                 Traits::units * call.q_strides.row, 0, range.visible, Traits::qk_units(call),
                 true);
    if (Traits::aligned && range.visible < Traits::block_q) loader::clear_from(tile, range.visible);
    return;
  }
#pragma unroll 1
  for (int pass = 0; pass < loader::passes; ++pass) {
    const int in_tile = pass * loader::rows_at_once + loader::row();
    const bool present = in_tile < range.visible;
    const query_row row = query_of(args, range.kv_head, range.first_row + (present ? in_tile : 0));
    loader::copy_row(tile, in_tile,
                     token_units<Traits>(call.q, call.q_strides, range.seq,
                                         range.seq.q_begin + row.query, row.head),
                     Traits::qk_units(call), present, loader::chunk());
  }
}

}  // namespace tessera::kernels::attention::sm80
