// The end of a tile: its sums go through shared memory, some columns at a time, so that threads
// have several side by side; bias, initial output and scales are applied, and results stored.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm80/operand.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// Sums of a tile in shared memory: its rows, and as many columns at a time.
template <int Rows, int Columns>
struct staged_result {
  static constexpr int columns = Columns < 128 ? Columns : 128;
  static constexpr int passes = Columns / columns;
  static constexpr int stride = columns + 8;  ///< pairs of eight rows lie in different banks
  static constexpr int bytes = Rows * stride * 4;

  /// Bytes for these sums and, before them, operands of so many.
  static constexpr int or_more(int operand_bytes) {
    return operand_bytes > bytes ? operand_bytes : bytes;
  }
};

/// Columns of the result that a thread stores together.
inline constexpr int result_columns = 8;

/// Calls body with the memory of a result as elements of its type.
template <class Body>
__device__ __forceinline__ void with_result_elements(const grouped_matrix& to, const Body& body) {
  if (prim::cuda::is_code_type(to.type)) {
    prim::cuda::with_code_type(to.type,
                               [&]<class Code>(Code) { body(static_cast<Code*>(to.data)); });
  } else {
    prim::cuda::with_elements(to.data, to.type, body);
  }
}

/// Stores the first `count` of eight values side by side.
__device__ __forceinline__ void store_values(const grouped_matrix& to, std::int64_t offset,
                                             int count, const float (&x)[result_columns]) {
  with_result_elements(to, [&]<class Element>(Element* elements) {
    Element* const first = elements + offset;
    using vector = prim::cuda::element_vector<Element, result_columns>;
    if (count == result_columns && reinterpret_cast<std::uintptr_t>(first) % alignof(vector) == 0) {
      vector all;
#pragma unroll
      for (int i = 0; i < result_columns; i += 2) {
        prim::cuda::store_pair(all.x + i, x[i], x[i + 1]);
      }
      *reinterpret_cast<vector*>(first) = all;
    } else {
#pragma unroll
      for (int i = 0; i < result_columns; ++i) {
        if (i < count) first[i] = prim::nearest<Element>(x[i]);
      }
    }
  });
}

/// Adds what is stored there.
__device__ __forceinline__ void add_values(const grouped_matrix& from, std::int64_t offset,
                                           int count, float (&x)[result_columns]) {
#pragma unroll
  for (int i = 0; i < result_columns; ++i) {
    if (i < count) x[i] += prim::cuda::number_at(from.data, from.type, offset + i);
  }
}

/// What the options make of values of a row of the result; see completion.hpp.
__device__ __forceinline__ void complete_values(const completion& how, std::int64_t matrix,
                                                std::int64_t line, std::int64_t first, int count,
                                                float (&x)[result_columns]) {
  activate(how, x);
  if (how.multiplier.data != nullptr) {
    const std::int64_t offset = how.multiplier.offset(matrix, line, first);
#pragma unroll
    for (int i = 0; i < result_columns; ++i) {
      if (i < count) {
        x[i] *= prim::cuda::number_at(how.multiplier.data, how.multiplier.type, offset + i);
      }
    }
  }
  if (how.residual.data != nullptr) {
    add_values(how.residual, how.residual.offset(matrix, line, first), count, x);
  }
}

/// Bias, initial output and what options and the epilogue make of values of row `line`; stores
/// them. The matrix is negative for rows of none.
template <class Epilogue = no_epilogue>
__device__ __forceinline__ void complete_and_store(const product_args& args, std::int64_t matrix,
                                                   std::int64_t line, std::int64_t first, int count,
                                                   float (&x)[result_columns],
                                                   const Epilogue& epilogue = {}) {
  const std::int64_t stored = matrix < 0 ? 0 : matrix;
  if (args.bias.data != nullptr && matrix >= 0) {
    add_values(args.bias, args.bias.offset(matrix, 0, first), count, x);
  }
  if (args.init.data != nullptr) {
    add_values(args.init, args.init.offset(stored, line, first), count, x);
  }
  if (args.finish.exists && matrix >= 0) {
    complete_values(args.finish, matrix, line, first, count, x);
  }
  if constexpr (is_epilogue<Epilogue>) {
#pragma unroll
    for (int i = 0; i < result_columns; ++i) {
      if (i < count && matrix >= 0) x[i] = epilogue(x[i], {matrix, line, first + i});
    }
  }
  // Eight columns from a multiple of eight on lie in one block.
  if (args.scales_of_codes.data != nullptr) {
    const float scale = args.scales_of_codes.at(stored, line, first / scale_block);
#pragma unroll
    for (float& each : x) each /= scale;
  }
  store_values(args.to, args.to.offset(stored, line, first), count, x);
}

/// Stores the part of a tile whose sums are staged: columns [column, column + staged) of the
/// result.
template <class Staged, int Rows, int Threads, class Epilogue>
__device__ __forceinline__ void store_staged(const product_args& args, const tile_place& at,
                                             std::int64_t column, const float* staged,
                                             const Epilogue& epilogue) {
  constexpr int groups = Staged::columns / result_columns;
  for (int item = static_cast<int>(threadIdx.x); item < Rows * groups; item += Threads) {
    const int r = item / groups, c = item % groups * result_columns;
    const std::int64_t row = at.row + r, first = column + c;
    if (row >= at.rows || first >= args.columns) continue;
    const int count = args.columns - first < result_columns ? static_cast<int>(args.columns - first)
                                                            : result_columns;
    float x[result_columns];
#pragma unroll
    for (int i = 0; i < result_columns; ++i) x[i] = staged[r * Staged::stride + c + i];
    const std::int64_t line = (args.sums_rows ? 0 : at.first) + row;
    if (args.weights.scale.data != nullptr && at.depth > 0) {
#pragma unroll
      for (int i = 0; i < result_columns; ++i) {
        if (i < count) x[i] *= operand_part::scale_of(args.weights, at.matrix, row, first + i);
      }
    }
    complete_and_store(args, at.matrix, line, first, count, x, epilogue);
  }
}

/// Pieces of k that sums for the gradients of scales are cut into: a tile's rows, or the columns
/// that are staged together where those are along k.
template <int Rows, int Columns>
__host__ __device__ constexpr std::int64_t scale_piece(bool k_is_column) {
  return k_is_column ? staged_result<Rows, Columns>::columns : Rows;
}

/// Sums of result times weights over the blocks of k in the staged piece, for each n of it: block b
/// of piece p is number b + p, which no other piece has.
template <class Staged, int Rows, int Threads>
__device__ __forceinline__ void sum_for_scales(const product_args& args, const tile_place& at,
                                               std::int64_t column, const float* staged) {
  const bool k_is_column = !args.weights.scale_by_line;
  const std::int64_t all_k = k_is_column ? args.columns : args.rows;
  const std::int64_t all_n = k_is_column ? args.rows : args.columns;
  const std::int64_t size = k_is_column ? Staged::columns : Rows;
  const std::int64_t first_k = k_is_column ? column : at.row;
  const std::int64_t first_n = k_is_column ? at.row : column;
  const std::int64_t end = first_k + size < all_k ? first_k + size : all_k;
  const std::int64_t pieces = ceil_div(all_k, size), block_size = args.weights.scale_block;
  const int most = k_is_column ? Rows : Staged::columns;
  for (int i = static_cast<int>(threadIdx.x); i < most; i += Threads) {
    const std::int64_t n = first_n + i;
    if (n >= all_n) continue;
    float sum = 0;
    std::int64_t block = first_k / block_size;
    for (std::int64_t k = first_k; k < end; ++k) {
      const auto j = static_cast<int>(k - first_k);
      const float product =
          k_is_column ? staged[i * Staged::stride + j] : staged[j * Staged::stride + i];
      // Weights that no row is multiplied by are not read.
      if (at.depth > 0) {
        const std::int64_t offset = k_is_column ? args.weights.matrix.offset(at.matrix, n, k)
                                                : args.weights.matrix.offset(at.matrix, k, n);
        sum += product * stored_number(args.weights.matrix, offset);
      }
      if (k + 1 != end && (k + 1) % block_size != 0) continue;
      const std::int64_t number = block + first_k / size;
      args.scale_sums[(at.matrix * (args.scale_blocks + pieces) + number) * all_n + n] = sum;
      sum = 0;
      ++block;
    }
  }
}

/// Stores a tile of sums; everyone is done with `shared` but for what the barrier waits for.
template <int Rows, int Columns, int Threads, class Sums, class Epilogue>
__device__ __forceinline__ void store_result(const product_args& args, const tile_place& at,
                                             float* shared, const Sums& sums,
                                             const Epilogue& epilogue) {
  using staged = staged_result<Rows, Columns>;
#pragma unroll 1
  for (int pass = 0; pass < staged::passes; ++pass) {
    const std::int64_t column = at.column + pass * staged::columns;
    if (column >= args.columns) break;
    __syncthreads();
    sums.for_each_pair([&](int r, int c, float x, float y) {
      if (c / staged::columns != pass) return;
      float2* const to =
          reinterpret_cast<float2*>(shared + r * staged::stride + c % staged::columns);
      *to = make_float2(x, y);
    });
    __syncthreads();
    if (args.scale_sums != nullptr) sum_for_scales<staged, Rows, Threads>(args, at, column, shared);
    if (args.to.data != nullptr) {
      store_staged<staged, Rows, Threads>(args, at, column, shared, epilogue);
    }
  }
}

}  // namespace tessera::kernels::grouped_matmul::sm80
