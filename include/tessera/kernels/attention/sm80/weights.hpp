// The optional output that is as large as the score matrix: attention weights. Writing them is what
// takes time, so the kernel is simple: one warp a row, f32 arithmetic.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/dropout.hpp>
#include <tessera/kernels/attention/sm80/epilogue.hpp>
#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int weights_warps = 4;  ///< rows of a thread block

/// Row `blockIdx.x * weights_warps + warp` of all (entry, head, query), dense tensors only.
template <class Kernel, class Hooks>
class weights_row {
  using traits = kernel_traits<Kernel, 0, any_tokens>;
  using row_mod = score_mod_row<traits, Hooks>;
  using access = typename traits::access;
  using stored = typename traits::stored;

 public:
  __device__ weights_row(const launch_args& args, const Hooks& hooks, std::int64_t flat)
      : args_(args), hooks_(hooks) {
    const attention_kernel_args& call = args.call;
    at_.query = flat % call.q_len;
    at_.head = static_cast<int>(flat / call.q_len % call.q_heads);
    at_.batch = flat / call.q_len / call.q_heads;
    seq_ = sequence_of(call, at_.batch);
    const auto visible = visibility_of<traits::config.mask>(call, seq_);
    if (at_.query < seq_.q_len) keys_ = visible.keys_of(at_.query);
    at_.query_position = at_.query + visible.mask.offset;
  }

  __device__ void run() {
    const attention_kernel_args& call = args_.call;
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    float maximum = prim::minus_infinity;
    for (std::int64_t j = keys_.begin + lane; j < keys_.end; j += prim::cuda::warp_size) {
      maximum = fmaxf(maximum, logit(j));
    }
    for (int step = 16; step > 0; step /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(prim::cuda::all_lanes, maximum, step));
    }
    prim::softmax_state state{maximum, 0.0f};
    const float shift = prim::finite_maximum(maximum);
    for (std::int64_t j = keys_.begin + lane; j < keys_.end; j += prim::cuda::warp_size) {
      state.denominator += expf(logit(j) - shift);
    }
    for (int step = 16; step > 0; step /= 2) {
      state.denominator += __shfl_xor_sync(prim::cuda::all_lanes, state.denominator, step);
    }
    const prim::softmax_result result = finished(call, at_.head, state);
    const float scale = result.weight_scale * (call.dropout ? call.dropout_scale : 1.0f);
    for (std::int64_t j = lane; j < call.kv_len; j += prim::cuda::warp_size) {
      float weight = 0.0f;
      if (j >= keys_.begin && j < keys_.end) {
        weight = expf(logit(j) - result.shift) * scale;
        const query_row row{static_cast<int>(at_.query), at_.head};
        if (!keeps_weight(args_, static_cast<int>(at_.batch), row, static_cast<int>(j))) {
          weight = 0.0f;
        }
      }
      write(j, weight);
    }
  }

 private:
  __device__ float logit(std::int64_t key) {
    const attention_kernel_args& call = args_.call;
    const auto* q = token_row<const stored>(call.q, call.q_strides, seq_, at_.query, at_.head);
    const auto* k =
        token_row<const stored>(call.k, call.k_strides, seq_, key, args_.group.quotient(at_.head));
    float product = 0.0f;
    for (int d = 0; d < call.head_dim; ++d) {
      product = fmaf(access::load(q[d]), access::load(k[d]), product);
    }
    if (args_.plain) product *= call.softmax_scale;
    float logits[1] = {product};
    row_mod::apply_row(
        args_, hooks_, logits, at_, [&](int) { return static_cast<int>(key); }, keys_, true);
    return logits[0];
  }

  __device__ void write(std::int64_t key, float weight) {
    const attention_kernel_args& call = args_.call;
    const std::int64_t offset = at_.batch * call.weights_batch + at_.head * call.weights_head +
                                at_.query * call.weights_row + key;
    if (call.weights_type == dtype::f32) {
      static_cast<float*>(call.weights)[offset] = weight;
    } else {
      static_cast<stored*>(call.weights)[offset] = access::rounded(weight);
    }
  }

  const launch_args& args_;
  const Hooks& hooks_;
  position at_{};
  prim::sequence seq_{};
  prim::key_interval keys_{};
};

template <class Kernel, class Hooks>
__global__ void write_weights(const __grid_constant__ launch_args args,
                              const __grid_constant__ Hooks hooks) {
  const std::int64_t flat =
      static_cast<std::int64_t>(blockIdx.x) * weights_warps + threadIdx.x / prim::cuda::warp_size;
  if (flat >= args.call.batch * args.call.q_heads * args.call.q_len) return;
  weights_row<Kernel, Hooks>(args, hooks, flat).run();
}

}  // namespace tessera::kernels::attention::sm80
