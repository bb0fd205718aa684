// Rows of tokens, a warp each, as floats: read where they are made, or fetched in front of a state
// and made behind it.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// A row in memory; behind its elements are zeros.
struct row_source {
  const void* data = nullptr;  ///< null: it has no elements
  dtype type = dtype::f32;
  std::int64_t first = 0, count = 0;
};

/// `count` elements of a tensor of rows, from `first` on.
template <class Rows>
__device__ __forceinline__ row_source source_in(const Rows& rows, std::int64_t first,
                                                std::int64_t count) {
  return {rows.data, rows.type, first, rows.data == nullptr ? 0 : count};
}

/// The lane's elements of a row of up to 32 `Count`: columns lane, lane + 32 and so on, all of them
/// under way together.
template <int Count>
class lane_row {
 public:
  __device__ __forceinline__ void fetch(const row_source& from) {
    const auto load = [&]<class Word>(Word) {
      const auto* const words = static_cast<const Word*>(from.data) + from.first;
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const int c = static_cast<int>(threadIdx.x) % 32 + 32 * i;
        words_[i] = c < from.count ? words[c] : 0;
      }
    };
    if (from.type == dtype::f32) {
      load(std::uint32_t{});
    } else {
      load(std::uint16_t{});
    }
  }
  /// Calls body(column, x) for the first `Columns` of them.
  template <int Columns, class Body>
  __device__ __forceinline__ void for_each(dtype type, const Body& body) const {
#pragma unroll
    for (int i = 0; i < Columns / 32; ++i) {
      const auto half = static_cast<std::uint16_t>(words_[i]);
      const float x = type == dtype::f32    ? __uint_as_float(words_[i])
                      : type == dtype::bf16 ? prim::cuda::half_words<bf16>::unpack(half)
                                            : prim::cuda::half_words<f16>::unpack(half);
      body(static_cast<int>(threadIdx.x) % 32 + 32 * i, x);
    }
  }

 private:
  std::uint32_t words_[Count];
};

/// Calls body(column, x) for the lane's columns of a row in memory, the first `Columns`, up to
/// eight of which are under way together.
template <int Columns, class Body>
__device__ __forceinline__ void for_lane_elements(const row_source& from, const Body& body) {
  constexpr int together = Columns / 32 < 8 ? Columns / 32 : 8;
  static_assert(Columns % (32 * together) == 0);
  prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
    using element = std::remove_cvref_t<decltype(*elements)>;
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x) % 32; first < Columns; first += 32 * together) {
      element x[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int c = first + 32 * i;
        x[i] = c < from.count ? elements[from.first + c] : element{};
      }
#pragma unroll
      for (int i = 0; i < together; ++i) body(first + 32 * i, prim::cuda::float_of(x[i]));
    }
  });
}

/// The rows of a lone token that a warp makes, of at most twice as many as there are warps; fetched
/// before anything else, since whatever is asked of memory later arrives later.
template <class Shape>
class fetched_rows {
 public:
  /// `source_of(row)` says where a row is.
  template <class Sources>
  __device__ __forceinline__ void fetch(int rows, const Sources& source_of) {
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      const int row = set * Shape::warps + static_cast<int>(threadIdx.x) / 32;
      if (row < rows) rows_[set].fetch(source_of(row));
    }
  }
  /// Calls body(row, elements) for the warp's rows.
  template <class Body>
  __device__ __forceinline__ void for_each_row(int rows, const Body& body) const {
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      const int row = set * Shape::warps + static_cast<int>(threadIdx.x) / 32;
      if (row < rows) body(row, rows_[set]);
    }
  }

 private:
  lane_row<Shape::keys / 32> rows_[2];
};

/// A row that is read where it is made, with the face of a fetched one.
struct row_in_memory {
  row_source from;
  template <int Columns, class Body>
  __device__ __forceinline__ void for_each(dtype, const Body& body) const {
    for_lane_elements<Columns>(from, body);
  }
};

}  // namespace tessera::kernels::recurrence::sm80
