// Gradients of log decays. With e_t = <S_t, a_{t+1} D_{t+1}>, a sum over the values of each channel,
//
//   d_log_a_t = q_t d_q_t - k_t d_k_t + e_t      e_{t-1} = d_log_a_t
//
// from the last token of a period to its first: e at its end is a product of states that were kept
// (chunk_periods.hpp), so that no error outlives a period.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_periods.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

struct decay_gradients {
  static constexpr int threads = 128;  ///< a channel each
  static constexpr int together = 8;   ///< tokens whose loads are under way at a time
  chunked_scan_kernel_args call{};
  chunked_scan_rows d_q{}, d_k{};  ///< of each head of queries
  chunk_periods periods{};
};

/// A period of a sequence and head.
template <class Element>
class decay_period {
  static constexpr int together = decay_gradients::together;
  static constexpr int warps = decay_gradients::threads / 32;

 public:
  __device__ __forceinline__ decay_period(const decay_gradients& args, const sequence& all,
                                          std::int64_t head, float (&sums)[together][warps])
      : args_(args),
        call_(args.call),
        all_(all),
        head_(head),
        kv_head_(recurrence::shared_head(head, args.call.heads, args.call.kv_heads)),
        channel_(static_cast<int>(threadIdx.x)),
        sums_(sums) {}

  __device__ __forceinline__ void run(std::int64_t period) const {
    const std::int64_t first = period * chunk_periods::tokens;
    const std::int64_t end = min(first + chunk_periods::tokens, all_.length);
    float left = 0.0f;
    if (channel_ < call_.keys) {
      const std::int64_t of_head =
          (first_period_of(args_.periods, all_) + period) * call_.heads + head_;
      left = args_.periods.products[of_head * call_.keys + channel_];
      if (end < all_.length) left *= decay_at(end);
    }
    for (std::int64_t step = end; step > first; step -= together) {
      take_tokens(max(step - together, first), static_cast<int>(min(step - first, std::int64_t{together})), left);
    }
  }

 private:
  __device__ __forceinline__ float decay_at(std::int64_t step) const {
    const std::int64_t token = all_.token(step);
    float x = 0.0f;
    if (call_.g_gamma != nullptr) {
      x = call_.g_gamma[all_.number * call_.gamma_sequence + head_ * call_.gamma_head];
    }
    if (call_.g.data != nullptr) {
      x += prim::cuda::number_at(call_.g.data, call_.g.type,
                                 row_of(call_.g, all_.entry, token, head_));
    }
    if (call_.gk.data != nullptr) {
      x += prim::cuda::number_at(call_.gk.data, call_.gk.type,
                                 row_of(call_.gk, all_.entry, token, head_) + channel_);
    }
    return expf(x);
  }
  __device__ __forceinline__ float element_of(const chunked_scan_rows& rows, std::int64_t token,
                                              std::int64_t head) const {
    return prim::cuda::float_of(
        static_cast<const Element*>(rows.data)[row_of(rows, all_.entry, token, head) + channel_]);
  }

  __device__ __forceinline__ void take_tokens(std::int64_t first, int count, float& left) const {
    float of_queries[together] = {}, of_keys[together] = {};
    if (channel_ < call_.keys) {
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (i >= count) continue;
        const std::int64_t token = all_.token(first + i);
        of_queries[i] = element_of(call_.q, token, head_) * element_of(args_.d_q, token, head_);
        const float key = element_of(call_.k, token, kv_head_);
        of_keys[i] = key * (args_.d_k.type == dtype::f32
                                ? static_cast<const float*>(args_.d_k.data)[row_of(
                                      args_.d_k, all_.entry, token, head_) + channel_]
                                : element_of(args_.d_k, token, head_));
      }
    }
    float gradient[together];
#pragma unroll
    for (int i = together - 1; i >= 0; --i) {
      left += of_queries[i] - of_keys[i];  // behind the last token both are 0
      gradient[i] = left;
    }
    if (call_.d_gk.data != nullptr && channel_ < call_.keys) {
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (i >= count) continue;
        const std::int64_t row = row_of(call_.d_gk, all_.entry, all_.token(first + i), head_);
        prim::cuda::put_number(call_.d_gk.data, call_.d_gk.type, row + channel_, gradient[i]);
      }
    }
    if (call_.d_g.data != nullptr) add_channels(first, count, gradient);
  }
  __device__ __forceinline__ void add_channels(std::int64_t first, int count,
                                               const float (&gradient)[together]) const {
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const float sum = prim::cuda::sum_of_warp(gradient[i]);
      if (channel_ % 32 == 0) sums_[i][channel_ / 32] = sum;
    }
    __syncthreads();
    if (channel_ < count) {
      float sum = 0.0f;
      for (const float of_warp : sums_[channel_]) sum += of_warp;
      const std::int64_t row = row_of(call_.d_g, all_.entry, all_.token(first + channel_), head_);
      prim::cuda::put_number(call_.d_g.data, call_.d_g.type, row, sum);
    }
    __syncthreads();
  }

  const decay_gradients& args_;
  const chunked_scan_kernel_args& call_;
  const sequence& all_;
  std::int64_t head_, kv_head_;
  int channel_;
  float (&sums_)[together][warps];
};

/// blockIdx.x is a sequence and head; blocks of blockIdx.y take its periods in turn.
template <class Element>
__global__ void __launch_bounds__(decay_gradients::threads)
    make_decay_gradients(__grid_constant__ const decay_gradients args) {
  __shared__ float sums[decay_gradients::together][decay_gradients::threads / 32];
  const recurrence::tile_item item(blockIdx.x, 1, args.call.heads);
  const sequence all = sequence_of<device_code>(args.call, item.sequence);
  if (all.is_rest) {
    if (blockIdx.y != 0) return;
    const auto clear = [&](const chunked_scan_rows& rows, std::int64_t width) {
      if (rows.data == nullptr) return;
      recurrence::sm80::clear_rows(rows, all, item.head, 0, static_cast<int>(width));
    };
    clear(args.call.d_gk, args.call.keys);
    clear(args.call.d_g, 1);
    return;
  }
  if (!all.has_states) return;
  const decay_period<Element> of_head(args, all, item.head, sums);
  const std::int64_t periods = (all.length + chunk_periods::tokens - 1) / chunk_periods::tokens;
  for (std::int64_t period = blockIdx.y; period < periods; period += gridDim.y) of_head.run(period);
}

}  // namespace tessera::kernels::chunked_scan::sm80
