// Gradients of beta and log decays of a chunk's tokens, from the sums that chunk_gradients.hpp
// leaves in shared memory; and what their sums are for A_log and dt_bias.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gradient_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Steps of a chunk, and its number among all value heads.
struct chunk_place {
  std::int64_t first = 0, place = 0;
  int count = 0;
};

/// Of a chunk and value head, by one warp.
template <class Shape>
class chunk_gate_gradients {
 public:
  __device__ __forceinline__ chunk_gate_gradients(const chunk_back_args& args,
                                                  gradient_memory<Shape>& shared,
                                                  const sequence& all, std::int64_t head,
                                                  const chunk_place& chunk)
      : args_(args),
        call_(args.call),
        shared_(shared),
        all_(all),
        head_(head),
        first_(chunk.first),
        place_(chunk.place),
        count_(chunk.count),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Gradients of beta and decays, two tokens a lane, and what is along k.
  __device__ __forceinline__ void store() {
    const chunk_gates& gates = shared_.gates;
    float of_later[2], of_earlier[2], d_beta[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * lane_ + i;
      const float beta = gates.beta[row], read = shared_.dot_of(1, row),
                  both = shared_.dot_of(2, row);
      const float of_pairs = shared_.row_sums[1][row];
      const float columns[2] = {shared_.column_of(0, row), shared_.column_of(1, row)};
      d_beta[i] = shared_.values[row] - read + of_pairs;
      of_earlier[i] = both + beta * read;
      of_later[i] = shared_.dot_of(0, row) - beta * read +
                    (shared_.row_sums[0][row] + beta * of_pairs - columns[0] - columns[1]);
      const float inverse = gates.scale_k[row];
      shared_.along_k[row] =
          inverse * inverse *
          (both + columns[0] + shared_.diagonal[row] + columns[1] + beta * of_pairs);
    }
    float whole = 0.0f;
#pragma unroll
    for (int warp = 0; warp < Shape::warps; ++warp) whole += shared_.state_dots[warp];
    whole *= gates.decays.whole;
    // Sums over the tokens of lanes from this one on, and of those before it.
    float later = of_later[0] + of_later[1], earlier = of_earlier[0] + of_earlier[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float right =
          __shfl_down_sync(prim::cuda::all_lanes, later, static_cast<unsigned>(step));
      const float left =
          __shfl_up_sync(prim::cuda::all_lanes, earlier, static_cast<unsigned>(step));
      if (lane_ + step < 32) later += right;
      if (lane_ >= step) earlier += left;
    }
    earlier = __shfl_up_sync(prim::cuda::all_lanes, earlier, 1);
    if (lane_ == 0) earlier = 0.0f;
    const float d_decay[2] = {whole + later + earlier,
                              whole + (later - of_later[0]) + (earlier + of_earlier[0])};
    double of_bias = 0.0, of_rate = 0.0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * lane_ + i < count_) {
        store_token(first_ + 2 * lane_ + i, d_beta[i], d_decay[i], of_bias, of_rate);
      }
    }
    if (args_.gate_sums == nullptr) return;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      of_bias += __shfl_xor_sync(prim::cuda::all_lanes, of_bias, step);
      of_rate += __shfl_xor_sync(prim::cuda::all_lanes, of_rate, step);
    }
    if (lane_ != 0) return;
    args_.gate_sums[place_ * 2] = of_bias;
    args_.gate_sums[place_ * 2 + 1] = of_rate;
  }

 private:
  /// Through the raw gates.
  __device__ __forceinline__ void store_token(std::int64_t step, float d_beta, float d_decay,
                                              double& of_bias, double& of_rate) const {
    const std::int64_t token = all_.token(step);
    const auto number = [&](const delta_rule_input& of) {
      return prim::cuda::number_at(of.data, of.type, row_of(of, all_.entry, token, head_));
    };
    if (call_.beta_is_raw) {
      const float share = sigmoid<device_code>(number(call_.beta));
      d_beta *= call_.beta_most * share * (1.0f - share);
    }
    prim::cuda::put_number(call_.d_beta.data, call_.d_beta.type,
                           row_of(call_.d_beta, all_.entry, token, head_), d_beta);
    if (call_.decay.data == nullptr) return;
    if (call_.gate.raw) {
      const head_gate<device_code> gate(call_.gate, head_);
      const gate_slopes slopes = gate.slopes(number(call_.decay), 0);
      of_rate += static_cast<double>(slopes.by_a_log * d_decay);
      d_decay *= slopes.by_raw;
      of_bias += static_cast<double>(d_decay);
    }
    if (call_.d_decay.data == nullptr) return;
    prim::cuda::put_number(call_.d_decay.data, call_.d_decay.type,
                           row_of(call_.d_decay, all_.entry, token, head_), d_decay);
  }

  const chunk_back_args& args_;
  const delta_rule_kernel_args& call_;
  gradient_memory<Shape>& shared_;
  const sequence& all_;
  std::int64_t head_, first_, place_;
  int count_, lane_;
};

/// Gradients of A_log and dt_bias: sums over chunks, those of no sequence being 0. A block for each
/// value head.
template <class Element>
__global__ void __launch_bounds__(256)
    add_chunk_gates(__grid_constant__ const chunk_back_args args, std::int64_t places) {
  __shared__ double sums[2][256];
  const int own = static_cast<int>(threadIdx.x);
  double of_bias = 0.0, of_rate = 0.0;
  for (std::int64_t at = own * args.call.value_heads + blockIdx.x; at < places;
       at += 256 * args.call.value_heads) {
    of_bias += args.gate_sums[at * 2];
    of_rate += args.gate_sums[at * 2 + 1];
  }
  sums[0][own] = of_bias;
  sums[1][own] = of_rate;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (own >= half) continue;
    sums[0][own] += sums[0][own + half];
    sums[1][own] += sums[1][own + half];
  }
  if (own != 0) return;
  const delta_rule_kernel_args& call = args.call;
  const std::int64_t head = blockIdx.x;
  if (call.d_bias != nullptr) call.d_bias[head * call.d_bias_head] = static_cast<float>(sums[0][0]);
  if (call.d_a_log != nullptr) {
    call.d_a_log[head * call.d_a_log_head] = static_cast<float>(sums[1][0]);
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
