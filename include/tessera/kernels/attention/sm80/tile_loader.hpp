// Copies of keys, values and queries to shared memory, and what is done there about values that are
// not finite.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/sm80/key_source.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
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
  using tile = Tile;
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

  /// Rows [first, first + Tile::rows) of a source if `wanted`. Row `limit` and later are not there:
  /// aligned tokens leave them as they are (see `clear_from`), others make them zeros. So it is
  /// with columns from `width` on (see `clear_columns`).
  template <class Source>
  static __device__ __forceinline__ void copy(std::uint32_t tile, const Source& source,
                                              std::int64_t stride, int first, int limit, int width,
                                              bool wanted) {
    if constexpr (Traits::aligned) {
      const unsigned thread = prim::cuda::thread_index();
      const int row = first + static_cast<int>(thread / 8);
      const auto walk = source.walk(prim::cuda::computed_anew(stride), row, thread % 8 * 8);
      copy_lines(tile + Tile::offset(thread / 8, thread % 8), walk, wanted ? limit - row : 0, width,
                 thread % 8);
    } else {
      if (wanted) copy_rows(tile, source, stride, first, limit, width);
    }
  }

  /// The thread's part of an aligned tile: `to` and the walk's beginning are those of its first row
  /// and of its chunk in the first line; `left` rows are there, counted from that one.
  template <class Walk>
  static __device__ __forceinline__ void copy_lines(std::uint32_t to, Walk walk, int left,
                                                    int width, unsigned chunk) {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      copy_pass(pass, to, walk, left, width, chunk);
      go_down(walk, 1);
    }
  }
  /// One pass of them; the walk is at its row already.
  template <class Walk>
  static __device__ __forceinline__ void copy_pass(int pass, std::uint32_t to, const Walk& walk,
                                                   int left, int width, unsigned chunk) {
    const unsigned chunks = static_cast<unsigned>(width) / 8;
    const auto* const row = walk.at();  // of pages: shuffles, which ptxas keeps as often as written
#pragma unroll
    for (int line = 0; line < Tile::lines; ++line) {
      const bool inside = static_cast<unsigned>(line) * 8 + chunk < chunks;
      prim::cuda::copy_async_16_if(
          inside && pass * rows_at_once < left,
          Tile::down(to, pass * rows_at_once) + static_cast<std::uint32_t>(line * 128),
          row + line * 64);
    }
  }
  /// From one pass to another.
  template <class Walk>
  static __device__ __forceinline__ void go_down(Walk& walk, int by) {
    walk.down(by * rows_at_once);
    if constexpr (Tile::lines > 2) walk.forget();
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

  template <class Source>
  static __device__ __forceinline__ void copy_rows(std::uint32_t tile, const Source& source,
                                                   std::int64_t stride, int first, int limit,
                                                   int width) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll 1
    for (int in_tile = thread / 8; in_tile < Tile::rows; in_tile += rows_at_once) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(source.row(stride, first + in_tile));
      copy_row(tile, in_tile, row, width, first + in_tile < limit, thread % 8);
    }
  }

  /// True if an element that this thread copied is infinite or NaN.
  static __device__ __forceinline__ bool has_not_finite(std::uint32_t tile) {
    bool any = false;
    for_each_chunk(tile, 0, [&](std::uint32_t at) {
      std::uint32_t words[4];
      prim::cuda::load_shared_16(words, at);
#pragma unroll
      for (const std::uint32_t word : words) {
        if constexpr (Traits::codes) {
          any = any || prim::cuda::any_code_not_finite<typename Traits::code>(word);
        } else {
          any = any || prim::cuda::any_not_finite<typename Traits::element>(word);
        }
      }
    });
    return any;
  }

  /// Puts 0 in the place of what `has_not_finite` finds.
  static __device__ __forceinline__ void keep_finite(std::uint32_t tile) {
    for_each_chunk(tile, 0, [](std::uint32_t at) {
      std::uint32_t words[4];
      prim::cuda::load_shared_16(words, at);
#pragma unroll
      for (std::uint32_t& word : words) {
        if constexpr (Traits::codes) {
          word = prim::cuda::finite_codes<typename Traits::code>(word);
        } else {
          word = prim::cuda::finite_only<typename Traits::element>(word);
        }
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
__device__ __forceinline__ void copy_queries(const launch_args& args, const work_tile& work,
                                             std::uint32_t tile) {
  using loader = tile_loader<Traits, typename Traits::q_tile>;
  const attention_kernel_args& call = args.call;
  if (has_single_queries<Traits>(args)) {
    const int head = work.kv_head * static_cast<int>(args.group.value);
    loader::copy(tile, contiguous_tokens::of<Traits>(call.q, call.q_strides, work.seq, 0, head),
                 Traits::units * call.q_strides.head, 0, work.used, Traits::q_units(call), true);
    if (work.used < Traits::block_q) loader::clear_from(tile, work.used);
    return;
  }
  if (args.group.value == 1) {
    loader::copy(tile,
                 contiguous_tokens::of<Traits>(call.q, call.q_strides, work.seq,
                                               work.seq.q_begin + work.first_row, work.kv_head),
                 Traits::units * call.q_strides.row, 0, work.used, Traits::q_units(call), true);
    if (Traits::aligned && work.used < Traits::block_q) loader::clear_from(tile, work.used);
    return;
  }
#pragma unroll 1
  for (int pass = 0; pass < loader::passes; ++pass) {
    const int in_tile = pass * loader::rows_at_once + loader::row();
    const bool present = in_tile < work.used;
    const query_row row = query_of(args, work.kv_head, work.first_row + (present ? in_tile : 0));
    loader::copy_row(tile, in_tile,
                     contiguous_tokens::of<Traits>(call.q, call.q_strides, work.seq,
                                                   work.seq.q_begin + row.query, row.head)
                         .token0,
                     Traits::q_units(call), present, loader::chunk());
  }
}

}  // namespace tessera::kernels::attention::sm80
