// Products of a chunk of tokens and a tile of a state, on register tiles: what tokens read of it,
// and what they leave in it.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::recurrence {

/// Tokens that meet a state together. Twice as many would halve the passes over a state and double
/// the products of tokens with each other.
inline constexpr int chunk_tokens = 16;

/// Rows of floats, `stride` apart; going back it is negative.
template <class Float>
struct float_rows {
  Float* data = nullptr;
  std::int64_t stride = 0;
  TESSERA_INLINE Float* row(std::int64_t i) const { return data + i * stride; }
};

/// A tile of a state: `rows` of `columns` floats, whole registers, side by side.
struct tile_shape {
  std::int64_t rows = 0, columns = 0;
};

/// Weights [chunk][chunk] of token pairs in the order of the scan: weight (t, s), s <= t, lies at
/// data[t * row + s * column].
struct pair_weights {
  const float* data = nullptr;
  std::int64_t row = 0, column = 0;
};

namespace products {

/// Registers side by side and rows of a register tile.
template <class Isa>
inline constexpr int registers = prim::simd<Isa>::width >= 16 ? 4 : 2;
template <class Isa>
inline constexpr int rows = prim::simd<Isa>::width >= 8 ? 6 : 4;

/// Calls `body.template operator()<Rows, Registers>(row, column)` for each register tile.
template <class Isa, class Body>
TESSERA_INLINE void for_each_tile(std::int64_t count, std::int64_t columns, const Body& body) {
  constexpr int width = prim::simd<Isa>::width, most = registers<Isa>;
  const auto down = [&]<int Registers>(std::int64_t column) {
    prim::for_each_row_tile<rows<Isa>>(static_cast<int>(count), [&]<int Rows>(int row) {
      body.template operator()<Rows, Registers>(row, column);
    });
  };
  std::int64_t column = 0;
  for (; column + most * width <= columns; column += most * width) {
    down.template operator()<most>(column);
  }
  for (; column < columns; column += width) down.template operator()<1>(column);
}

/// What Rows tokens, the first of which is `first`, read in Registers of columns.
template <class Isa, int Rows, int Registers, bool Weighted, bool Adds>
void read_tile(const float_rows<const float>& readers, int first, const float* state,
               const tile_shape& shape, const pair_weights& weights,
               const float_rows<const float>& values, const float_rows<float>& out) {
  using vec = prim::simd<Isa>;
  typename vec::reg sum[Rows][Registers], value[Registers];
  TESSERA_UNROLL
  for (int t = 0; t < Rows; ++t) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) {
      sum[t][r] = Adds ? vec::load(out.row(first + t) + r * vec::width) : vec::zero();
    }
  }
  const float* const reader = readers.row(first);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) {
      value[r] = vec::load(state + row * shape.columns + r * vec::width);
    }
    TESSERA_UNROLL
    for (int t = 0; t < Rows; ++t) {
      const auto factor = vec::broadcast(reader[t * readers.stride + row]);
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) sum[t][r] = vec::fma(factor, value[r], sum[t][r]);
    }
  }
  if constexpr (Weighted) {
    // Tokens before all of these, then these: a value never meets an earlier token, not even with
    // a weight of 0.
    const float* const weight = weights.data + first * weights.row;
    for (int s = 0; s < first; ++s) {
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) value[r] = vec::load(values.row(s) + r * vec::width);
      TESSERA_UNROLL
      for (int t = 0; t < Rows; ++t) {
        const auto factor = vec::broadcast(weight[t * weights.row + s * weights.column]);
        TESSERA_UNROLL
        for (int r = 0; r < Registers; ++r) sum[t][r] = vec::fma(factor, value[r], sum[t][r]);
      }
    }
    TESSERA_UNROLL
    for (int s = 0; s < Rows; ++s) {
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) {
        value[r] = vec::load(values.row(first + s) + r * vec::width);
      }
      TESSERA_UNROLL
      for (int t = s; t < Rows; ++t) {
        const auto factor = vec::broadcast(weight[t * weights.row + (first + s) * weights.column]);
        TESSERA_UNROLL
        for (int r = 0; r < Registers; ++r) sum[t][r] = vec::fma(factor, value[r], sum[t][r]);
      }
    }
  }
  TESSERA_UNROLL
  for (int t = 0; t < Rows; ++t) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) vec::store(out.row(first + t) + r * vec::width, sum[t][r]);
  }
}

}  // namespace products

/// Which part of a tile decays by factors of its own.
enum class tile_decay : std::uint8_t { none, rows, columns };

namespace products {

template <class Isa, int Rows, int Registers, tile_decay Decay>
void update_tile(const float* before, float* after, std::int64_t pitch, const float* row_decay,
                 const float* column_decay, const float* keys,
                 const float_rows<const float>& values) {
  using vec = prim::simd<Isa>;
  typename vec::reg sum[Rows][Registers], value[Registers];
  if constexpr (Decay == tile_decay::columns) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) value[r] = vec::load(column_decay + r * vec::width);
  }
  TESSERA_UNROLL
  for (int c = 0; c < Rows; ++c) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) {
      sum[c][r] = vec::load(before + c * pitch + r * vec::width);
      if constexpr (Decay == tile_decay::rows) {
        sum[c][r] = vec::mul(sum[c][r], vec::broadcast(row_decay[c]));
      }
      if constexpr (Decay == tile_decay::columns) sum[c][r] = vec::mul(sum[c][r], value[r]);
    }
  }
  for (std::int64_t t = 0; t < chunk_tokens; ++t) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) value[r] = vec::load(values.row(t) + r * vec::width);
    TESSERA_UNROLL
    for (int c = 0; c < Rows; ++c) {
      const auto factor = vec::broadcast(keys[c * chunk_tokens + t]);
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) sum[c][r] = vec::fma(factor, value[r], sum[c][r]);
    }
  }
  TESSERA_UNROLL
  for (int c = 0; c < Rows; ++c) {
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) {
      vec::store(after + c * pitch + r * vec::width, sum[c][r]);
    }
  }
}

}  // namespace products

/// out[t] (+)= sum over rows of readers[t][row] state[row], and if Weighted + sum over s <= t of
/// weights(t, s) values[s], for the tokens of a chunk. `state`, `values` and `out` are at the first
/// column of the tile.
template <class Isa, bool Weighted, bool Adds>
void read_state(const float_rows<const float>& readers, const float* state, const tile_shape& shape,
                const pair_weights& weights, const float_rows<const float>& values,
                const float_rows<float>& out) {
  products::for_each_tile<Isa>(
      chunk_tokens, shape.columns, [&]<int Rows, int Registers>(int first, std::int64_t column) {
        products::read_tile<Isa, Rows, Registers, Weighted, Adds>(
            readers, first, state + column, shape, weights, {values.data + column, values.stride},
            {out.data + column, out.stride});
      });
}

/// after[row] = decay before[row] + sum over tokens t of keys[row][t] values[t]; `keys` are
/// [rows][chunk], `decay` is of each row or each column. `before` may be `after`.
template <class Isa, tile_decay Decay>
void update_state(const float* before, float* after, const tile_shape& shape, const float* decay,
                  const float* keys, const float_rows<const float>& values) {
  products::for_each_tile<Isa>(
      shape.rows, shape.columns, [&]<int Rows, int Registers>(int row, std::int64_t column) {
        const std::int64_t at = row * shape.columns + column;
        products::update_tile<Isa, Rows, Registers, Decay>(
            before + at, after + at, shape.columns, decay + row, decay + column,
            keys + std::int64_t{row} * chunk_tokens, {values.data + column, values.stride});
      });
}

/// to[column] = sum over rows of a[row] b[row], element by element; times factor[column].
template <class Isa>
void multiply_tiles(const float* a, const float* b, const tile_shape& shape, const float* factor,
                    float* to) {
  using vec = prim::simd<Isa>;
  for (std::int64_t column = 0; column < shape.columns; column += vec::width) {
    typename vec::reg sum[4];
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) sum[i] = vec::zero();
    std::int64_t row = 0;
    const auto at = [&](const float* tile, std::int64_t i) {
      return vec::load(tile + i * shape.columns + column);
    };
    for (; row + 4 <= shape.rows; row += 4) {
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] = vec::fma(at(a, row + i), at(b, row + i), sum[i]);
    }
    for (; row < shape.rows; ++row) sum[0] = vec::fma(at(a, row), at(b, row), sum[0]);
    const auto all = vec::add(vec::add(sum[0], sum[1]), vec::add(sum[2], sum[3]));
    vec::store(to + column, vec::mul(all, vec::load(factor + column)));
  }
}

}  // namespace tessera::kernels::recurrence
