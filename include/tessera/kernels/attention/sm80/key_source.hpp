// Where keys and values lie.
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

/// Warps whose lanes are as many as these rows.
template <int Rows>
inline constexpr int warps_of = (Rows + prim::cuda::warp_size - 1) / prim::cuda::warp_size;

/// Scales of the tokens of a tile, of which a lane has every 32nd.
template <int Rows>
struct lane_scales {
  float part[warps_of<Rows>];

  /// That of token `in_tile`; all lanes ask, for tokens of the same 32.
  __device__ __forceinline__ float of(int in_tile) const {
    float own = part[0];
#pragma unroll
    for (int other = 1; other < warps_of<Rows>; ++other) {
      if (in_tile / prim::cuda::warp_size == other) own = part[other];
    }
    return __shfl_sync(prim::cuda::all_lanes, own, in_tile % prim::cuda::warp_size);
  }
};

/// Scales of the slots of a pool, of one head.
template <bool Scaled>
struct slots_of_scales {
  __device__ __forceinline__ void set_scales(const slot_scales&, int) {}
};
template <>
struct slots_of_scales<true> {
  const float* scale0;  ///< of slot 0 of page 0; null: all are 1
  std::int64_t scale_page, scale_slot;

  __device__ __forceinline__ void set_scales(const slot_scales& scales, int head) {
    scale0 = scales.data == nullptr ? nullptr : scales.data + head * scales.strides.head;
    scale_page = scales.strides.batch;
    scale_slot = scales.strides.row;
  }
  __device__ __forceinline__ float scale_at(std::uint32_t page, int slot) const {
    return scale0 == nullptr ? 1.0f : scale0[page * scale_page + slot * scale_slot];
  }
};

/// The key source of a pool of pages: token j lies in the page that the sequence's line of the
/// block table says. Tokens behind the last are taken to be the last, and numbers of no page to be
/// one: nobody has looked at tables in device memory. `Scaled`: tokens may have scales.
template <class Place, bool Scaled>
struct paged_tokens : slots_of_scales<Scaled> {
  const Place* page0;           ///< slot 0 of page 0, of the head
  const std::int32_t* numbers;  ///< of the sequence's pages
  std::int64_t page_stride;
  divisor page;
  int last_token;
  std::uint32_t last_page;

  template <class Traits>
  static __device__ __forceinline__ paged_tokens of(const void* pool, const row_strides& strides,
                                                    const slot_scales& scales,
                                                    const launch_args& args,
                                                    const work_tile& work) {
    const page_table& pages = args.call.pages;
    paged_tokens tokens;
    tokens.set_scales(scales, work.kv_head);
    tokens.page0 =
        static_cast<const Place*>(pool) + Traits::places_of(args.call, work.kv_head * strides.head);
    tokens.numbers = pages.numbers + work.seq.index * pages.row;
    tokens.page_stride = Traits::places_of(args.call, strides.batch);
    tokens.page = args.page;
    tokens.last_token = max(0, static_cast<int>(work.seq.k_len) - 1);
    tokens.last_page = static_cast<std::uint32_t>(pages.page_count - 1);
    return tokens;
  }
  template <class Traits>
  static __device__ __forceinline__ paged_tokens keys_of(const launch_args& args,
                                                         const work_tile& work) {
    return of<Traits>(args.call.k, args.call.k_strides, args.call.k_token_scales, args, work);
  }
  template <class Traits>
  static __device__ __forceinline__ paged_tokens values_of(const launch_args& args,
                                                           const work_tile& work) {
    return of<Traits>(args.call.v, args.call.v_strides, args.call.v_token_scales, args, work);
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

  /// Where tokens may have scales: that of this one.
  __device__ __forceinline__ float scale_of(int token) const {
    const token_place place = place_of(token);
    return this->scale_at(min(place.number, last_page), place.slot);
  }

  template <int Rows>
  struct tile;
  template <int Rows>
  __device__ __forceinline__ tile<Rows> located(int first) const;
};

/// The tokens of one tile: each warp has looked all of them up, a lane each. The reads are under
/// way when the tile is located, and waited for when its rows are copied. All lanes ask together,
/// for rows of the same 32.
template <class Place, bool Scaled>
template <int Rows>
struct paged_tokens<Place, Scaled>::tile : slots_of_scales<Scaled> {
  static constexpr int parts = warps_of<Rows>;
  const Place* page0;
  std::int64_t page_stride;
  std::uint32_t last_page;
  int first;
  token_place places[parts];

  __device__ __forceinline__ const Place* row(std::int64_t stride, int token) const {
    const auto in_tile = static_cast<unsigned>(token - first);
    std::int64_t offset = 0;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const token_place& place = places[part];
      const std::int64_t own = min(place.number, last_page) * page_stride + place.slot * stride;
      if (parts == 1 || in_tile / prim::cuda::warp_size == static_cast<unsigned>(part))
        offset = own;
    }
    return page0 + __shfl_sync(prim::cuda::all_lanes, offset,
                               static_cast<int>(in_tile % prim::cuda::warp_size));
  }

  /// Where tokens may have scales: those of the lane's tokens.
  __device__ __forceinline__ lane_scales<Rows> scales() const {
    lane_scales<Rows> of_lane;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const token_place& place = places[part];
      of_lane.part[part] = this->scale_at(min(place.number, last_page), place.slot);
    }
    return of_lane;
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

template <class Place, bool Scaled>
template <int Rows>
__device__ __forceinline__ auto paged_tokens<Place, Scaled>::located(int first) const
    -> tile<Rows> {
  tile<Rows> found;
  static_cast<slots_of_scales<Scaled>&>(found) = *this;
  found.page0 = page0;
  found.page_stride = page_stride;
  found.last_page = last_page;
  found.first = first;
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
    std::conditional_t<Traits::paged,
                       paged_tokens<typename Traits::place, takes_codes(Traits::config)>,
                       contiguous_tokens>;

}  // namespace tessera::kernels::attention::sm80
