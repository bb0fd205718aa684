// Gradients of beta and of log decays of channels of a chunk's tokens, from what
// chunk_channel_gradients.hpp leaves in shared memory; and what their sums are for A_log and
// dt_bias.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gate_gradients.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Each thread of a block has a channel of some of the tokens.
template <class Shape>
class channel_gate_gradients {
  using memory = channel_gradient_memory<Shape>;
  static constexpr int parts = 4;
  static constexpr int own_tokens = Shape::tokens / parts;
  static_assert(2 * Shape::threads == parts * Shape::keys);

 public:
  __device__ __forceinline__ channel_gate_gradients(const chunk_back_args& args, memory& shared,
                                                    const sequence& all, std::int64_t head,
                                                    const chunk_place& chunk)
      : args_(args),
        call_(args.call),
        shared_(shared),
        all_(all),
        head_(head),
        chunk_(chunk),
        gate_(args.call.gate, head),
        thread_(static_cast<int>(threadIdx.x)),
        channel_(thread_ % Shape::keys),
        part_(thread_ / Shape::keys) {}

  __device__ __forceinline__ void store() {
    if (thread_ < chunk_.count) store_beta(thread_);
    float own = 0.0f;
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) own += shared_.d_sum[part_ * own_tokens + i][channel_];
    shared_.parts[part_][channel_] = own;
    __syncthreads();
    float later = shared_.d_end[channel_];
    for (int part = parts - 1; part > part_; --part) later += shared_.parts[part][channel_];
    double sums[2] = {};
    if (channel_ < call_.key_dim) store_decays(later, sums);
    if (args_.gate_sums == nullptr) return;
    shared_.gates()[part_][0][channel_] = sums[0];
    shared_.gates()[part_][1][channel_] = sums[1];
    __syncthreads();
    if (part_ > 1) return;
    // Of dt_bias by the first part, of A_log by the second.
    double sum = 0.0;
    for (int part = 0; part < parts; ++part) sum += shared_.gates()[part][part_][channel_];
    args_.gate_sums[(chunk_.place * 2 + part_) * Shape::keys + channel_] = sum;
  }

 private:
  __device__ __forceinline__ void store_beta(int row) const {
    const std::int64_t token = all_.token(chunk_.first + row);
    float d_beta = shared_.values[row] + shared_.dot_of(1, row);
    if (call_.beta_is_raw) {
      const float share = sigmoid<device_code>(prim::cuda::number_at(
          call_.beta.data, call_.beta.type, row_of(call_.beta, all_.entry, token, head_)));
      d_beta *= call_.beta_most * share * (1.0f - share);
    }
    prim::cuda::put_number(call_.d_beta.data, call_.d_beta.type,
                           row_of(call_.d_beta, all_.entry, token, head_), d_beta);
  }
  /// From the last of the thread's tokens to the first, behind which the sum is `sum`: `sums` are
  /// for dt_bias and A_log.
  __device__ __forceinline__ void store_decays(float sum, double (&sums)[2]) const {
    const int first = part_ * own_tokens, count = min(chunk_.count - first, own_tokens);
#pragma unroll
    for (int i = own_tokens - 1; i >= 0; --i) {
      float& gradient = shared_.d_sum[first + i][channel_];
      sum += gradient;
      gradient = sum;
    }
    if (call_.gate.raw) open_gates(first, count, sums);
    if (call_.d_decay.data == nullptr) return;
    const ordered_rows rows = shared_.rows_d_g;
    const std::int64_t at = rows.at(chunk_.first + first) + channel_;
    prim::cuda::with_elements(call_.d_decay.data, call_.d_decay.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        elements[at + i * rows.step] = prim::nearest<element>(shared_.d_sum[first + i][channel_]);
      }
    });
  }
  /// Through the raw gates.
  __device__ __forceinline__ void open_gates(int first, int count, double (&sums)[2]) const {
    const std::int64_t at = shared_.rows_g.at(chunk_.first + first) + channel_;
#pragma unroll 2
    for (int i = 0; i < count; ++i) {
      float& gradient = shared_.d_sum[first + i][channel_];
      const gate_slopes slopes = gate_.slopes(
          prim::cuda::number_at(call_.decay.data, call_.decay.type, at + i * shared_.rows_g.step),
          channel_);
      sums[1] += static_cast<double>(slopes.by_a_log * gradient);
      gradient *= slopes.by_raw;
      sums[0] += static_cast<double>(gradient);
    }
  }

  const chunk_back_args& args_;
  const delta_rule_kernel_args& call_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_;
  const chunk_place& chunk_;
  head_gate<device_code> gate_;
  int thread_, channel_, part_;
};

/// Gradients of A_log and dt_bias: sums over chunks, those of no sequence being 0, of A_log over
/// channels too. A block of 1024 threads for each value head.
template <class Element, int Keys>
__global__ void __launch_bounds__(1024)
    add_channel_gates(__grid_constant__ const chunk_back_args args, std::int64_t places) {
  constexpr int parts = 1024 / Keys;
  __shared__ double of_parts[2][parts][Keys];
  const int channel = static_cast<int>(threadIdx.x) % Keys;
  const int part = static_cast<int>(threadIdx.x) / Keys;
  const delta_rule_kernel_args& call = args.call;
  const std::int64_t head = blockIdx.x;
  double sums[2] = {};
  for (std::int64_t at = part * call.value_heads + head; at < places;
       at += parts * call.value_heads) {
    sums[0] += args.gate_sums[at * 2 * Keys + channel];
    sums[1] += args.gate_sums[(at * 2 + 1) * Keys + channel];
  }
  of_parts[0][part][channel] = sums[0];
  of_parts[1][part][channel] = sums[1];
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < parts; ++i) {
    sums[0] += of_parts[0][i][channel];
    sums[1] += of_parts[1][i][channel];
  }
  of_parts[1][0][channel] = sums[1];
  if (channel < call.key_dim && call.d_bias != nullptr) {
    call.d_bias[head * call.d_bias_head + channel] = static_cast<float>(sums[0]);
  }
  asm volatile("bar.sync 1, %0;" ::"n"(Keys) : "memory");
  if (channel != 0 || call.d_a_log == nullptr) return;
  double sum = 0.0;
  for (int i = 0; i < call.key_dim; ++i) sum += of_parts[1][0][i];
  call.d_a_log[head * call.d_a_log_head] = static_cast<float>(sum);
}

}  // namespace tessera::kernels::delta_rule::sm80
