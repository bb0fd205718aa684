// What those who make weights of a chunk's pairs of tokens share: products of rows with rows, and
// how weights are stored.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm90/panels.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// A warpgroup, of which the calling thread is in warp `warp`.
template <class Element, class Shape>
class pair_products {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;

 protected:
  __device__ __forceinline__ pair_products(int warp, int lane) : warp_(warp), lane_(lane) {}

  /// Starts to multiply rows with rows, a group of products; `adds` to what is there.
  static __device__ __forceinline__ void begin_rows(float (&sums)[32], const unsigned char* a,
                                                    const unsigned char* b, bool adds = false) {
    using product = prim::cuda::warpgroup_product<Element, Shape::tokens>;
    const std::uint64_t of_a = describe_rows<key_rows>(a), of_b = describe_rows<key_rows>(b);
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::keys / 16; ++i) {
      product::scores(sums, key_rows::along(of_a, i), key_rows::along(of_b, i), adds || i > 0);
    }
    prim::cuda::commit_products();
  }
  /// 16 rows and 8 columns of M beta.
  __device__ __forceinline__ void put_inverse(unsigned char* to, const float* beta, int row,
                                              int tile, const prim::cuda::accumulator& sums,
                                              float sign) const {
    const std::uint32_t inverse = prim::cuda::shared_address(to);
    const int token = tile * 8 + lane_ % 4 * 2;
    const float low = sign * beta[token], high = sign * beta[token + 1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_word(inverse, row * 16 + lane_ / 4 + half * 8, tile,
                 words::pack(low * sums.at[2 * half], high * sums.at[2 * half + 1]));
    }
  }

  /// Columns 8 tile + l % 4 * 2 and the next of a row.
  template <class Rows = weight_rows>
  __device__ __forceinline__ void store_word(std::uint32_t to, int row, int tile,
                                             std::uint32_t word) const {
    prim::cuda::store_shared_4(
        to +
            weight_rows::offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(tile)) +
            static_cast<std::uint32_t>(lane_ % 4 * 4),
        word);
  }

  int warp_, lane_;
};

}  // namespace tessera::kernels::delta_rule::sm90
