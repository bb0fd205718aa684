// Decays of each channel in the operands of a chunk's products.
//
// With G_t the sum of a channel's log decays up to token t of a segment, D that of all of them and
// h = D / 2, the rows q_t 2^(G_t - h) and k_t 2^(h - G_t), and the state in front times 2^h, make
// all products of a segment without a power for each pair of tokens. A segment is as long as |D|
// stays below 128 in every channel: no factor leaves [2^-64, 2^64]. A chunk is one segment unless
// something in it forgets quickly; then rows of tokens outside of a segment are 0.
//
// Where columns decay, values have the factors of keys, and answers those of queries. With a bonus
// queries have the factor of the token before them, whose state they read.
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

/// The channels that decay: those of a block's columns, or of keys.
struct decaying_part {
  int first = 0, count = 0;
  int earlier = 0;  ///< the steps between a token and the one whose decay is in front of it
  float log2_token_scale = 0.0f;
};

/// Two neighbouring channels of some of the chunk's tokens: a thread's part of the work.
template <class Element, class Shape, chunk_decay Decay>
class channel_scaler {
  static constexpr int pairs = decaying_channels<Shape, Decay> / 2;
  static constexpr int parts = Shape::threads / pairs;
  static constexpr int own_tokens = Shape::tokens / parts;
  static constexpr int summed = summed_tokens<Shape, Decay>;
  static_assert(own_tokens % summed == 0);
  using memory = chunk_memory<Shape, Decay>;
  using words = prim::cuda::half_words<Element>;

 public:
  __device__ __forceinline__ channel_scaler(memory& shared, const chunked_scan_kernel_args& args,
                                            const decaying_part& all, float of_head)
      : shared_(shared), args_(args), all_(all), of_head_(of_head) {
    channel_ = static_cast<int>(threadIdx.x) % pairs * 2;
    part_ = static_cast<int>(threadIdx.x) / pairs;
  }

  /// What is left to multiply the state by, before the first chunk nothing.
  __device__ __forceinline__ void begin() { left_[0] = left_[1] = 1.0f; }

  /// The thread's log decays of a chunk of `count` tokens, added up.
  __device__ __forceinline__ void load(std::int64_t token, int count) {
    const ordered_rows gk = shared_.rows_gk, g = shared_.rows_g;
    const int first = part_ * own_tokens;
    token -= all_.earlier;
    const auto has = [&](int i) { return first + i < count && token + first + i >= 0; };
    prim::cuda::with_elements(args_.gk.data, args_.gk.type, [&](const auto* elements) {
#pragma unroll
      for (int i = 0; i < own_tokens; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const bool used = has(i) && channel_ + j < all_.count;
          sums_[i][j] = used ? prim::cuda::float_of(
                                   elements[gk.at(token + first + i) + all_.first + channel_ + j])
                             : 0.0f;
        }
      }
    });
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      float more = of_head_;
      if (args_.g.data != nullptr && has(i)) {
        more += prim::cuda::number_at(args_.g.data, args_.g.type, g.at(token + first + i));
      }
      if (i % summed == 0) sum[0] = sum[1] = 0.0f;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool used = has(i) && channel_ + j < all_.count;
        const float x = args_.raw_decay ? log_decay_of_raw(sums_[i][j]) : sums_[i][j];
        sum[j] += used ? log2_decay(x + more) : 0.0f;
        sums_[i][j] = sum[j];
      }
      if (i % summed == summed - 1) {
        put(shared_.of_channels.sums[(first + i) / summed], sum);
      }
    }
  }
  /// Those of earlier tokens too. Behind a barrier.
  __device__ __forceinline__ void add_earlier() {
    float before[2] = {};
    const int earlier = part_ * own_tokens / summed;
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
      if (i % summed != summed - 1) continue;
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

  /// Scaled rows of a segment, and the factors of the state: of q and k, the first of their tiles
  /// as they are, the second is written; of columns that decay, those of v and the factors of
  /// answers.
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
    if constexpr (decays_by_column(Decay)) {
      scale_values(segment, half);
    } else {
      scale_keys(segment, half);
    }
    base_[0] = ends.x;
    base_[1] = ends.y;
  }
  /// What is left to multiply the state by goes to shared memory.
  __device__ __forceinline__ void finish() const {
    if (part_ == 0) put(shared_.of_channels.factors, left_);
  }
  /// The state decays by one more token.
  __device__ __forceinline__ void decay_by(std::int64_t token) {
    float more = of_head_;
    if (args_.g.data != nullptr) {
      more += prim::cuda::number_at(args_.g.data, args_.g.type, shared_.rows_g.at(token));
    }
    for (int j = 0; j < 2; ++j) {
      if (channel_ + j >= all_.count) continue;
      const float x = prim::cuda::number_at(args_.gk.data, args_.gk.type,
                                            shared_.rows_gk.at(token) + all_.first + channel_ + j);
      const float decay = args_.raw_decay ? log_decay_of_raw(x) : x;
      left_[j] *= prim::cuda::exp2_fast(log2_decay(decay + more));
    }
  }

 private:
  __device__ __forceinline__ void scale_values(const chunk_segment& segment,
                                               const float (&half)[2]) const {
    const auto chunk = static_cast<std::uint32_t>(channel_ / 8);
    const auto place = static_cast<std::uint32_t>(channel_ % 8 * 2);
#pragma unroll
    for (int i = 0; i < own_tokens; ++i) {
      const int token = part_ * own_tokens + i;
      const std::uint32_t at =
          Shape::value_rows::offset(static_cast<std::uint32_t>(token), chunk) + place;
      std::uint32_t scaled = 0;
      if (token >= segment.first && token < segment.end) {
        const auto v = *reinterpret_cast<const std::uint32_t*>(shared_.v[0] + at);
        float of_v[2], of_answer[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float sum = sums_[i][j] - base_[j] - half[j];
          of_answer[j] = prim::cuda::exp2_fast(read_sum(i, j, half));
          of_v[j] = words::unpack(static_cast<std::uint16_t>(v >> (16 * j))) *
                    prim::cuda::exp2_fast(all_.log2_token_scale - sum);
        }
        scaled = words::pack(of_v[0], of_v[1]);
        *reinterpret_cast<float2*>(&shared_.of_answers.at[token][channel_]) =
            make_float2(of_answer[0], of_answer[1]);
      }
      *reinterpret_cast<std::uint32_t*>(shared_.v[1] + at) = scaled;
    }
  }
  __device__ __forceinline__ void scale_keys(const chunk_segment& segment,
                                             const float (&half)[2]) const {
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
          of_q[j] = words::unpack(static_cast<std::uint16_t>(q >> (16 * j))) *
                    prim::cuda::exp2_fast(read_sum(i, j, half));
          of_k[j] = words::unpack(static_cast<std::uint16_t>(k >> (16 * j))) *
                    prim::cuda::exp2_fast(all_.log2_token_scale - sum);
        }
        scaled_q = words::pack(of_q[0], of_q[1]);
        scaled_k = words::pack(of_k[0], of_k[1]);
      }
      *reinterpret_cast<std::uint32_t*>(shared_.q[1] + at) = scaled_q;
      *reinterpret_cast<std::uint32_t*>(shared_.k[1] + at) = scaled_k;
    }
  }
  /// Of the decays between the segment's reference and what the thread's token `i` reads.
  __device__ __forceinline__ float read_sum(int i, int j, const float (&half)[2]) const {
    if (!reads_before(Decay)) return sums_[i][j] - base_[j] - half[j];
    return (i > 0 ? sums_[i > 0 ? i - 1 : 0][j] : before_[j]) - base_[j] - half[j];
  }
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
  const chunked_scan_kernel_args& args_;
  decaying_part all_;
  float of_head_;
  int channel_, part_;
  float sums_[own_tokens][2], before_[2], base_[2], left_[2];
};

}  // namespace tessera::kernels::chunked_scan::sm80
