// The end of a tile: sums of a warpgroup, from registers to the rows of the result.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm80/completion.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// Words of two elements each of 32 columns, of which lane q of a quad has columns 8 i + 2 q and
/// the next in word i: exchanged, so that lane q has the columns 8 q to 8 q + 7.
__device__ __forceinline__ uint4 neighbours_of_quad(const std::uint32_t (&word)[4]) {
  const unsigned quarter = threadIdx.x % 4;
  const bool high = (quarter & 2) != 0, odd = (quarter & 1) != 0;
  // Word i of lane q belongs to lane i: first pairs of lanes change halves, then neighbours.
  const std::uint32_t far0 = __shfl_xor_sync(prim::cuda::all_lanes, high ? word[0] : word[2], 2);
  const std::uint32_t far1 = __shfl_xor_sync(prim::cuda::all_lanes, high ? word[1] : word[3], 2);
  const std::uint32_t w0 = high ? far0 : word[0], w1 = high ? far1 : word[1];
  const std::uint32_t w2 = high ? word[2] : far0, w3 = high ? word[3] : far1;
  const std::uint32_t near0 = __shfl_xor_sync(prim::cuda::all_lanes, odd ? w0 : w1, 1);
  const std::uint32_t near1 = __shfl_xor_sync(prim::cuda::all_lanes, odd ? w2 : w3, 1);
  return odd ? make_uint4(near0, w1, near1, w3) : make_uint4(w0, near0, w2, near1);
}

/// Where a thread's sums belong: two rows of the result, eight apart, and columns 8 i + 2 q and the
/// next of each 32, q being its lane in a quad.
struct result_rows {
  const sm80::product_args& args;
  const sm80::tile_place& at;
  std::int64_t row;  ///< of the matrix, of the first
  int quarter;

  __device__ __forceinline__ bool exists(int half) const { return row + 8 * half < at.rows; }
  /// The row of the result's tensor.
  __device__ __forceinline__ std::int64_t line(int half) const {
    return (args.sums_rows ? 0 : at.first) + row + 8 * half;
  }
  __device__ __forceinline__ std::int64_t offset(const grouped_matrix& of, int half,
                                                 std::int64_t column) const {
    return of.offset(at.stored_matrix(), line(half), column);
  }

  /// Calls visit(i, half, column) for 16 sums, of the 32 columns from `column` on.
  template <class Visit>
  __device__ __forceinline__ void for_each(std::int64_t column, const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int half = i / 2 % 2;
      const std::int64_t at_column = column + i / 4 * 8 + quarter * 2 + i % 2;
      if (exists(half) && at_column < args.columns) visit(i, half, at_column);
    }
  }
};

/// Whether eight columns of a matrix of the result's size are 16 bytes at a multiple of 16.
__host__ __device__ __forceinline__ bool lies_in_eights(const grouped_matrix& of,
                                                        std::int64_t columns) {
  const auto bits = reinterpret_cast<std::uintptr_t>(of.data) |
                    static_cast<std::uintptr_t>((of.row | of.group | columns) * 2);
  return (of.type == dtype::bf16 || of.type == dtype::f16) && bits % 16 == 0;
}

/// Stores 16 sums as elements of 16 bits, eight columns at a time.
template <class Element>
__device__ __forceinline__ void store_eights(const result_rows& rows, std::int64_t column,
                                             const float* sum) {
  using words = prim::cuda::half_words<Element>;
  const std::int64_t first = column + rows.quarter * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = words::pack(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
    }
    const uint4 eight = neighbours_of_quad(word);
    if (!rows.exists(half) || first >= rows.args.columns) continue;
    *reinterpret_cast<uint4*>(static_cast<Element*>(rows.args.to.data) +
                              rows.offset(rows.args.to, half, first)) = eight;
  }
}

/// The elements of such a matrix beside 16 sums, eight columns a word, of two rows.
struct beside_words {
  uint4 half[2];

  static __device__ __forceinline__ beside_words at(const result_rows& rows,
                                                    const grouped_matrix& of, std::int64_t column) {
    const std::int64_t first = column + rows.quarter * 8;
    beside_words read{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!rows.exists(i) || first >= rows.args.columns) continue;
      read.half[i] = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(of.data) +
                                                     rows.offset(of, i, first));
    }
    return read;
  }

  /// Each where its sum is. All lanes of a warp ask together.
  template <class Element>
  __device__ __forceinline__ void unpack(float (&x)[16]) const {
    using words = prim::cuda::half_words<Element>;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // What brings words to the thread that stores them takes them back.
      const uint4 own = neighbours_of_quad({half[i].x, half[i].y, half[i].z, half[i].w});
      const std::uint32_t word[4] = {own.x, own.y, own.z, own.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[4 * j + 2 * i] = words::unpack(static_cast<std::uint16_t>(word[j]));
        x[4 * j + 2 * i + 1] = words::unpack(static_cast<std::uint16_t>(word[j] >> 16));
      }
    }
  }
  __device__ __forceinline__ void unpack(dtype type, float (&x)[16]) const {
    if (type == dtype::bf16) return unpack<bf16>(x);
    unpack<f16>(x);
  }
};

/// The same of a matrix of any type and address. All lanes of a warp ask together.
__device__ __forceinline__ void load_beside(const result_rows& rows, const grouped_matrix& of,
                                            std::int64_t column, float (&x)[16]) {
  if (lies_in_eights(of, rows.args.columns)) {
    return beside_words::at(rows, of, column).unpack(of.type, x);
  }
#pragma unroll
  for (float& each : x) each = 0;
  prim::cuda::with_elements(of.data, of.type, [&](const auto* elements) {
    rows.for_each(column, [&](int i, int half, std::int64_t at_column) {
      x[i] = prim::cuda::float_of(elements[rows.offset(of, half, at_column)]);
    });
  });
}

/// Bias, initial output and what options make of 16 sums, of the 32 columns from `column` on.
__device__ __forceinline__ void complete_by_options(const result_rows& rows, std::int64_t column,
                                                    float (&sum)[16]) {
  const sm80::product_args& args = rows.args;
  const bool of_matrix = rows.at.matrix >= 0;
  float beside[16];
  if (args.bias.data != nullptr && of_matrix) {
    prim::cuda::with_elements(args.bias.data, args.bias.type, [&](const auto* bias) {
      rows.for_each(column, [&](int i, int, std::int64_t at_column) {
        sum[i] += prim::cuda::float_of(bias[args.bias.offset(rows.at.matrix, 0, at_column)]);
      });
    });
  }
  if (args.init.data != nullptr) {
    load_beside(rows, args.init, column, beside);
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] += beside[i];
  }
  if (!args.finish.exists || !of_matrix) return;
  sm80::activate(args.finish, sum);
  if (args.finish.multiplier.data != nullptr) {
    load_beside(rows, args.finish.multiplier, column, beside);
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] *= beside[i];
  }
  if (args.finish.residual.data != nullptr) {
    load_beside(rows, args.finish.residual, column, beside);
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] += beside[i];
  }
}

/// The same, and what the epilogue makes of them.
template <class Epilogue>
__device__ __forceinline__ void complete(const result_rows& rows, std::int64_t column,
                                         float (&sum)[16], const Epilogue& epilogue) {
  complete_by_options(rows, column, sum);
  if constexpr (sm80::is_epilogue<Epilogue>) {
    if (rows.at.matrix < 0) return;
    rows.for_each(column, [&](int i, int half, std::int64_t at_column) {
      sum[i] = epilogue(sum[i], {rows.at.matrix, rows.at.first + rows.row + 8 * half, at_column});
    });
  }
}

/// Stores 16 sums of the 32 columns from `column` on, whatever the type and address.
__device__ __forceinline__ void store_any(const result_rows& rows, std::int64_t column,
                                          const float (&sum)[16]) {
  const grouped_matrix& to = rows.args.to;
  prim::cuda::with_elements(to.data, to.type, [&]<class To>(To* elements) {
    rows.for_each(column, [&](int i, int half, std::int64_t at_column) {
      elements[rows.offset(to, half, at_column)] = prim::nearest<To>(sum[i]);
    });
  });
}

/// Whether eight columns of a result of elements of 8 bits are 8 bytes at a multiple of 8.
__device__ __forceinline__ bool codes_lie_in_eights(const grouped_matrix& of,
                                                    std::int64_t columns) {
  const auto bits = reinterpret_cast<std::uintptr_t>(of.data) |
                    static_cast<std::uintptr_t>(of.row | of.group | columns);
  return bits % 8 == 0;
}

/// The same as elements of 8 bits, divided by their scales: all columns lie in one block. All lanes
/// of a warp ask together.
__device__ __forceinline__ void store_codes(const result_rows& rows, std::int64_t column,
                                            const float (&sum)[16]) {
  const grouped_matrix& to = rows.args.to;
  float scale[2] = {1, 1};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (rows.args.scales_of_codes.data == nullptr || !rows.exists(half)) continue;
    scale[half] = rows.args.scales_of_codes.at(rows.at.stored_matrix(), rows.line(half),
                                               column / scale_block);
  }
  prim::cuda::with_code_type(to.type, [&]<class Code>(Code) {
    auto* const elements = static_cast<Code*>(to.data);
    if (!codes_lie_in_eights(to, rows.args.columns)) {
      rows.for_each(column, [&](int i, int half, std::int64_t at_column) {
        elements[rows.offset(to, half, at_column)] = prim::nearest<Code>(sum[i] / scale[half]);
      });
      return;
    }
    const std::int64_t first = column + rows.quarter * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t word[4];  // a pair of codes each
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Code pair[2];
        prim::cuda::store_pair(pair, sum[4 * i + 2 * half] / scale[half],
                               sum[4 * i + 2 * half + 1] / scale[half]);
        word[i] = std::uint32_t{std::bit_cast<std::uint8_t>(pair[0])} |
                  std::uint32_t{std::bit_cast<std::uint8_t>(pair[1])} << 8;
      }
      const uint4 pairs = neighbours_of_quad(word);
      if (!rows.exists(half) || first >= rows.args.columns) continue;
      *reinterpret_cast<uint2*>(elements + rows.offset(to, half, first)) =
          make_uint2(pairs.x | pairs.y << 16, pairs.z | pairs.w << 16);
    }
  });
}

/// Whether all that sums become is quick, and lies in eights.
__device__ __forceinline__ bool finishes_quickly(const sm80::product_args& args) {
  const auto lies = [&](const grouped_matrix& of) {
    return of.data == nullptr || lies_in_eights(of, args.columns);
  };
  return args.bias.data == nullptr && args.init.data == nullptr &&
         sm80::is_quick(args.finish.activation) && lies(args.finish.multiplier) &&
         lies(args.finish.residual);
}

/// Completes and stores sums of which that is true. What lies beside the next 32 columns is on its
/// way meanwhile.
template <class Element, int Sums>
__device__ __forceinline__ void store_quickly(const result_rows& rows, const float (&sums)[Sums]) {
  const sm80::completion& finish = rows.args.finish;
  const bool multiplies = finish.multiplier.data != nullptr, adds = finish.residual.data != nullptr;
  beside_words factors{}, terms{};
  const auto fetch = [&](std::int64_t column) {
    if (multiplies) factors = beside_words::at(rows, finish.multiplier, column);
    if (adds) terms = beside_words::at(rows, finish.residual, column);
  };
  fetch(rows.at.column);
#pragma unroll
  for (int group = 0; group < Sums / 16; ++group) {
    const std::int64_t column = rows.at.column + group * 32;
    if (column >= rows.args.columns) continue;
    const beside_words factor = factors, term = terms;
    if (group + 1 < Sums / 16) fetch(column + 32);
    float sum[16], beside[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] = sums[group * 16 + i];
    sm80::activate_quickly(finish, sum);
    if (multiplies) {
      factor.unpack(finish.multiplier.type, beside);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum[i] *= beside[i];
    }
    if (adds) {
      term.unpack(finish.residual.type, beside);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum[i] += beside[i];
    }
    store_eights<Element>(rows, column, sum);
  }
}

/// Completes and stores the sums of a warpgroup, whose rows of the tile begin at `first_row`.
/// `Element` is what most results are.
template <class Element, int Sums, class Epilogue = no_epilogue>
__device__ __forceinline__ void store_sums(const sm80::product_args& args,
                                           const sm80::tile_place& at, int first_row,
                                           const float (&sums)[Sums],
                                           const Epilogue& epilogue = {}) {
  const int thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
  const result_rows rows{args, at, at.row + first_row + thread / 32 * 16 + thread % 32 / 4,
                         thread % 4};
  const bool in_eights =
      args.to.type == dtype_of<Element>::value && lies_in_eights(args.to, args.columns);
  const bool in_codes = prim::cuda::is_code_type(args.to.type);
  const bool complete_already =
      !sm80::is_epilogue<Epilogue> && args.init.data == nullptr &&
      (at.matrix < 0 || (args.bias.data == nullptr && !args.finish.exists));
  if (in_eights && complete_already) {
#pragma unroll
    for (int group = 0; group < Sums / 16; ++group) {
      const std::int64_t column = at.column + group * 32;
      if (column < args.columns) store_eights<Element>(rows, column, sums + group * 16);
    }
    return;
  }
  if constexpr (!sm80::is_epilogue<Epilogue>) {
    if (in_eights && finishes_quickly(args)) return store_quickly<Element>(rows, sums);
  }
  // One text for all groups of sums, which registers cannot be indexed by: each is moved there.
#pragma unroll 1
  for (int group = 0; group < Sums / 16 && at.column + group * 32 < args.columns; ++group) {
    float sum[16];
#pragma unroll
    for (int i = 0; i < Sums; ++i) {
      if (i / 16 == group) sum[i % 16] = sums[i];
    }
    const std::int64_t column = at.column + group * 32;
    complete(rows, column, sum, epilogue);
    if (in_eights) {
      store_eights<Element>(rows, column, sum);
    } else if (in_codes) {
      store_codes(rows, column, sum);
    } else {
      store_any(rows, column, sum);
    }
  }
}

}  // namespace tessera::kernels::grouped_matmul::sm90
