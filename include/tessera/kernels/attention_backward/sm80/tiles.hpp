// Pieces of the kernels for the matrix unit: copies of tiles, products of a warp's 16 rows, the
// step from scores to weights and gradients, stores.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/block.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>

namespace tessera::kernels::attention_backward::sm80 {

using prim::cuda::accumulator;
using prim::cuda::fragment_a;
using prim::cuda::fragment_b2;

inline constexpr int own_rows = 128;  ///< of a block: 16 for each of its eight warps

/// The chunks of a tile that a thread copies: one column of them, every so many rows, so that
/// places and addresses are a constant apart. Threads behind the last column have none.
template <class Tile, int Threads>
struct own_chunks {
  static constexpr auto columns = std::bit_ceil(static_cast<unsigned>(Tile::chunks));
  static constexpr unsigned rows_apart = Threads / columns;
  static constexpr unsigned count = Tile::rows / rows_apart;
  static_assert(Threads % columns == 0 && rows_apart % 8 == 0 && Tile::rows % rows_apart == 0,
                "all lie at the same place in their lines");
  unsigned row, chunk;

  static __device__ __forceinline__ own_chunks of_thread() {
    const unsigned thread = prim::cuda::thread_index();
    return {thread / columns, thread % columns};
  }
  __device__ __forceinline__ bool any() const {
    return columns == Tile::chunks || chunk < Tile::chunks;
  }
  __device__ __forceinline__ int row_of(unsigned i) const {
    return static_cast<int>(row + i * rows_apart);
  }
  /// In the tile.
  __device__ __forceinline__ std::uint32_t offset(unsigned i) const {
    return Tile::offset(row, chunk) + i * (rows_apart * Tile::row_bytes);
  }
};

/// Starts the copy of a tile of tokens; those for which `wanted` does not hold become zeros, and
/// are not read.
template <class Tile, class Element, int Threads = threads, class Wanted>
__device__ __forceinline__ void copy_tile(std::uint32_t to, const void* data,
                                          const row_strides& strides, const prim::sequence& seq,
                                          std::int64_t token, int head, const Wanted& wanted) {
  using chunks = own_chunks<Tile, Threads>;
  const auto own = chunks::of_thread();
  if (!own.any()) return;
  const Element* from = row_of<Element>(data, strides, seq, token + own.row, head) + own.chunk * 8;
  const std::int64_t apart = strides.row * chunks::rows_apart;
#pragma unroll
  for (unsigned i = 0; i < chunks::count; ++i) {
    prim::cuda::copy_async_16(to + own.offset(i), from, wanted(own.row_of(i)) ? 16u : 0u);
    from += apart;
  }
}

/// Whether this thread copied an element that is not finite (copy_tile); behind the arrival of its
/// own copies.
template <class Tile, class Element, int Threads = threads>
__device__ __forceinline__ bool has_copied_taint(std::uint32_t tile) {
  using chunks = own_chunks<Tile, Threads>;
  const auto own = chunks::of_thread();
  if (!own.any()) return false;
  std::uint32_t found = 0;
#pragma unroll
  for (unsigned i = 0; i < chunks::count; ++i) {
    std::uint32_t words[4];
    prim::cuda::load_shared_16(words, tile + own.offset(i));
#pragma unroll
    for (const std::uint32_t word : words) found |= marked_not_finite<Element>(word);
  }
  return (found & not_finite_marks) != 0;
}

/// Rows of a tile become zeros where `wanted` does not hold; behind the arrival of its copies. Few
/// tiles have such rows: what it needs is not kept in registers.
template <class Tile, int Threads = threads, class Wanted>
__device__ __forceinline__ void clear_rows(std::uint32_t tile, const Wanted& wanted) {
#pragma unroll 1
  for (unsigned at = prim::cuda::thread_index(); at < Tile::rows * Tile::chunks; at += Threads) {
    const unsigned r = at / Tile::chunks, chunk = at % Tile::chunks;
    if (wanted(static_cast<int>(r))) continue;
    prim::cuda::store_shared_16(tile + Tile::offset(r, chunk), {0, 0, 0, 0});
  }
}

/// C[16 rows][columns] += A[16 rows][Depth of both tiles] B^T: rows of B are columns of C.
template <class Element, class TileA, class TileB, int Tiles>
__device__ __forceinline__ void multiply_rows(accumulator (&sums)[Tiles], std::uint32_t a,
                                              std::uint32_t b) {
  using words = prim::cuda::half_words<Element>;
#pragma unroll
  for (int k = 0; k < TileA::width / 16; ++k) {
    fragment_a of_a;
    prim::cuda::load_matrices(of_a.reg, TileA::step(a, 0, k));
#pragma unroll
    for (int n = 0; n < Tiles / 2; ++n) {
      fragment_b2 of_b;
      prim::cuda::load_matrices(of_b.reg, TileB::step(b, n, k));
      words::template multiply_add<0>(sums[2 * n], of_a, of_b);
      words::template multiply_add<1>(sums[2 * n + 1], of_a, of_b);
    }
  }
}

/// C[16 rows][width of B] += A B where A are sums of 16 rows: columns of A are rows of B.
template <class Element, class TileB, int Columns, int Tiles>
__device__ __forceinline__ void multiply_columns(accumulator (&sums)[Columns],
                                                 const accumulator (&a)[Tiles], std::uint32_t b) {
  using words = prim::cuda::half_words<Element>;
#pragma unroll
  for (int k = 0; k < Tiles / 2; ++k) {
    const accumulator &left = a[2 * k], &right = a[2 * k + 1];
    const fragment_a of_a{{words::pack(left.at[0], left.at[1]), words::pack(left.at[2], left.at[3]),
                           words::pack(right.at[0], right.at[1]),
                           words::pack(right.at[2], right.at[3])}};
#pragma unroll
    for (int n = 0; n < Columns / 2; ++n) {
      fragment_b2 of_b;
      prim::cuda::load_matrices_transposed(of_b.reg, TileB::step(b, k, n));
      words::template multiply_add<0>(sums[2 * n], of_a, of_b);
      words::template multiply_add<1>(sums[2 * n + 1], of_a, of_b);
    }
  }
}

/// Rows that some number of another axis sees, or is seen by, counted from the first of a tile.
struct seen_part {
  int begin = 0, end = 0;

  static __device__ __forceinline__ seen_part of(prim::key_interval keys, std::int64_t first,
                                                 int most) {
    const auto cut = [&](std::int64_t x) {
      return static_cast<int>(x < 0 ? 0 : x < most ? x : most);
    };
    return {cut(keys.begin - first), cut(keys.end - first)};
  }
  __device__ __forceinline__ bool holds(int at) const { return at >= begin && at < end; }
};

/// Tiles of `Queries` queries with some of the rows.
template <int Queries>
__device__ __forceinline__ tile_interval tiles_with(const prim::row_interval& rows,
                                                    std::int64_t q_len) {
  const std::int64_t begin = rows.begin > 0 ? rows.begin : 0;
  const std::int64_t end = rows.end < q_len ? rows.end : q_len;
  if (begin >= end) return {};
  return {static_cast<int>(begin / Queries), static_cast<int>((end - 1) / Queries) + 1};
}
/// Those of which some query sees some of the keys.
template <int Queries, class Visible>
__device__ __forceinline__ tile_interval tiles_that_see(const Visible& visible, std::int64_t q_len,
                                                        const prim::key_interval& keys) {
  if (keys.empty()) return {};
  return tiles_with<Queries>(visible.mask.rows_that_see(keys), q_len);
}
/// Whole tiles whose queries all see all of the keys.
template <int Queries, class Visible>
__device__ __forceinline__ tile_interval tiles_that_see_all(const Visible& visible,
                                                            std::int64_t q_len,
                                                            const prim::key_interval& keys) {
  if (keys.empty() || keys.end > visible.k_len) return {};
  const prim::row_interval rows = visible.mask.rows_that_see_all(keys);
  const std::int64_t begin = rows.begin > 0 ? rows.begin : 0;
  const std::int64_t end = rows.end < q_len ? rows.end : q_len;
  if (begin >= end) return {};
  return {static_cast<int>((begin + Queries - 1) / Queries), static_cast<int>(end / Queries)};
}

/// The weight and the gradient before the cap of one pair, from its product and the gradient that
/// comes into the weight. `shift` and the scale of plain products are to the base 2. `Learns`: the
/// pair counts for the parameters of functors. `Asks`: `visible` does not know what segments and
/// the mask functor say.
template <score_kind Kind, bool Learns = false, bool Asks = true, class Hooks>
__device__ __forceinline__ void weigh(const hooked_args<Hooks>& args, const score_place& at,
                                      bool visible, float scale, float shift, float correction,
                                      float& product, float& gradient) {
  if constexpr (Kind == score_kind::plain) {
    const float weight = prim::cuda::exp2_fast(fmaf(product, scale, -shift));
    product = visible ? weight : 0.0f;
    gradient = visible ? weight * (gradient - correction) : 0.0f;
  } else {
    weight_parts parts;
    if (visible) {
      if constexpr (Kind == score_kind::all) {
        parts = logit_of_all(args, at, product);
      } else {
        parts = logit_of<Kind, Asks>(args, at, product);
      }
    }
    const float weight = prim::cuda::exp2_fast(fmaf(parts.logit, prim::log2_e, -shift));
    const score_gradients found = gradients_of(parts, weight, gradient, correction);
    if constexpr (Learns) add_parameters(args, at, parts, found);
    product = found.weight;
    gradient = found.before_cap;
  }
}

/// Eight elements of 16 bits at any address.
__device__ __forceinline__ void store_chunk(
    std::uint16_t* to, const prim::cuda::element_vector<std::uint32_t, 4>& words) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(words) == 0) {
    *reinterpret_cast<prim::cuda::element_vector<std::uint32_t, 4>*>(to) = words;
    return;
  }
#pragma unroll
  for (int d = 0; d < 8; ++d) {
    to[d] = static_cast<std::uint16_t>(words.x[d / 2] >> (d % 2 * 16));
  }
}

/// Writes `Columns` x 8 columns, from number `column` on, of a warp's 16 rows of sums times
/// `factor`, those before `all`. They pass through shared memory at `staging`, which is the warp's
/// own (`stored_rows`), so that each lane writes 16 bytes.
template <int Columns>
using stored_rows = prim::cuda::shared_tile<16, Columns * 8>;

template <class Element, int Columns, int Room>
__device__ __forceinline__ void store_rows(std::uint32_t staging, const accumulator (&sums)[Room],
                                           void* data, const row_strides& strides,
                                           const prim::sequence& seq, std::int64_t begin,
                                           std::int64_t first, std::int64_t all, int head,
                                           float factor, int column = 0) {
  using staged = stored_rows<Columns>;
  const auto lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < Columns; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t word = prim::cuda::half_words<Element>::pack(
          sums[n].at[2 * half] * factor, sums[n].at[2 * half + 1] * factor);
      prim::cuda::store_shared_4(
          staging + staged::offset(lane / 4 + 8 * half, static_cast<unsigned>(n)) + lane % 4 * 4,
          word);
    }
  }
  __syncwarp();
#pragma unroll
  for (int at = static_cast<int>(lane); at < 16 * Columns; at += 32) {
    const int row = at / Columns, chunk = at % Columns;
    if (first + row >= all) continue;
    prim::cuda::element_vector<std::uint32_t, 4> words;
    prim::cuda::load_shared_16(words.x, staging + staged::offset(static_cast<unsigned>(row),
                                                                 static_cast<unsigned>(chunk)));
    store_chunk(
        row_of<std::uint16_t>(data, strides, seq, begin + first + row, head) + (column + chunk * 8),
        words);
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
