// rwkv4 on the device. A thread has a channel. Forward as state spaces are: sums of each chunk
// alone, a carry from chunk to chunk, outputs. Backward a thread goes through a sequence from its
// last chunk to its first, whose sums are computed again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/queue.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int rwkv4_threads = 128;
inline constexpr int rwkv4_back_threads = 32;
inline constexpr int rwkv4_batch = 8;  ///< tokens whose rows a thread loads at once

struct rwkv4_memory {
  float* sums = nullptr;         ///< [slots][3][channels]: of a chunk alone, then in front of it
  double* parameters = nullptr;  ///< [sequences][2][channels]: of -exp(w) and u
};
struct rwkv4_launch {
  rwkv4_kernel_args call{};
  rwkv4_memory memory{};
  std::int64_t blocks = 0;  ///< of channels
  bool carried = false;     ///< a sequence may have several chunks
};

/// Sums relative to e^eps.
struct rwkv4_sums {
  float alpha = 0.0f, beta = 0.0f, eps = -1e30f;
};

/// Weights of two terms relative to the larger exponent.
struct exponent_pair {
  float largest, of_first, of_second;
  __device__ __forceinline__ exponent_pair(float first, float second)
      : largest(first < second ? second : first),
        of_first(expf(first - largest)),
        of_second(expf(second - largest)) {}
};

/// A channel: its parameters, and where its elements lie.
template <class Element>
struct rwkv4_channel {
  const rwkv4_kernel_args& args;
  std::int64_t channel, entry = 0;
  float decay, bonus;

  __device__ rwkv4_channel(const rwkv4_kernel_args& call, std::int64_t number)
      : args(call), channel(number) {
    decay = -expf(prim::cuda::number_at(args.w.data, args.w.type, channel * args.w.channel));
    bonus = prim::cuda::number_at(args.u.data, args.u.type, channel * args.u.channel);
  }
  __device__ __forceinline__ Element* at(const channel_rows& rows, std::int64_t token) const {
    return static_cast<Element*>(rows.data) + entry * rows.entry + token * rows.row + channel;
  }
  /// Elements of the first `count` of a few tokens.
  __device__ __forceinline__ void load(float (&to)[rwkv4_batch], const channel_rows& rows,
                                       std::int64_t token, int count) const {
    Element x[rwkv4_batch];
#pragma unroll
    for (int i = 0; i < rwkv4_batch; ++i) x[i] = *at(rows, token + (i < count ? i : 0));
#pragma unroll
    for (int i = 0; i < rwkv4_batch; ++i) to[i] = prim::cuda::float_of(x[i]);
  }
  __device__ __forceinline__ float read(const rwkv4_sums& sums, float k, float v) const {
    const exponent_pair weights(sums.eps, bonus + k);
    return fmaf(weights.of_first, sums.alpha, weights.of_second * v) /
           fmaf(weights.of_first, sums.beta, weights.of_second);
  }
  __device__ __forceinline__ void update(rwkv4_sums& sums, float k, float v) const {
    const exponent_pair weights(decay + sums.eps, k);
    sums.alpha = fmaf(weights.of_first, sums.alpha, weights.of_second * v);
    sums.beta = fmaf(weights.of_first, sums.beta, weights.of_second);
    sums.eps = weights.largest;
  }
  /// Of a tensor of states.
  __device__ __forceinline__ rwkv4_sums load_sums(const channel_rows& from, std::int64_t entry,
                                                  const rwkv4_sums& absent) const {
    if (from.data == nullptr || entry == no_states) return absent;
    const auto* const first =
        static_cast<const float*>(from.data) + entry * from.entry + channel * from.channel;
    return {first[0], first[from.row], first[2 * from.row]};
  }
  __device__ __forceinline__ void store_sums(const channel_rows& to, std::int64_t entry,
                                             const rwkv4_sums& sums) const {
    if (to.data == nullptr || entry == no_states) return;
    auto* const first = static_cast<float*>(to.data) + entry * to.entry + channel * to.channel;
    first[0] = sums.alpha, first[to.row] = sums.beta, first[2 * to.row] = sums.eps;
  }
  /// Of the workspace.
  __device__ __forceinline__ rwkv4_sums load_sums(const float* memory, std::int64_t slot) const {
    const float* const first = memory + slot * 3 * args.channels + channel;
    return {first[0], first[args.channels], first[2 * args.channels]};
  }
  __device__ __forceinline__ void store_sums(float* memory, std::int64_t slot,
                                             const rwkv4_sums& sums) const {
    float* const first = memory + slot * 3 * args.channels + channel;
    first[0] = sums.alpha, first[args.channels] = sums.beta, first[2 * args.channels] = sums.eps;
  }
};

template <class Element, bool Outputs>
__global__ void __launch_bounds__(rwkv4_threads)
    walk_sums(__grid_constant__ const rwkv4_launch all) {
  const rwkv4_kernel_args& args = all.call;
  const std::int64_t slot = blockIdx.x / all.blocks;
  const scan_chunk chunk = chunk_at(args.sequences, slot);
  const std::int64_t number = blockIdx.x % all.blocks * rwkv4_threads + threadIdx.x;
  if (!chunk.exists || number >= args.channels) return;
  rwkv4_channel<Element> own(args, number);
  own.entry = chunk.entry;
  rwkv4_sums sums;
  if (Outputs) {
    sums = all.carried ? own.load_sums(all.memory.sums, slot)
                       : own.load_sums(args.initial_state, chunk.states_entry, {});
  }
  for (int first = 0; first < chunk.length; first += rwkv4_batch) {
    const int count = min(rwkv4_batch, chunk.length - first);
    float k[rwkv4_batch], v[rwkv4_batch];
    own.load(k, args.k, chunk.begin + first, count);
    own.load(v, args.v, chunk.begin + first, count);
#pragma unroll
    for (int i = 0; i < rwkv4_batch; ++i) {
      if (i >= count) break;
      if constexpr (Outputs) {
        *own.at(args.out, chunk.begin + first + i) =
            prim::nearest<Element>(own.read(sums, k[i], v[i]));
      }
      own.update(sums, k[i], v[i]);
    }
  }
  if constexpr (!Outputs) {
    own.store_sums(all.memory.sums, slot, sums);
  } else if (chunk.is_last) {
    own.store_sums(args.final_state, chunk.states_entry, sums);
  }
}

/// From the sums of each chunk alone to those in front of it.
template <class Element>
__global__ void __launch_bounds__(rwkv4_threads)
    carry_sums(__grid_constant__ const rwkv4_launch all) {
  const rwkv4_kernel_args& args = all.call;
  const std::int64_t number = blockIdx.x % all.blocks * rwkv4_threads + threadIdx.x;
  if (number >= args.channels) return;
  const rwkv4_channel<Element> own(args, number);
  const scan_sequence tokens = sequence_at(args.sequences, blockIdx.x / all.blocks);
  rwkv4_sums sums = own.load_sums(args.initial_state, tokens.states_entry, {});
  const std::int64_t chunks = chunks_of(tokens.length);
  for (std::int64_t at = 0; at < chunks; ++at) {
    const std::int64_t left = tokens.length - at * chunk_tokens;
    const rwkv4_sums alone = own.load_sums(all.memory.sums, tokens.first_slot + at);
    own.store_sums(all.memory.sums, tokens.first_slot + at, sums);
    const float decay = own.decay * static_cast<float>(min(left, chunk_tokens));
    const exponent_pair weights(decay + sums.eps, alone.eps);
    sums.alpha = fmaf(weights.of_first, sums.alpha, weights.of_second * alone.alpha);
    sums.beta = fmaf(weights.of_first, sums.beta, weights.of_second * alone.beta);
    sums.eps = weights.largest;
  }
}

/// What a token gives back: through its output, then through the sums behind it, whose maximum
/// takes the gradient of eps (half of it each where both are the maximum).
struct rwkv4_token_gradient {
  float k, v, decay, bonus;
};
template <class Element>
__device__ __forceinline__ rwkv4_token_gradient step_back(const rwkv4_channel<Element>& own,
                                                          const rwkv4_sums& before, float k,
                                                          float v, float d_out, rwkv4_sums& d) {
  const exponent_pair read(before.eps, own.bonus + k);
  const float below = fmaf(read.of_first, before.beta, read.of_second);
  const float y = fmaf(read.of_first, before.alpha, read.of_second * v) / below;
  const float d_above = d_out / below, d_below = -d_above * y;
  const float d_key = read.of_second * fmaf(v, d_above, d_below);

  const float decayed = own.decay + before.eps;
  const exponent_pair kept(decayed, k);
  const float of_kept = kept.of_first * fmaf(before.alpha, d.alpha, before.beta * d.beta);
  const float of_added = kept.of_second * fmaf(v, d.alpha, d.beta);
  const float d_most = d.eps - (of_kept + of_added);
  const float share = decayed < k ? 0.0f : k < decayed ? 1.0f : 0.5f;
  const float d_decayed = fmaf(share, d_most, of_kept);

  const rwkv4_token_gradient token{.k = d_key + of_added + (1.0f - share) * d_most,
                                   .v = fmaf(read.of_second, d_above, kept.of_second * d.alpha),
                                   .decay = d_decayed,
                                   .bonus = d_key};
  d.alpha = fmaf(read.of_first, d_above, kept.of_first * d.alpha);
  d.beta = fmaf(read.of_first, d_below, kept.of_first * d.beta);
  d.eps = fmaf(read.of_first, fmaf(before.alpha, d_above, before.beta * d_below), d_decayed);
  return token;
}

template <class Element>
__global__ void __launch_bounds__(rwkv4_back_threads)
    walk_sums_back(__grid_constant__ const rwkv4_launch all) {
  __shared__ rwkv4_sums before[chunk_tokens * rwkv4_back_threads];  // in front of each token
  const rwkv4_kernel_args& args = all.call;
  const std::int64_t number = blockIdx.x % all.blocks * rwkv4_back_threads + threadIdx.x;
  if (number >= args.channels) return;
  rwkv4_channel<Element> own(args, number);
  const scan_sequence tokens = sequence_at(args.sequences, blockIdx.x / all.blocks);
  own.entry = tokens.entry;
  rwkv4_sums d = own.load_sums(args.d_final_state, tokens.states_entry, {0.0f, 0.0f, 0.0f});
  double decay_sum = 0, bonus_sum = 0;
  for (std::int64_t chunk = chunks_of(tokens.length) - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = tokens.begin + chunk * chunk_tokens;
    const int length = static_cast<int>(min(tokens.length - chunk * chunk_tokens, chunk_tokens));
    rwkv4_sums sums = all.carried ? own.load_sums(all.memory.sums, tokens.first_slot + chunk)
                                  : own.load_sums(args.initial_state, tokens.states_entry, {});
    float k[rwkv4_batch], v[rwkv4_batch], d_out[rwkv4_batch];
    for (int first = 0; first < length; first += rwkv4_batch) {
      const int count = min(rwkv4_batch, length - first);
      own.load(k, args.k, begin + first, count);
      own.load(v, args.v, begin + first, count);
#pragma unroll
      for (int i = 0; i < rwkv4_batch; ++i) {
        if (i >= count) break;
        before[(first + i) * rwkv4_back_threads + threadIdx.x] = sums;
        own.update(sums, k[i], v[i]);
      }
    }
    float chunk_decay = 0.0f, chunk_bonus = 0.0f;
    for (int first = (length - 1) / rwkv4_batch * rwkv4_batch; first >= 0 && length > 0;
         first -= rwkv4_batch) {
      const int count = min(rwkv4_batch, length - first);
      own.load(k, args.k, begin + first, count);
      own.load(v, args.v, begin + first, count);
      own.load(d_out, args.d_out, begin + first, count);
#pragma unroll
      for (int i = rwkv4_batch - 1; i >= 0; --i) {
        if (i >= count) continue;
        const rwkv4_token_gradient token = step_back(
            own, before[(first + i) * rwkv4_back_threads + threadIdx.x], k[i], v[i], d_out[i], d);
        *own.at(args.d_k, begin + first + i) = prim::nearest<Element>(token.k);
        *own.at(args.d_v, begin + first + i) = prim::nearest<Element>(token.v);
        chunk_decay += token.decay;
        chunk_bonus += token.bonus;
      }
    }
    decay_sum += static_cast<double>(chunk_decay);
    bonus_sum += static_cast<double>(chunk_bonus);
  }
  own.store_sums(args.d_initial_state, tokens.states_entry, d);
  double* const parameters = all.memory.parameters + tokens.number * 2 * args.channels + number;
  parameters[0] = decay_sum;
  parameters[args.channels] = bonus_sum;
}

/// d_w = -exp(w) d(-exp(w)).
template <class Element>
__global__ void __launch_bounds__(block_threads)
    add_rwkv4_parameters(__grid_constant__ const rwkv4_launch all) {
  const rwkv4_kernel_args& args = all.call;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (channel >= args.channels) return;
  double decay = 0, bonus = 0;
  for (std::int64_t n = 0; n < args.sequences.count; ++n) {
    const double* const parameters = all.memory.parameters + n * 2 * args.channels + channel;
    decay += parameters[0];
    bonus += parameters[args.channels];
  }
  const auto put = [&](const channel_rows& to, double x) {
    prim::cuda::put_number(to.data, to.type, channel * to.channel, static_cast<float>(x));
  };
  const rwkv4_channel<Element> own(args, channel);
  put(args.d_w, static_cast<double>(own.decay) * decay);
  put(args.d_u, bonus);
}

/// A launch of rwkv4 or its gradient.
template <bool Backward>
class rwkv4_row {
 public:
  explicit rwkv4_row(const rwkv4_kernel_args& args, std::byte* workspace) : parts_(workspace) {
    all_.call = args;
    all_.carried = has_carries(args.sequences);
    slots_ = slots_of(args.sequences);
    if (all_.carried) parts_.take(all_.memory.sums, slots_ * 3 * args.channels);
    if (Backward) parts_.take(all_.memory.parameters, args.sequences.count * 2 * args.channels);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    const std::array of_types{entries_of_type<float>(), entries_of_type<f16>(),
                              entries_of_type<bf16>()};
    constexpr std::size_t each = std::tuple_size_v<decltype(entries_of_type<float>())>;
    std::array<prim::cuda::kernel_entry, 3 * each + 1> all{};
    for (std::size_t i = 0; i < 3 * each; ++i) all[i] = of_types[i / each][i % each];
    all[3 * each] = cuda::entry_of(&clear_unused<channel_rows>);
    return all;
  }

  cudaError_t launch(cudaStream_t stream) const {
    if (all_.call.k.type == dtype::f32) return launch_of<float>(stream);
    return all_.call.k.type == dtype::f16 ? launch_of<f16>(stream) : launch_of<bf16>(stream);
  }

 private:
  template <class Element>
  static auto entries_of_type() {
    const auto alone = cuda::entry_of(&walk_sums<Element, false>);
    const auto carry = cuda::entry_of(&carry_sums<Element>);
    if constexpr (Backward) {
      return std::array{alone, carry, cuda::entry_of(&walk_sums_back<Element>),
                        cuda::entry_of(&add_rwkv4_parameters<Element>)};
    } else {
      return std::array{alone, carry, cuda::entry_of(&walk_sums<Element, true>)};
    }
  }

  template <class Element>
  cudaError_t launch_of(cudaStream_t stream) const {
    const rwkv4_kernel_args& args = all_.call;
    const std::int64_t count = args.sequences.count;
    kernel_queue queue(stream);
    rwkv4_launch all = all_;
    all.blocks = (args.channels + rwkv4_threads - 1) / rwkv4_threads;
    const std::int64_t chunk_blocks = count > 0 ? slots_ * all.blocks : 0;
    if (all.carried) {
      queue.run(&walk_sums<Element, false>, chunk_blocks, rwkv4_threads, 0, all);
      queue.run(&carry_sums<Element>, count * all.blocks, rwkv4_threads, 0, all);
    }
    if constexpr (!Backward) {
      queue.run(&walk_sums<Element, true>, chunk_blocks, rwkv4_threads, 0, all);
      queue_clearing(queue, args.sequences, args.out, 1, args.channels);
    } else {
      all.blocks = (args.channels + rwkv4_back_threads - 1) / rwkv4_back_threads;
      queue.run(&walk_sums_back<Element>, count * all.blocks, rwkv4_back_threads, 0, all);
      queue.run_over(&add_rwkv4_parameters<Element>, args.channels, all);
      queue_clearing(queue, args.sequences, args.d_k, 1, args.channels);
      queue_clearing(queue, args.sequences, args.d_v, 1, args.channels);
    }
    return queue.code();
  }

  cuda::workspace_parts parts_;
  rwkv4_launch all_{};
  std::int64_t slots_ = 0;
};

}  // namespace tessera::kernels::selective_scan::sm80
