// Gradients of q, k, beta and log decays of channels, a chunk and value head at a time, from what
// the scans of chunk_back_scans.hpp have left. With the names of chunk_gradients.hpp, q' and k' the
// rows times their scales, and everything of one channel, whose sums G and levels h are those of
// chunk_channels.hpp,
//
//   E_tj = do_t . d_j for j <= t        B_tj = -dr_t . d_j for j < t
//
//   Z_t = 2^h S do_t + sum over j of E_tj k'_j 2^(h - G_j)               d_q' = 2^(G_t - h) Z_t
//
//   X_t = -2^h S dr_t + sum over j of B_tj k'_j 2^(h - G_j)
//
//   Y_j = 2^(G_end - h) D d_j + sum over t of (E_tj q'_t + beta_t B_tj k'_t) 2^(G_t - h)
//
//   d_k'_t = beta_t 2^(G_t - h) X_t + 2^(h - G_t) Y_t
//
//   d_beta_t = dr_t . v_t + sum over channels of k'_t 2^(G_t - h) X_t
//
//   d_log_decay_t = sum over s >= t of d_q'_s q'_s + k'_s (beta_s 2^(G_s - h) X_s
//                   - 2^(h - G_s) Y_s), and of the end
//                   2^G_end <S, D> + sum over j of k'_j 2^(G_end - G_j) D d_j
//
// The rows that a sum of the last is made of are those of 16 bits that X, Y and Z had: then what
// pairs of tokens add to it as rows and as columns cancels. Half of the warps of a block have Z and
// X of 16 channels each, the other half Y: `for each 16 tokens { products with the state; with
// pairs; what they are for each operand }`. (With all tokens at once, sums spilled, and code that
// is read once for each chunk came too late: 10.7 ms where this takes 3.8.)
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_pieces.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_blocks.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_products.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_kept_states.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_pairs.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

template <class Element, class Shape>
class channel_chunk_gradients : channel_blocks<Element, Shape> {
  using base = channel_blocks<Element, Shape>;
  using typename base::memory;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  static constexpr int depths = Shape::keys / 16;
  using base::threads;
  static constexpr int warps = 2 * Shape::warps;

 public:
  __device__ __forceinline__ channel_chunk_gradients(const chunk_back_args& args,
                                                     const delta_rule_output& d_q,
                                                     const delta_rule_output& d_k, memory& shared,
                                                     const sequence& all, std::int64_t head)
      : base(args, shared, all, head), d_q_(d_q), d_k_(d_k) {
    if (threadIdx.x == 0) {
      const std::int64_t key_head =
          recurrence::shared_head(head, call_.value_heads, call_.key_heads);
      shared.rows_q = ordered_rows::of(call_.q, all, key_head);
      shared.rows_k = ordered_rows::of(call_.k, all, key_head);
      shared.rows_v = ordered_rows::of(call_.v, all, head);
      shared.rows_d_out = ordered_rows::of(call_.d_out, all, head);
      shared.rows_g = ordered_rows::of(call_.decay, all, head);
      shared.rows_d_g = ordered_rows::of(call_.d_decay, all, head);
      shared.rows_d_q = ordered_rows::of(d_q, all, has_shares(d_q) ? head : key_head);
      shared.rows_d_k = ordered_rows::of(d_k, all, has_shares(d_k) ? head : key_head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run(std::int64_t chunk) {
    chunk_.first = chunk * Shape::tokens;
    chunk_.count = static_cast<int>(min(all_.length - chunk_.first, std::int64_t{Shape::tokens}));
    chunk_.place = args_.place_of(all_, chunk, head_);
    sums_ = args_.sums_of(chunk_.place, Shape::keys);
    copy();
    prim::cuda::wait_copies<0>();
    __syncthreads();
    scale_rows();
    make_pairs();
    multiply_values<Element, Shape, warps>(shared_, call_, chunk_.first, chunk_.count);
    __syncthreads();
    if (warp_ < Shape::warps) {
      read_all();
    } else {
      write_all();
    }
    __syncthreads();
    channel_gate_gradients<Shape>(args_, shared_, all_, head_, chunk_).store();
    __syncthreads();
  }

  /// Zeros for tokens that belong to no sequence.
  static __device__ void clear(const chunk_back_args& args, const delta_rule_output& d_q,
                               const delta_rule_output& d_k, const sequence& all,
                               std::int64_t head) {
    const delta_rule_kernel_args& call = args.call;
    const std::int64_t key_head = recurrence::shared_head(head, call.value_heads, call.key_heads);
    const int keys = static_cast<int>(call.key_dim);
    recurrence::sm80::clear_rows(d_q, all, has_shares(d_q) ? head : key_head, 0, keys);
    recurrence::sm80::clear_rows(d_k, all, has_shares(d_k) ? head : key_head, 0, keys);
    recurrence::sm80::clear_rows(call.d_beta, all, head, 0, 1);
    if (call.d_decay.data != nullptr) {
      recurrence::sm80::clear_rows(call.d_decay, all, head, 0, keys);
    }
  }

 private:
  __device__ __forceinline__ void copy() const {
    const auto put = [&](unsigned char* to, const void* from, const ordered_rows& rows,
                         std::int64_t first, std::int64_t columns) {
      recurrence::sm80::copy_rows<Element, key_rows, threads>(prim::cuda::shared_address(to), from,
                                                              rows, first, chunk_.count,
                                                              static_cast<int>(columns));
    };
    put(shared_.q, call_.q.data, shared_.rows_q, chunk_.first, call_.key_dim);
    put(shared_.k, call_.k.data, shared_.rows_k, chunk_.first, call_.key_dim);
    put(shared_.d_out, call_.d_out.data, shared_.rows_d_out, chunk_.first, call_.value_dim);
    const ordered_rows of_chunk{args_.row_of_chunk(chunk_.place), args_.values()};
    put(shared_.d_missing, args_.d_missing, of_chunk, 0, args_.values());
    put(shared_.written, args_.written, of_chunk, 0, args_.values());
    copy_piece<sizeof(chunk_gates), threads>(&shared_.tokens, args_.gates + chunk_.place);
    prim::cuda::commit_copies();
    const int thread = static_cast<int>(threadIdx.x), row = thread / depths;
    const int column = thread % depths * 16;
    if (row < chunk_.count && column % 64 == 0 && column < call_.value_dim) {
      prim::cuda::fetch_line(static_cast<const Element*>(call_.v.data) +
                             shared_.rows_v.at(chunk_.first + row) + column);
    }
    kept(warp_ < Shape::warps ? args_.of_s : args_.of_d).prefetch();
  }
  __device__ __forceinline__ kept_channels kept(const uint4* states) const {
    return {args_, states, chunk_.place, depths, tile_};
  }

  /// A thread has two channels of a tile of tokens.
  __device__ __forceinline__ void scale_rows() const {
    constexpr int pairs = Shape::keys / 2;
    static_assert(threads == pairs * chunk_levels);
    const int channel = static_cast<int>(threadIdx.x) % pairs * 2;
    const int tile = static_cast<int>(threadIdx.x) / pairs, first = tile * level_tokens;
    float2 sums[level_tokens];
#pragma unroll
    for (int i = 0; i < level_tokens; ++i) sums[i] = sums_at(first + i, channel);
    const float levels[2] = {level_of(sums[0].x, sums[level_tokens - 1].x),
                             level_of(sums[0].y, sums[level_tokens - 1].y)};
    shared_.levels.put_pair(tile, channel, levels);
#pragma unroll
    for (int i = 0; i < level_tokens; ++i) {
      const int token = first + i;
      const token_scales scales{shared_.tokens.scale_q[token], shared_.tokens.scale_k[token],
                                shared_.tokens.beta[token]};
      const float sum[2] = {sums[i].x, sums[i].y};
      scale_pair<Element, Shape>(shared_, scales, token, channel, sum, levels);
    }
  }
  /// E of half of the warps, B of the others; some share a block of rows.
  __device__ __forceinline__ void make_pairs() const {
    constexpr int sharers = warps / 8;
    const bool reads = warp_ % 2 == 0;
    const int block = warp_ / 2 % 4, share = warp_ / 8;
    prim::cuda::accumulator products[8 / sharers] = {};
    recurrence::sm80::multiply_rows<Element, Shape, sharers>(
        products, prim::cuda::shared_address(reads ? shared_.d_out : shared_.d_missing),
        prim::cuda::shared_address(shared_.written), block, share);
    const std::uint32_t weights =
        prim::cuda::shared_address(reads ? shared_.of_reads : shared_.of_pairs);
    const float sign = reads ? 1.0f : -1.0f;
#pragma unroll
    for (int i = 0; i < 8 / sharers; ++i) {
      const int tile = (i / 2 * sharers + share) * 2 + i % 2;
      if (tile / 2 > block) break;
      const int token = tile * 8 + lane_ % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = block * 16 + half * 8 + lane_ / 4, end = reads ? row + 1 : row;
        const float* const x = products[i].at + 2 * half;
        prim::cuda::store_shared_4(
            weights +
                weight_rows::offset(static_cast<std::uint32_t>(row),
                                    static_cast<std::uint32_t>(tile)) +
                static_cast<std::uint32_t>(lane_ % 4 * 4),
            words::pack(token < end ? sign * x[0] : 0.0f, token + 1 < end ? sign * x[1] : 0.0f));
      }
    }
  }

  /// X and Z of all blocks.
  __device__ __forceinline__ void read_all() const {
    const auto of_s = kept(args_.of_s).template load<depths>(0);
#pragma unroll 1
    for (int block = 0; block < 4; ++block) {
      block_sums sums[2] = {products_.read(of_s, shared_.d_missing, block),
                            products_.read(of_s, shared_.d_out, block)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        products_.multiply_channels(sums[i], [&](int channel) {
          const float front = prim::cuda::exp2_fast(shared_.levels.level(2 * block, channel));
          return i == 0 ? -front : front;
        });
      }
      products_.add_earlier(sums, {shared_.of_pairs, shared_.of_reads}, shared_.writes, block);
      take_read(sums, block);
    }
  }
  /// What they are for keys, decays and beta, and d_q.
  __device__ __forceinline__ void take_read(block_sums (&sums)[2], int block) const {
    float of_q[2] = {}, of_beta[2] = {};
    for_each_pair(block, [&](int half, int n, int row, int channel) {
      float* const x = sums[0].at[n].at + 2 * half;
      float* const z = sums[1].at[n].at + 2 * half;
      const float2 factors = factors_at(row, channel, 1.0f);
      const float2 key = pair_of(shared_.writes, row, channel);
      const float2 missed = pair_of(shared_.k, row, channel);
      const float2 query = pair_of(shared_.q, row, channel);
      sum_of(row, channel) =
          make_float2(fmaf(missed.x, x[0], query.x * z[0]), fmaf(missed.y, x[1], query.y * z[1]));
      of_q[half] = fmaf(query.x, z[0], fmaf(query.y, z[1], of_q[half]));
      x[0] *= factors.x;
      x[1] *= factors.y;
      of_beta[half] = fmaf(key.x * factors.x, x[0], fmaf(key.y * factors.y, x[1], of_beta[half]));
      const float beta = shared_.tokens.beta[row], scale = shared_.tokens.scale_q[row];
      x[0] *= beta;
      x[1] *= beta;
      z[0] *= scale * factors.x;
      z[1] *= scale * factors.y;
    });
    put_dots(0, block, of_q);
    put_dots(1, block, of_beta);
    // All have read rows of the block, and what rows have of all channels is there.
    this->template wait<of_readers, Shape::threads>();
    for_each_pair(block, [&](int half, int n, int row, int channel) {
      const float* const x = sums[0].at[n].at + 2 * half;
      put_pair(shared_.d_missing, row, channel, x[0], x[1]);
    });
    this->template wait<of_all, threads>();
    if (call_.normalizes) {
      remove_along(sums[1], block, {call_.q.data, &shared_.rows_q, shared_.tokens.inverse_q, 0});
    }
    store(sums[1], block, d_q_, shared_.rows_d_q, shared_.d_out);
  }

  /// Y of all blocks.
  __device__ __forceinline__ void write_all() const {
    const auto of_d = kept(args_.of_d).template load<depths>(0);
    multiply_states(of_d);
    const float* const ends = sums_ + (Shape::tokens - 1) * Shape::keys;
    float d_ends[4] = {};
#pragma unroll 1
    for (int block = 0; block < 4; ++block) {
      block_sums sums = products_.read(of_d, shared_.written, block);
      products_.multiply_channels(sums, [&](int channel) {
        return prim::cuda::exp2_fast(ends[channel] - shared_.levels.level(2 * block + 1, channel));
      });
      add_ends(sums, block, d_ends);
      products_.add_later(sums, {{shared_.of_reads, shared_.q}, {shared_.of_pairs, shared_.k}},
                          block);
      take_written(sums, block);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        d_ends[i] += __shfl_xor_sync(prim::cuda::all_lanes, d_ends[i], step);
      }
      if (lane_ < 4) shared_.d_end[products_.channel_of(i / 2) + i % 2] += d_ends[i];
    }
  }
  /// 2^G_end <S, D>: what the state in front is for the sum of log decays at the end.
  __device__ __forceinline__ void multiply_states(const kept_operands<depths>& of_d) const {
    constexpr int together = 2;
    float sums[2] = {};
#pragma unroll
    for (int begin = 0; begin < depths; begin += together) {
      const auto of_s = kept(args_.of_s).template load<together>(begin);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const uint4 &s = of_s.at[i], &d = of_d.at[begin + i];
        sums[0] += product_of<Element>(s.x, d.x) + product_of<Element>(s.y, d.y);
        sums[1] += product_of<Element>(s.z, d.z) + product_of<Element>(s.w, d.w);
      }
    }
    const float* const whole = args_.whole + chunk_.place * Shape::keys;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float sum = prim::cuda::sum_of_quad(sums[n]);
      const int channel = tile_ * 16 + n * 8 + lane_ / 4;
      if (lane_ % 4 == 0) shared_.d_end[channel] = sum * whole[channel];
    }
  }
  /// And what keys of a block are for it; those of its first tile are relative to the level of the
  /// second.
  __device__ __forceinline__ void add_ends(const block_sums& sums, int block,
                                           float (&d_ends)[4]) const {
    for_each_pair(block, [&](int half, int n, int row, int channel) {
      const float2 key = pair_of(shared_.writes, row, channel);
      const float* const x = sums.at[n].at + 2 * half;
      const auto power = [&](int j) {
        return half == 1 ? 1.0f
                         : shared_.levels.single_power(2 * block + 1, 2 * block, channel + j);
      };
      d_ends[2 * n] = fmaf(key.x * power(0), x[0], d_ends[2 * n]);
      d_ends[2 * n + 1] = fmaf(key.y * power(1), x[1], d_ends[2 * n + 1]);
    });
  }
  /// What Y is for keys and decays, and d_k.
  __device__ __forceinline__ void take_written(block_sums& sums, int block) const {
    float of_k[2] = {};
    this->template wait<of_all, threads>();
    for_each_pair(block, [&](int half, int n, int row, int channel) {
      float* const y = sums.at[n].at + 2 * half;
      const float2 inverse = factors_at(row, channel, -1.0f);
      const float2 factors = factors_at(row, channel, 1.0f);
      const float2 key = pair_of(shared_.writes, row, channel);
      const float2 read = pair_of(shared_.d_missing, row, channel);
      float2& d_sum = sum_of(row, channel);
      d_sum = make_float2(fmaf(-key.x, y[0], d_sum.x), fmaf(-key.y, y[1], d_sum.y));
      // k' d_k' = (k' 2^(h - G)) (d_k' 2^(G - h)).
      of_k[half] += key.x * fmaf(factors.x, read.x, y[0]) + key.y * fmaf(factors.y, read.y, y[1]);
      const float scale = shared_.tokens.scale_k[row];
      y[0] = scale * fmaf(inverse.x, y[0], read.x);
      y[1] = scale * fmaf(inverse.y, y[1], read.y);
    });
    if (call_.normalizes) {
      put_dots(2, block, of_k);
      this->template wait<of_writers, Shape::threads>();
      remove_along(sums, block, {call_.k.data, &shared_.rows_k, shared_.tokens.scale_k, 2});
    }
    store(sums, block, d_k_, shared_.rows_d_k, shared_.d_missing);
  }

  using base::all_;
  using base::args_;
  using base::call_;
  using base::chunk_;
  using base::factors_at;
  using base::for_each_pair;
  using base::has_shares;
  using base::head_;
  using base::lane_;
  using base::of_all;
  using base::of_readers;
  using base::of_writers;
  using base::pair_of;
  using base::products_;
  using base::put_dots;
  using base::put_pair;
  using base::remove_along;
  using base::shared_;
  using base::store;
  using base::sum_of;
  using base::sums_;
  using base::sums_at;
  using base::tile_;
  using base::warp_;

  const delta_rule_output &d_q_, &d_k_;
};

template <class Element, class Shape>
__global__ void __launch_bounds__(2 * Shape::threads, Shape::keys > 64 ? 1 : 2)
    make_channel_gradients(__grid_constant__ const chunk_back_args args,
                           __grid_constant__ const delta_rule_output d_q,
                           __grid_constant__ const delta_rule_output d_k) {
  using gradients = channel_chunk_gradients<Element, Shape>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<channel_gradient_memory<Shape>*>(memory);
  walk_chunks<gradients, Shape>(shared, args, d_q, d_k);
}

}  // namespace tessera::kernels::delta_rule::sm80
