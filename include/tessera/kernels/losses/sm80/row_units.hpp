// Rows of classes as threads read and write them: units of sixteen elements that begin at multiples
// of 16 bytes, whatever the address of the row; its first and last unit may hold fewer.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm80 {

inline constexpr int unit_size = 16;

/// Where the units of a row are. Those of all tensors of a token are those of its first one.
struct row_units {
  int lead = 0;  ///< places of the first unit in front of the row
  std::int64_t classes = 0;
  std::int64_t count = 0;

  __device__ __forceinline__ row_units(const token_rows& rows, const token_place& at,
                                       std::int64_t width)
      : classes(width) {
    const auto size = static_cast<std::uint32_t>(rows.type == dtype::f32 ? 4 : 2);
    const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(rows.data)) +
                         static_cast<std::uint32_t>(at.offset_in(rows)) * size;
    lead = static_cast<int>(address % 16 / size);
    count = (classes + lead + unit_size - 1) / unit_size;
  }

  /// The class of a unit's first element, which may lie in front of the row.
  __device__ __forceinline__ std::int64_t first(std::int64_t unit) const {
    return unit * unit_size - lead;
  }
  __device__ __forceinline__ bool is_whole(std::int64_t first) const {
    return first >= 0 && first + unit_size <= classes;
  }
  __device__ __forceinline__ bool holds(std::int64_t at) const { return at >= 0 && at < classes; }
};

/// A token's row of a tensor.
struct unit_row {
  void* data = nullptr;
  dtype type = dtype::none;
  bool aligned = false;  ///< as the units are

  __device__ __forceinline__ unit_row(const token_rows& rows, const token_place& at,
                                      const row_units& units)
      : type(rows.type) {
    if (rows.data == nullptr) return;
    const std::int64_t size = type == dtype::f32 ? 4 : 2;
    data = static_cast<char*>(rows.data) + at.offset_in(rows) * size;
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
    aligned = (address - units.lead * size) % 16 == 0;
  }

  /// The elements of a unit, and `rest` for those that the row does not have.
  __device__ __forceinline__ void load(const row_units& units, std::int64_t first, float rest,
                                       float (&x)[unit_size]) const {
    with_type([&](const auto* row) { load_from(row, units, first, rest, x); });
  }

  /// Calls body with the row as elements of its type.
  template <class Body>
  __device__ __forceinline__ void with_type(const Body& body) const {
    prim::cuda::with_elements(static_cast<const void*>(data), type, body);
  }
  template <class Element>
  __device__ __forceinline__ void load_from(const Element* row, const row_units& units,
                                            std::int64_t first, float rest,
                                            float (&x)[unit_size]) const {
    using vector = prim::cuda::element_vector<Element, unit_size>;
    if (aligned && units.is_whole(first)) {
      const vector all = *reinterpret_cast<const vector*>(row + first);
#pragma unroll
      for (int i = 0; i < unit_size; ++i) x[i] = prim::cuda::float_of(all.x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < unit_size; ++i) {
        x[i] = units.holds(first + i) ? prim::cuda::float_of(row[first + i]) : rest;
      }
    }
  }

  /// Stores those that the row has; nobody reads them soon.
  __device__ __forceinline__ void store(const row_units& units, std::int64_t first,
                                        const float (&x)[unit_size]) const {
    prim::cuda::with_elements(data, type, [&]<class Element>(Element* row) {
      using vector = prim::cuda::element_vector<Element, unit_size>;
      if (aligned && units.is_whole(first)) {
        vector all;
#pragma unroll
        for (int i = 0; i < unit_size; i += 2) {
          prim::cuda::store_pair(all.x + i, x[i], x[i + 1]);
        }
        const auto* const words = reinterpret_cast<const uint4*>(&all);
        auto* const to = reinterpret_cast<uint4*>(row + first);
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(vector) / 16); ++i) __stcs(to + i, words[i]);
      } else {
#pragma unroll
        for (int i = 0; i < unit_size; ++i) {
          if (units.holds(first + i)) row[first + i] = prim::nearest<Element>(x[i]);
        }
      }
    });
  }

  /// Zeros in a unit.
  __device__ __forceinline__ void clear(const row_units& units, std::int64_t first) const {
    const float zeros[unit_size] = {};
    store(units, first, zeros);
  }
};

/// Threads that have a row together: a block, or a warp of it where rows are short.
struct row_team {
  int threads = 32;
  int thread = 0;

  __device__ __forceinline__ explicit row_team(bool by_warp)
      : threads(by_warp ? 32 : static_cast<int>(blockDim.x)),
        thread(by_warp ? static_cast<int>(threadIdx.x % 32) : static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ bool is_first() const { return thread == 0; }
  __device__ __forceinline__ std::int64_t row() const {
    if (threads != 32) return blockIdx.x;
    return std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  }
  /// Whether it holds for any of the team, all of which ask.
  __device__ __forceinline__ bool any(bool x) const {
    return threads == 32 ? prim::cuda::any_of_warp(x) : __syncthreads_or(x ? 1 : 0) != 0;
  }
};

}  // namespace tessera::kernels::losses::sm80
