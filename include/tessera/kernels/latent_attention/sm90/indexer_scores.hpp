// Scores of an indexer with wgmma, for the tokens of a part of an entry:
//
//   for each four tokens, for each 64 index heads { products of 256 keys; scores += weights
//   relu(products) }
//
// A block has 256 keys, which stay in shared memory, 128 keys a warpgroup, and 64 tokens. One
// warp brings their index queries, another their weights. While products of one warpgroup are under
// way, those of the other become scores.
#pragma once

#include <array>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_selected.hpp>
#include <tessera/kernels/latent_attention/sm80/indexer_scores.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/queue.hpp>
#include <tessera/kernels/latent_attention/sm90/indexer_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// One warpgroup of a block: 128 keys against all of its tokens.
template <class Element>
class indexer_warpgroup {
  using plan = wide_indexer<Element>;
  using product = prim::cuda::warpgroup_product<Element, plan::columns>;

 public:
  __device__ __forceinline__ indexer_warpgroup(const latent_attention_kernel_args& args,
                                               const selection_memory& memory,
                                               const token_part& part, const indexer_block& block,
                                               typename plan::memory& shared, int warpgroup)
      : args_(args),
        memory_(memory),
        part_(part),
        block_(block),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % prim::cuda::warp_size),
        warpgroup_(warpgroup),
        row_(warpgroup * plan::keys_of_warpgroup +
             static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size / 32 * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    prim::cuda::wait_for_phase(prim::cuda::shared_address(&shared_.of_k), 0);
    const int chunks = index_chunks(args_.indexer);
    const int steps = index_steps(args_.indexer, block_);
    float products[plan::sums];
    // The second warpgroup begins once the first has products, and stays that much behind.
    if (warpgroup_ == 1) prim::cuda::wait_for_threads(1, both);
#pragma unroll 1
    for (int at = 0; at < steps; ++at) {
      place_.wait_full(barriers());
#pragma unroll
      for (int m = 0; m < plan::blocks; ++m) {
        multiply(products, m);
        prim::cuda::wait_products<0>();
        prim::cuda::keep_in_place(products);
        if (m == 0 && at == 0 && warpgroup_ == 0) prim::cuda::arrive_for_threads(1, both);
        take(products, m, at, chunks);
      }
      release();
      place_.advance();
    }
  }

 private:
  static constexpr int both = plan::warpgroups * prim::cuda::warpgroup_size;

  /// Products of 64 keys with the heads at hand.
  __device__ __forceinline__ void multiply(float (&products)[plan::sums], int m) {
    const std::uint64_t a = prim::cuda::describe_panels(
        prim::cuda::shared_address(shared_.k) +
            (warpgroup_ * plan::keys_of_warpgroup + m * 64) * prim::cuda::panel_row_bytes,
        16);
    const std::uint64_t b =
        prim::cuda::describe_panels(prim::cuda::shared_address(&shared_.q[place_.stage()]), 16);
    prim::cuda::begin_products();
#pragma unroll
    for (int step = 0; step < plan::steps; ++step) {
      const int inside = step % 4 * 32;
      product::scores(products, a + prim::cuda::panel_step(step / 4 * plan::k_panel_bytes + inside),
                      b + prim::cuda::panel_step(step / 4 * plan::panel_bytes + inside), step != 0);
    }
    prim::cuda::commit_products();
  }

  /// Products of the place at hand become scores.
  __device__ __forceinline__ void take(const float (&products)[plan::sums], int m, int at,
                                       int chunks) {
    const float* const weights = shared_.weights[place_.stage()] + lane_ % 4 * 2;
    float(&scores)[2 * plan::together] = scores_[m];
#pragma unroll
    for (int i = 0; i < plan::columns / 8; ++i) {
      const float2 weight = *reinterpret_cast<const float2*>(weights + 8 * i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const own = products + 4 * i + 2 * half;
        float& score = scores[i / (plan::heads / 8) * 2 + half];
        score = fmaf(weight.x, fmaxf(own[0], 0.0f), score);
        score = fmaf(weight.y, fmaxf(own[1], 0.0f), score);
      }
    }
    // Or nvcc adds up later, when products are under way that take the place of these.
    prim::cuda::keep_in_place(scores);
    if (at % chunks == chunks - 1) write(scores, m, block_.first + at / chunks * plan::together);
  }

  /// Sums of four lanes, of which each ends with those of one row of every second token.
  __device__ __forceinline__ void write(float (&scores)[2 * plan::together], int m, int token) {
    const bool odd = (lane_ & 1) != 0, second = (lane_ & 2) != 0;
    const auto gather = [](bool upper, float low, float up, int lanes) {
      return (upper ? up : low) + __shfl_xor_sync(prim::cuda::all_lanes, upper ? low : up, lanes);
    };
    const int row = row_ + m * 64 + (odd ? 8 : 0);
    const std::int64_t key = block_.key0 + row;
    const float key_scale = shared_.key_scales[row];
    token += second ? 1 : 0;
#pragma unroll
    for (int pair = 0; pair < plan::together / 2; ++pair) {
      const float* const own = scores + 4 * pair;
      const float of_first = gather(odd, own[0], own[1], 1);
      const float of_second = gather(odd, own[2], own[3], 1);
      const float sum = gather(second, of_first, of_second, 2);
      const int at = token + 2 * pair;
      if (key < memory_.score_row && at < block_.last) {
        memory_.scores[at * memory_.score_row + key] = sm80::ordered(key_scale * sum);
      }
    }
#pragma unroll
    for (float& score : scores) score = 0.0f;
  }

  __device__ __forceinline__ void release() {
    __syncwarp();
    if (lane_ == 0) place_.release(barriers());
  }
  __device__ __forceinline__ std::uint32_t barriers() const {
    return prim::cuda::shared_address(&shared_.of_q);
  }

  const latent_attention_kernel_args& args_;
  const selection_memory& memory_;
  const token_part& part_;
  const indexer_block& block_;
  typename plan::memory& shared_;
  const int lane_, warpgroup_, row_;  ///< the first of the lane's rows in the block
  float scores_[plan::blocks][2 * plan::together] = {};
  prim::cuda::ring_place<plan::stages> place_;
};

/// Index queries of the block's tokens, 64 heads of four of them after the other. By one warp.
template <class Element>
__device__ __forceinline__ void bring_index_queries(
    const latent_attention_kernel_args& args, const typename wide_indexer<Element>::maps& maps,
    const token_part& part, const indexer_block& block,
    typename wide_indexer<Element>::memory& shared) {
  using plan = wide_indexer<Element>;
  if (threadIdx.x != 0) return;
  const std::uint32_t barriers = prim::cuda::shared_address(&shared.of_q);
  prim::cuda::ring_place<plan::stages> place;
  const std::uint32_t of_k = prim::cuda::shared_address(&shared.of_k);
  prim::cuda::arrive_expecting(of_k, plan::panels * plan::k_panel_bytes);
#pragma unroll
  for (int panel = 0; panel < plan::panels; ++panel) {
    prim::cuda::copy_box(prim::cuda::shared_address(shared.k) + panel * plan::k_panel_bytes, maps.k,
                         of_k,
                         {panel * prim::cuda::panel_columns, 0, static_cast<int>(block.key0),
                          static_cast<int>(part.entry)},
                         prim::cuda::cache_hint::evict_normal);
  }
  for (int token = block.first; token < block.last; token += plan::together) {
    for (std::int64_t head0 = 0; head0 < args.indexer.heads; head0 += plan::heads) {
      place.wait_empty(barriers);
      const std::uint32_t full = place.full(barriers);
      prim::cuda::arrive_expecting(full, plan::panels * plan::panel_bytes);
#pragma unroll
      for (int panel = 0; panel < plan::panels; ++panel) {
        prim::cuda::copy_box(
            prim::cuda::shared_address(shared.q[place.stage()]) + panel * plan::panel_bytes, maps.q,
            full,
            {panel * prim::cuda::panel_columns, static_cast<int>(head0),
             static_cast<int>(part.first) + token, static_cast<int>(part.entry)},
            prim::cuda::cache_hint::evict_normal);
      }
      place.advance();
    }
  }
}

/// Their weights, asked for one step ahead, and scales of the block's keys. By one warp, eight a
/// lane.
template <class Element>
__device__ __forceinline__ void bring_index_weights(
    const latent_attention_kernel_args& args, const token_part& part, const indexer_block& block,
    typename wide_indexer<Element>::memory& shared) {
  using plan = wide_indexer<Element>;
  constexpr int own = plan::columns / prim::cuda::warp_size;
  const key_indexer& of = args.indexer;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const std::uint32_t barriers = prim::cuda::shared_address(&shared.of_q);
  const int chunks = index_chunks(of), steps = index_steps(of, block);
  const auto* const scales = static_cast<const float*>(of.q_scale.data);
  // Scales are multiplied when they are stored: a product here would wait for each load.
  struct asked {
    float weight[own], scale[own];
  };
  const auto read = [&](int at, asked& to) {
    if (at >= steps) return;
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int column = lane + i * prim::cuda::warp_size;
      const int in_block = block.first + at / chunks * plan::together + column / plan::heads;
      const std::int64_t token = part.first + in_block;
      const std::int64_t head = at % chunks * std::int64_t{plan::heads} + column % plan::heads;
      const bool held = in_block < block.last && head < of.heads;
      to.weight[i] = held ? prim::cuda::number_at(of.weights.data, of.weights.type,
                                                  of.weights.at(part.entry, token) + head)
                          : 0.0f;
      to.scale[i] =
          held && scales != nullptr ? scales[of.q_scale.at(part.entry, token, head)] : 1.0f;
    }
  };
  for (int row = lane; row < plan::keys; row += prim::cuda::warp_size) {
    const std::int64_t key = block.key0 + row;
    shared.key_scales[row] = key < args.length ? sm80::index_key_scale(of, part.entry, key) : 1.0f;
  }
  prim::cuda::ring_place<plan::stages> place;
  asked now, next;
  read(0, now);
  for (int at = 0; at < steps; ++at) {
    read(at + 1, next);
    place.wait_empty(barriers);
#pragma unroll
    for (int i = 0; i < own; ++i) {
      shared.weights[place.stage()][lane + i * prim::cuda::warp_size] =
          now.weight[i] * now.scale[i];
    }
    now = next;
    __syncwarp();
    if (lane == 0) prim::cuda::arrive(place.full(barriers));
    place.advance();
  }
}

template <class Element>
__global__ void __launch_bounds__(wide_indexer_shape::threads, 1)
    score_part_wide(const __grid_constant__ latent_attention_kernel_args args,
                    const __grid_constant__ typename wide_indexer<Element>::maps maps,
                    const __grid_constant__ selection_memory memory,
                    const __grid_constant__ token_part part) {
  using plan = wide_indexer<Element>;
  extern __shared__ __align__(1024) unsigned char indexer_bytes[];
  auto& shared = *reinterpret_cast<typename plan::memory*>(indexer_bytes);
  const indexer_block block = indexer_block_of(args, part);
  if (block.first >= block.last) return;
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    shared.of_q.init(2, plan::warpgroups * 4);
    prim::cuda::init_barrier(prim::cuda::shared_address(&shared.of_k), 1);
    prim::cuda::publish_barriers();
    prim::cuda::show_writes_to_async_units();
  }
  __syncthreads();
  if (warpgroup == 0) {
    prim::cuda::give_registers<plan::producer_registers>();
    const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
    if (warp == 0) bring_index_queries<Element>(args, maps, part, block, shared);
    if (warp == 1) bring_index_weights<Element>(args, part, block, shared);
  } else {
    prim::cuda::take_registers<plan::consumer_registers>();
    indexer_warpgroup<Element>(args, memory, part, block, shared, warpgroup - 1).run();
  }
}

/// Scores of an indexer with wgmma; by `mma.sync` where the copy unit cannot address the index
/// queries, they are of f8_e5m2, or products count by their negatives.
template <class Kernel>
struct indexer_kernels {
  using element = element_t<Kernel::config.type>;
  using narrow = sm80::indexer_kernels<Kernel>;
  static constexpr int tokens = wide_indexer_shape::tokens, keys = wide_indexer_shape::keys;

  static auto entries() {
    const auto others = narrow::entries();
    return std::array{
        cuda::entry_of(&score_part_wide<element>, wide_indexer<element>::shared_bytes),
        cuda::entry_of(&score_part_wide<f8_e4m3>, wide_indexer<f8_e4m3>::shared_bytes), others[0],
        others[1]};
  }
  static void score(const latent_attention_kernel_args& args, const selection_memory& memory,
                    const token_part& part, sm80::queue& to) {
    const dtype type = args.indexer.q.type;
    if (type == Kernel::config.type && score_wide<element>(args, memory, part, to)) return;
    if (type == dtype::f8_e4m3 && score_wide<f8_e4m3>(args, memory, part, to)) return;
    narrow::score(args, memory, part, to);
  }

 private:
  template <class Element>
  static bool score_wide(const latent_attention_kernel_args& args, const selection_memory& memory,
                         const token_part& part, sm80::queue& to) {
    using plan = wide_indexer<Element>;
    typename plan::maps maps;
    if (!plan::map_all(maps, args)) return false;
    to.enqueue(&score_part_wide<Element>,
               ceil_div(args.length, keys) * ceil_div(part.count, tokens), plan::threads,
               plan::shared_bytes, args, maps, memory, part);
    return true;
  }
};

}  // namespace tessera::kernels::latent_attention::sm90
