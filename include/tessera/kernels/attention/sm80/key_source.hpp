// Where keys, values and queries lie, their copies to shared memory, and what is done there about
// values that are not finite.
//
// A key source says where the rows of one sequence's keys, or values, of one head lie. It is plain
// data that a block keeps in shared memory; a kernel has one kind of it, `key_source_of`.
//
// | member | what |
// |---|---|
// | `keys_of<Traits>(args, work)`, `values_of<Traits>(args, work)` | the sources of a work tile |
// | `row(stride, token)` | the token's row; `stride`: of k_strides or v_strides |
// | `located<Rows>(first)` | where the rows of a tile lie: an object with `row`, and |
// | `walk(stride, token, unit)` | a walk down the rows as one thread copies them, from there |
//
// Walks go past the last token; what `at` is there is not read. Everything is counted in units of
// 16 bits, but where pools of 8 bits are taken: in bytes (`Traits::place`).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// A walk down rows that lie `stride` apart.
class contiguous_walk {
 public:
  contiguous_walk() = default;
  __device__ __forceinline__ contiguous_walk(const std::uint16_t* at, std::int64_t stride)
      : at_(at), stride_(stride) {}

  __device__ __forceinline__ const std::uint16_t* at() const { return at_; }
  __device__ __forceinline__ void down(int rows) { at_ += rows * stride_; }
  /// Makes the compiler forget how `at` follows from where the walk began: else every row has an
  /// address of its own, computed for each tile.
  __device__ __forceinline__ void forget() { at_ = prim::cuda::computed_anew(at_); }

 private:
  const std::uint16_t* at_ = nullptr;
  std::int64_t stride_ = 0;
};

/// The key source of dense and packed tensors: token j lies j strides behind token 0.
struct contiguous_tokens {
  using walk_type = contiguous_walk;

  const std::uint16_t* token0;

  /// Token 0 is row `first` of a tensor.
  template <class Traits>
  static __device__ __forceinline__ contiguous_tokens of(const void* data,
                                                         const row_strides& strides,
                                                         const prim::sequence& seq,
                                                         std::int64_t first, int head) {
    return {reinterpret_cast<const std::uint16_t*>(
        token_row<const typename Traits::stored>(data, strides, seq, first, head))};
  }
  template <class Traits>
  static __device__ __forceinline__ contiguous_tokens keys_of(const launch_args& args,
                                                              const work_tile& work) {
    return of<Traits>(args.call.k, args.call.k_strides, work.seq, work.seq.k_begin, work.kv_head);
  }
  template <class Traits>
  static __device__ __forceinline__ contiguous_tokens values_of(const launch_args& args,
                                                                const work_tile& work) {
    return of<Traits>(args.call.v, args.call.v_strides, work.seq, work.seq.k_begin, work.kv_head);
  }

  __device__ __forceinline__ const std::uint16_t* row(std::int64_t stride, int token) const {
    return token0 + token * stride;
  }
  __device__ __forceinline__ contiguous_walk walk(std::int64_t stride, int token,
                                                  unsigned unit) const {
    return {row(stride, token) + unit, stride};
  }
  template <int Rows>
  __device__ __forceinline__ contiguous_tokens located(int) const {
    return *this;
  }
};

/// The key source of a pool of pages: token j lies in the page that the sequence's line of the
/// block table says. Tokens behind the last are taken to be the last, and numbers of no page to be
/// one: nobody has looked at tables in device memory.
template <class Place>
struct paged_tokens {
  const Place* page0;           ///< slot 0 of page 0, of the head
  const std::int32_t* numbers;  ///< of the sequence's pages
  std::int64_t page_stride;
  divisor page;
  int last_token;
  std::uint32_t last_page;

  template <class Traits>
  static __device__ __forceinline__ paged_tokens of(const void* pool, const row_strides& strides,
                                                    const launch_args& args,
                                                    const work_tile& work) {
    const page_table& pages = args.call.pages;
    return {
        static_cast<const Place*>(pool) + Traits::places_of(args.call, work.kv_head * strides.head),
        pages.numbers + work.seq.index * pages.row,
        Traits::places_of(args.call, strides.batch),
        args.page,
        max(0, static_cast<int>(work.seq.k_len) - 1),
        static_cast<std::uint32_t>(pages.page_count - 1)};
  }
  template <class Traits>
  static __device__ __forceinline__ paged_tokens keys_of(const launch_args& args,
                                                         const work_tile& work) {
    return of<Traits>(args.call.k, args.call.k_strides, args, work);
  }
  template <class Traits>
  static __device__ __forceinline__ paged_tokens values_of(const launch_args& args,
                                                           const work_tile& work) {
    return of<Traits>(args.call.v, args.call.v_strides, args, work);
  }

  /// Page and slot of a token, as they lie in the table.
  struct token_place {
    std::uint32_t number;
    int slot;
  };
  __device__ __forceinline__ token_place place_of(int token) const {
    token = min(token, last_token);
    const int index = page.quotient(token);
    return {static_cast<std::uint32_t>(numbers[index]),
            token - index * static_cast<int>(page.value)};
  }
  __device__ __forceinline__ const Place* row(std::int64_t stride, int token) const {
    const token_place place = place_of(token);
    return page0 + min(place.number, last_page) * page_stride + place.slot * stride;
  }

  template <int Rows>
  struct tile;
  template <int Rows>
  __device__ __forceinline__ tile<Rows> located(int first) const;
};

/// The tokens of one tile: each warp has looked all of them up, a lane each. The reads are under
/// way when the tile is located, and waited for when its rows are copied. All lanes ask together,
/// for rows of the same 32.
template <class Place>
template <int Rows>
struct paged_tokens<Place>::tile {
  static constexpr int parts = (Rows + prim::cuda::warp_size - 1) / prim::cuda::warp_size;
  const Place* page0;
  std::int64_t page_stride;
  std::uint32_t last_page;
  int first;
  token_place places[parts];

  __device__ __forceinline__ const Place* row(std::int64_t stride, int token) const {
    const int in_tile = token - first;
    std::int64_t offset = 0;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const token_place& place = places[part];
      const std::int64_t own = min(place.number, last_page) * page_stride + place.slot * stride;
      if (parts == 1 || in_tile / prim::cuda::warp_size == part) offset = own;
    }
    return page0 + __shfl_sync(prim::cuda::all_lanes, offset, in_tile % prim::cuda::warp_size);
  }

  /// A walk down the rows as one thread copies them.
  struct row_walk {
    const tile& rows;
    std::int64_t stride;
    int token;
    unsigned unit;

    __device__ __forceinline__ const Place* at() const { return rows.row(stride, token) + unit; }
    __device__ __forceinline__ void down(int count) { token += count; }
    __device__ __forceinline__ void forget() {}
  };
  __device__ __forceinline__ row_walk walk(std::int64_t stride, int token, unsigned unit) const {
    return {*this, stride, token, unit};
  }

  /// True if all rows lie at multiples of `bytes`, a power of two.
  __device__ __forceinline__ bool are_multiples_of(int bytes, std::int64_t stride) const {
    const auto all = reinterpret_cast<std::uintptr_t>(page0) |
                     static_cast<std::uintptr_t>((page_stride | stride) * sizeof(Place));
    return all % static_cast<std::uintptr_t>(bytes) == 0;
  }
};

template <class Place>
template <int Rows>
__device__ __forceinline__ auto paged_tokens<Place>::located(int first) const -> tile<Rows> {
  tile<Rows> found{page0, page_stride, last_page, first, {}};
#pragma unroll
  for (int part = 0; part < tile<Rows>::parts; ++part) {
    found.places[part] =
        place_of(first + part * prim::cuda::warp_size +
                 static_cast<int>(prim::cuda::thread_index()) % prim::cuda::warp_size);
  }
  return found;
}

/// The kind of key source that a kernel has.
template <class Traits>
using key_source_of =
    std::conditional_t<Traits::paged, paged_tokens<typename Traits::place>, contiguous_tokens>;

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
#pragma unroll
    for (int line = 0; line < Tile::lines; ++line) {
      const bool inside = static_cast<unsigned>(line) * 8 + chunk < chunks;
      prim::cuda::copy_async_16_if(
          inside && pass * rows_at_once < left,
          Tile::down(to, pass * rows_at_once) + static_cast<std::uint32_t>(line * 128),
          walk.at() + line * 64);
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
