// The warpgroup that makes weights of tiles: products of queries and keys, logits, who sees whom,
// running maxima.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// A thread has rows `row(0)` and `row(1)`, and of each 8 keys two neighbours.
template <class Element>
class scorer {
 public:
  __device__ __forceinline__ scorer(const latent_attention_kernel_args& args,
                                    const sm80::row_block& rows, absorbed_memory& memory)
      : args_(args), rows_(rows), memory_(memory) {
    const auto seen = rows.seen(args);
    const auto of_all = seen.keys_of(rows.token(0), rows.token(rows.count - 1)).all;
    all_begin_ = static_cast<int>(of_all.begin);
    all_end_ = static_cast<int>(of_all.end);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto own =
          row(half) < rows.count ? seen.keys_of(rows.token(row(half))) : prim::key_interval{};
      begin_[half] = static_cast<int>(own.begin);
      end_[half] = static_cast<int>(own.end);
    }
  }

  /// Tiles from key `first` on.
  __device__ __forceinline__ void run(int first, int tiles) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % stages;
      multiply(tile, stage);
      weigh(first + tile * tile_keys, stage);
    }
  }

  /// The denominators of rows, then each row's state by one thread: body(row, state).
  template <class Body>
  __device__ __forceinline__ void finish(const Body& body) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = prim::cuda::sum_of_quad(denominator_[half]);
      if (threadIdx.x % 4 == 0 && row(half) < rows_.count) {
        body(row(half), prim::softmax_state{reference_[half], sum});
      }
    }
  }

 private:
  using words = prim::cuda::half_words<Element>;
  using product = prim::cuda::warpgroup_product<Element, tile_keys>;

  /// The maximum that weights stand beside is raised once logits are above it by more than this:
  /// no sum is rescaled for less, and no weight exceeds e^4.
  static constexpr float headroom = 4;

  static __device__ __forceinline__ int row(int half) {
    return static_cast<int>(threadIdx.x % prim::cuda::warpgroup_size / 4) / 8 * 16 + half * 8 +
           static_cast<int>(threadIdx.x % 32 / 4);
  }
  static __device__ __forceinline__ int column(int i) {
    return i / 4 * 8 + static_cast<int>(threadIdx.x % 4 * 2) + i % 2;
  }
  static constexpr int half_of(int i) {
    return i / 2 % 2;
  }

  /// Scores of a tile: of each of its parts, once it is there. Afterwards nobody reads its rope
  /// parts any more.
  __device__ __forceinline__ void multiply(int tile, int stage) {
    const std::uint64_t a =
        prim::cuda::describe_panels(prim::cuda::shared_address(memory_.queries), panel_bytes);
    const std::uint64_t b =
        prim::cuda::describe_panels(prim::cuda::shared_address(memory_.keys[stage]), panel_bytes);
    const auto add = [&](int panel, bool first) {
#pragma unroll
      for (int k = 0; k < prim::cuda::panel_columns / 16; ++k) {
        const auto step = prim::cuda::panel_step(panel * panel_bytes + k * 32);
        product::scores(scores_, a + step, b + step, !(first && k == 0));
      }
    };
    const auto wait = [&](int part) {
      prim::cuda::wait_for_phase(prim::cuda::shared_address(&memory_.arrived[stage][part]),
                                 phase_of(tile));
    };
    wait(0);
    prim::cuda::begin_products();
    add(latent_panels, true);
#pragma unroll
    for (int panel = 0; panel < latent_panels / 2; ++panel) add(panel, false);
    prim::cuda::commit_products();
    wait(1);
    prim::cuda::begin_products();
#pragma unroll
    for (int panel = latent_panels / 2; panel < latent_panels; ++panel) add(panel, false);
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(scores_);
    prim::cuda::wait_for_threads(score_barrier, prim::cuda::warpgroup_size);
  }

  __device__ __forceinline__ void weigh(int key0, int stage) {
    const bool whole = key0 >= all_begin_ && key0 + tile_keys <= all_end_;
    float most[2] = {prim::minus_infinity, prim::minus_infinity};
    make_logits(key0, whole, most);
    if (!whole) clear_nonfinite(prim::cuda::shared_address(memory_.keys[stage]));
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_tile = prim::cuda::maximum_of_quad(most[half]);
      const float before = reference_[half];
      float factor = 1;
      if (of_tile > before + headroom) {
        reference_[half] = of_tile;
        factor = sm80::exponential(before - of_tile);
        denominator_[half] *= factor;
      }
      shift[half] = prim::finite_maximum(reference_[half]);
      if (threadIdx.x % 4 == 0) memory_.factors[stage][row(half)] = factor;
    }
    // As panels have it: 16-byte chunk c of row r lies at c ^ (r % 8).
    const std::uint32_t weights = prim::cuda::shared_address(memory_.keys[stage]) +
                                  latent_panels * panel_bytes + threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < tile_keys / 2; i += 2) {
      const int half = half_of(i);
      const float low = sm80::exponential(scores_[i] - shift[half]);
      const float high = sm80::exponential(scores_[i + 1] - shift[half]);
      denominator_[half] += low + high;
      const auto r = static_cast<std::uint32_t>(row(half));
      prim::cuda::store_shared_4(
          weights + r * prim::cuda::panel_row_bytes + (static_cast<unsigned>(i) / 4 ^ r % 8) * 16,
          words::pack(low, high));
    }
    prim::cuda::show_writes_to_async_units();
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      prim::cuda::arrive(prim::cuda::shared_address(&memory_.weighed[stage]));
    }
  }

  __device__ __forceinline__ void make_logits(int key0, bool whole, float (&most)[2]) {
    const bool capped = args_.soft_cap > 0;
    const float scale = capped ? args_.softmax_scale / args_.soft_cap : args_.softmax_scale;
#pragma unroll
    for (float& x : scores_) x *= scale;
    if (capped) {
#pragma unroll
      for (float& x : scores_) x = args_.soft_cap * prim::cuda::tanh_fast(x);
    }
    if (!whole) {
#pragma unroll
      for (int i = 0; i < tile_keys / 2; ++i) {
        const int key = key0 + column(i), half = half_of(i);
        if (key < begin_[half] || key >= end_[half]) scores_[i] = prim::minus_infinity;
      }
    }
#pragma unroll
    for (int i = 0; i < tile_keys / 2; ++i) most[half_of(i)] = fmaxf(most[half_of(i)], scores_[i]);
  }

  /// Zeros in the place of latents that are not finite: as values they would reach rows that do not
  /// see them. Rows that do have no numbers as weights already.
  static __device__ __forceinline__ void clear_nonfinite(std::uint32_t tile) {
    constexpr std::uint32_t chunks = widest_latent / 8;
#pragma unroll 1
    for (std::uint32_t at = threadIdx.x % prim::cuda::warpgroup_size; at < tile_keys * chunks;
         at += prim::cuda::warpgroup_size) {
      const std::uint32_t address = tile + chunk_offset(at / chunks, at % chunks);
      std::uint32_t four[4];
      prim::cuda::load_shared_16(four, address);
      bool any = false;
#pragma unroll
      for (std::uint32_t& word : four) {
        any = any || prim::cuda::any_not_finite<Element>(word);
        word = prim::cuda::finite_only<Element>(word);
      }
      if (any) prim::cuda::store_shared_16(address, four);
    }
  }

  const latent_attention_kernel_args& args_;
  const sm80::row_block& rows_;
  absorbed_memory& memory_;
  int begin_[2], end_[2];    ///< of the keys that a row sees
  int all_begin_, all_end_;  ///< and of those that all rows of the block see
  float scores_[tile_keys / 2];
  float reference_[2] = {prim::minus_infinity, prim::minus_infinity};
  float denominator_[2] = {0, 0};
};

}  // namespace tessera::kernels::latent_attention::sm90
