// Products of a chunk's rows, by the two warpgroups that make operands: one has A and its inverse,
// the other the weights of queries, and both what reads the state.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class chunk_products {
  using memory = walk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  /// Of 64 columns.
  using product = prim::cuda::warpgroup_product<Element, 64>;

 public:
  __device__ __forceinline__ chunk_products(memory& shared, walk_item<Shape>& item)
      : shared_(shared), item_(item), group_(prim::cuda::warpgroup_index()) {
    warp_ = static_cast<int>(threadIdx.x) / 32 % 4;
    lane_ = static_cast<int>(threadIdx.x) % 32;
  }

  /// M beta by the first group; P by the second, and of low-rank updates weights of queries with k
  /// and products of rows that read with k.
  __device__ __forceinline__ void make_weights() const {
    float sums[32];
    if (group_ == 0) {
      multiply_rows(sums, item_.held, item_.k);
      store_scores(sums);
      invert();
    } else {
      multiply_rows(sums, item_.q, item_.k);
      store_weights(item_.weights, sums, 1);
      if constexpr (Shape::low_rank) {
        multiply_rows(sums, item_.q, item_.own);
        store_weights(item_.own_weights, sums, 1);
        multiply_rows(sums, item_.held, item_.own);
        store_weights(shared_.products, sums, 0);
      }
    }
    prim::cuda::show_writes_to_async_units();
    wait_for_makers<Shape>();
  }

  /// -M beta times the rows of k that read, in their place. Of low-rank updates M times the rows
  /// that read, and M times their products with k in the place of M.
  __device__ __forceinline__ void make_readers() const {
    constexpr int panels = Shape::keys / 64;
    constexpr bool shares = panels > 1;  // otherwise the first group has all
    const std::uint64_t inverse = describe<weight_rows>(item_.inverse);
    [[maybe_unused]] std::uint32_t own[16];
    float sums[32];
    if constexpr (Shape::low_rank) {
      if (group_ == 1) {
        multiply_across(sums, inverse, describe<weight_rows>(shared_.products));
        pack_weights(own, sums, 0);
      }
    }
    if (shares || group_ == 0) {
      multiply_across(sums, inverse,
                      describe<key_rows>(item_.held + (shares ? group_ : 0) * panel_bytes));
    }
    wait_for_makers<Shape>();
    if (shares || group_ == 0) {
      constexpr float sign = Shape::low_rank ? 1.0f : -1.0f;
      const std::uint32_t held = prim::cuda::shared_address(item_.held) +
                                 static_cast<std::uint32_t>((shares ? group_ : 0) * panel_bytes);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8;
        store_word(held, row, i / 2, words::pack(sign * sums[2 * i], sign * sums[2 * i + 1]));
      }
    }
    if constexpr (Shape::low_rank) {
      if (group_ == 1) store_packed(item_.inverse, own);
    }
  }

 private:
  static constexpr int panel_bytes = key_rows::panel_bytes;

  /// Rows times rows.
  static __device__ __forceinline__ void multiply_rows(float (&sums)[32], const unsigned char* a,
                                                       const unsigned char* b) {
    const std::uint64_t of_a = describe<key_rows>(a), of_b = describe<key_rows>(b);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) {
      product::scores(sums, key_rows::along(of_a, i), key_rows::along(of_b, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
  }
  /// Weights times 64 columns of rows.
  static __device__ __forceinline__ void multiply_across(float (&sums)[32], std::uint64_t weights,
                                                         std::uint64_t rows) {
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::tokens / 16; ++i) {
      product::template multiply<false, true>(sums, weight_rows::along(weights, i),
                                              weight_rows::across(rows, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
  }

  /// A to `solved`.
  __device__ __forceinline__ void store_scores(const float (&sums)[32]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_ * 16 + lane_ / 4 + half * 8;
      const float beta = Shape::low_rank ? -1.0f : shared_.beta[row];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i / 2 > warp_) break;
        const int token = i * 8 + lane_ % 4 * 2;
        const float low = beta * sums[4 * i + 2 * half];
        const float high = beta * sums[4 * i + 2 * half + 1];
        *reinterpret_cast<float2*>(&shared_.solved[row][token]) =
            make_float2(token < row ? low : 0.0f, token + 1 < row ? high : 0.0f);
      }
    }
  }
  /// Weights of tokens below `row + more`, rounded; those of others are 0.
  __device__ __forceinline__ void pack_weights(std::uint32_t (&packed)[16], const float (&sums)[32],
                                               int more) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8, token = i / 2 * 8 + lane_ % 4 * 2;
      const float low = sums[2 * i], high = sums[2 * i + 1];
      packed[i] =
          words::pack(token < row + more ? low : 0.0f, token + 1 < row + more ? high : 0.0f);
    }
  }
  __device__ __forceinline__ void store_packed(unsigned char* to,
                                               const std::uint32_t (&packed)[16]) const {
    const std::uint32_t weights = prim::cuda::shared_address(to);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      store_word(weights, warp_ * 16 + lane_ / 4 + i % 2 * 8, i / 2, packed[i]);
    }
  }
  __device__ __forceinline__ void store_weights(unsigned char* to, const float (&sums)[32],
                                                int more) const {
    std::uint32_t packed[16];
    pack_weights(packed, sums, more);
    store_packed(to, packed);
  }
  /// M beta, of low-rank updates M.
  __device__ __forceinline__ void invert() const {
    const std::uint32_t inverse = prim::cuda::shared_address(item_.inverse);
    const auto put = [&](int row, int column, const prim::cuda::accumulator(&sums)[2], float sign) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int token = column * 16 + n * 8 + lane_ % 4 * 2;
        const float low = sign * shared_.beta[token], high = sign * shared_.beta[token + 1];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          store_word(inverse, row * 16 + lane_ / 4 + half * 8, column * 2 + n,
                     words::pack(low * sums[n].at[2 * half], high * sums[n].at[2 * half + 1]));
        }
      }
    };
    sm80::invert_diagonal(shared_.solved, warp_, put);
    prim::cuda::wait_for_threads(2, prim::cuda::warpgroup_size);
    sm80::invert_below(shared_.solved, warp_, put);
  }

  template <class Rows>
  static __device__ __forceinline__ std::uint64_t describe(const unsigned char* rows) {
    return Rows::describe(prim::cuda::shared_address(rows));
  }
  /// Columns 8 tile + l % 4 * 2 and the next of a row.
  __device__ __forceinline__ void store_word(std::uint32_t to, int row, int tile,
                                             std::uint32_t word) const {
    prim::cuda::store_shared_4(
        to +
            weight_rows::offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(tile)) +
            static_cast<std::uint32_t>(lane_ % 4 * 4),
        word);
  }

  memory& shared_;
  walk_item<Shape>& item_;
  int group_, warp_, lane_;
};

}  // namespace tessera::kernels::delta_rule::sm90
