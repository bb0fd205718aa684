// Decays of each channel in the operands of a chunk's products.
//
// With G_t the sum of a channel's log decays up to token t of a segment, D that of all of them and
// h = D / 2, the rows q_t 2^(G_t - h) and k_t 2^(h - G_t), and the state in front times 2^h, make
// all products of a segment without a power for each pair of tokens. A segment is as long as |D|
// stays below 128 in every channel: no factor leaves [2^-64, 2^64]. A chunk is one segment unless
// something in it forgets quickly; then rows of tokens outside of a segment are 0.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::chunk_segment;

/// Two neighbouring channels of some of the chunk's tokens: a thread's part of the work.
template <class Element, class Shape, chunk_decay Decay>
class channel_scaler {
  static constexpr int pairs = Shape::keys / 2;
  static constexpr int parts = Shape::threads / pairs;
  static constexpr int own_tokens = Shape::tokens / parts;
  /// Log decays are added up in groups that do not depend on the columns of a block.
  static constexpr int summed_tokens = Shape::keys / 8;
  static_assert(own_tokens % summed_tokens == 0);
  using memory = chunk_memory<Shape, Decay>;
  using words = prim::cuda::half_words<Element>;

 public:
  __device__ __forceinline__ channel_scaler(memory& shared) : shared_(shared) {
    channel_ = static_cast<int>(threadIdx.x) % pairs * 2;
    part_ = static_cast<int>(threadIdx.x) / pairs;
  }

  /// What is left to multiply the state by, before the first chunk nothing.
  __device__ __forceinline__ void begin() { left_[0] = left_[1] = 1.0f; }

  /// The thread's log decays of a chunk of `count` tokens, added up.
  __device__ __forceinline__ void load(const chunked_scan_kernel_args& args, float of_head,
                                       std::int64_t token, int count) {
    const ordered_rows gk = shared_.rows_gk, g = shared_.rows_g;
    const int first = part_ * own_tokens;
    prim::cuda::with_elements(args.gk.data, args.gk.type, [&](const auto* elements) {
#pragma unroll
      for (int i = 0; i < own_tokens; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const bool used = first + i < count && channel_ + j < args.keys;
          sums_[i][j] =
              used ? prim::cuda::float_of(elements[gk.at(token + first + i) + channel_ + j]) : 0.0f;
        }
      }
    });
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      float more = of_head;
      if (args.g.data != nullptr && first + i < count) {
        more += prim::cuda::number_at(args.g.data, args.g.type, g.at(token + first + i));
      }
      if (i % summed_tokens == 0) sum[0] = sum[1] = 0.0f;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool used = first + i < count && channel_ + j < args.keys;
        const float x = args.raw_decay ? log_decay_of_raw(sums_[i][j]) : sums_[i][j];
        sum[j] += used ? log2_decay(x + more) : 0.0f;
        sums_[i][j] = sum[j];
      }
      if (i % summed_tokens == summed_tokens - 1) {
        put(shared_.of_channels.sums[(first + i) / summed_tokens], sum);
      }
    }
  }
  /// Those of earlier tokens too. Behind a barrier.
  __device__ __forceinline__ void add_earlier() {
    float before[2] = {};
    const int earlier = part_ * own_tokens / summed_tokens;
    for (int i = 0; i < earlier; ++i) {
      const float2 more = take(shared_.of_channels.sums[i]);
      before[0] += more.x;
      before[1] += more.y;
    }
    before_[0] = before[0];
    before_[1] = before[1];
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      const float own[2] = {sums_[i][0], sums_[i][1]};
      sums_[i][0] += before[0];
      sums_[i][1] += before[1];
      if (i % summed_tokens != summed_tokens - 1) continue;
      before[0] += own[0];
      before[1] += own[1];
    }
    base_[0] = base_[1] = 0.0f;
  }

  /// The segment from `first` on; has barriers.
  __device__ __forceinline__ chunk_segment segment_from(int first) {
    bool beyond = false;
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      beyond = beyond || (part_ * own_tokens + i > first && is_beyond(i));
    }
    put_end(Shape::tokens);
    if (__syncthreads_or(beyond ? 1 : 0) == 0) return {first, Shape::tokens};
    if (threadIdx.x == 0) shared_.of_channels.cut = Shape::tokens;
    __syncthreads();
    int cut = Shape::tokens;
#pragma unroll
    for (int i = own_tokens - 1; i >= 0; --i) {
      if (part_ * own_tokens + i > first && is_beyond(i)) cut = part_ * own_tokens + i;
    }
    if (cut < Shape::tokens) atomicMin(&shared_.of_channels.cut, cut);
    __syncthreads();
    cut = shared_.of_channels.cut;
    put_end(cut);
    __syncthreads();
    return {first, cut};
  }

  /// Scaled rows of a segment, and the factors of the state. Reads `q` and `k` of the chunk as they
  /// are, the first of their tiles, and writes the second.
  __device__ __forceinline__ void scale(const chunk_segment& segment) {
    const float2 ends = take(shared_.of_channels.ends);
    const float whole[2] = {ends.x - base_[0], ends.y - base_[1]};
    float half[2], factor[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // A sum that is no number is one from its token on only.
      half[j] = whole[j] == whole[j] ? 0.5f * whole[j] : 0.0f;
      factor[j] = left_[j] * prim::cuda::exp2_fast(half[j]);
      left_[j] = prim::cuda::exp2_fast(whole[j] - half[j]);
    }
    if (part_ == 0) put(shared_.of_channels.factors, factor);
    const auto chunk = static_cast<std::uint32_t>(channel_ / 8);
    const auto place = static_cast<std::uint32_t>(channel_ % 8 * 2);
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      const int token = part_ * own_tokens + i;
      const std::uint32_t at =
          Shape::key_rows::offset(static_cast<std::uint32_t>(token), chunk) + place;
      std::uint32_t scaled_q = 0, scaled_k = 0;
      if (token >= segment.first && token < segment.end) {
        const auto q = *reinterpret_cast<const std::uint32_t*>(shared_.q[0] + at);
        const auto k = *reinterpret_cast<const std::uint32_t*>(shared_.k[0] + at);
        float of_q[2], of_k[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float sum = sums_[i][j] - base_[j] - half[j];
          float read = sum;
          if constexpr (Decay == chunk_decay::bonus) {
            read = (i > 0 ? sums_[i > 0 ? i - 1 : 0][j] : before_[j]) - base_[j] - half[j];
          }
          of_q[j] = words::unpack(static_cast<std::uint16_t>(q >> (16 * j))) *
                    prim::cuda::exp2_fast(read);
          of_k[j] = words::unpack(static_cast<std::uint16_t>(k >> (16 * j))) *
                    prim::cuda::exp2_fast(-sum);
        }
        scaled_q = words::pack(of_q[0], of_q[1]);
        scaled_k = words::pack(of_k[0], of_k[1]);
      }
      *reinterpret_cast<std::uint32_t*>(shared_.q[1] + at) = scaled_q;
      *reinterpret_cast<std::uint32_t*>(shared_.k[1] + at) = scaled_k;
    }
    base_[0] = ends.x;
    base_[1] = ends.y;
  }
  /// What is left to multiply the state by goes to shared memory.
  __device__ __forceinline__ void finish() const {
    if (part_ == 0) put(shared_.of_channels.factors, left_);
  }

 private:
  __device__ __forceinline__ bool is_beyond(int i) const {
    return fabsf(sums_[i][0] - base_[0]) > 128.0f || fabsf(sums_[i][1] - base_[1]) > 128.0f;
  }
  /// The sums up to the end of a segment, by the threads that have them.
  __device__ __forceinline__ void put_end(int end) {
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      if (part_ * own_tokens + i + 1 == end) put(shared_.of_channels.ends, sums_[i]);
    }
  }
  __device__ __forceinline__ void put(float* row, const float (&values)[2]) const {
    *reinterpret_cast<float2*>(row + channel_) = make_float2(values[0], values[1]);
  }
  __device__ __forceinline__ float2 take(const float* row) const {
    return *reinterpret_cast<const float2*>(row + channel_);
  }

  memory& shared_;
  int channel_, part_;
  float sums_[own_tokens][2], before_[2], base_[2], left_[2];
};

}  // namespace tessera::kernels::chunked_scan::sm80
