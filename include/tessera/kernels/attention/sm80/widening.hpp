// Rows of 8-bit elements on their way to shared memory, where they are of the row's type and
// multiplied by the scales of their tokens: for kernels that take tokens at any address.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention::sm80 {

/// 16 bytes of elements times a factor, rounded.
template <class Element>
__device__ __forceinline__ void multiply_words(std::uint32_t (&words)[4], float by) {
#pragma unroll
  for (std::uint32_t& word : words) {
    if constexpr (sizeof(Element) == 4) {
      word = __float_as_uint(__uint_as_float(word) * by);
    } else {
      using halves = prim::cuda::half_words<Element>;
      word = halves::pack(halves::unpack(static_cast<std::uint16_t>(word)) * by,
                          halves::unpack(static_cast<std::uint16_t>(word >> 16)) * by);
    }
  }
}

/// Rows [first, first + Tile::rows) of a source of 8-bit elements, `width` in a row, widened; row
/// `limit` and later and columns from `width` on are zeros. Some rows are under way at once.
template <class Traits, class Tile, class Source>
__device__ __forceinline__ void widen_rows(std::uint32_t tile, const Source& source,
                                           std::int64_t stride, int first, int limit, int width,
                                           dtype type) {
  using element = typename Traits::element;
  constexpr int count = 16 / static_cast<int>(sizeof(element));  // elements of a chunk
  constexpr int rows_at_once = Traits::threads / 8;
  constexpr int passes = Tile::rows / rows_at_once;
  constexpr int at_once = passes < 4 ? passes : 4;
  const bool whole = source.are_multiples_of(count, stride);
  const bool has_scales = source.scale0 != nullptr;
  lane_scales<Tile::rows> scales{};
  if (has_scales) scales = source.scales();
#pragma unroll 1
  for (int in_tile = static_cast<int>(threadIdx.x) / 8; in_tile < Tile::rows;
       in_tile += at_once * rows_at_once) {
    const unsigned char* rows[at_once];
    float scale[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      rows[i] = source.row(stride, first + in_tile + i * rows_at_once);
      scale[i] = has_scales ? scales.of(in_tile + i * rows_at_once) : 1.0f;
    }
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) % 8; at < Tile::chunks; at += 8) {
      uint2 codes[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const bool present = first + in_tile + i * rows_at_once < limit;
        codes[i] = prim::cuda::load_codes<count>(rows[i] + at * count,
                                                 present ? width - at * count : 0, whole);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        std::uint32_t words[4];
        prim::cuda::with_code_type(
            type, [&](auto code) { prim::cuda::widen<decltype(code), element>(words, codes[i]); });
        if (has_scales) multiply_words<element>(words, scale[i]);
        prim::cuda::store_shared_16(
            tile + Tile::offset(static_cast<unsigned>(in_tile + i * rows_at_once),
                                static_cast<unsigned>(at)),
            words);
      }
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
