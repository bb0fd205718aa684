// Decays of channels in rows of a chunk on the way back. With G_t the sum of a channel's log decays
// to base 2 up to token t, each tile of 8 tokens has a level for each channel, a whole number h in
// the middle of its sums: rows that read are times 2^(G_t - h), rows that write times 2^(h - G_t),
// and pairs of tiles have 2^(h_t - h_j) more, a power of 2 that changes no digit of a row of 16
// bits. So what pairs of tokens owe a decay as rows and as columns is the same number in both sums,
// in which it cancels, and no factor leaves [2^-56, 2^56]: a tile that forgets more than 2^-112
// between its first token and its last has decays of 2^-16 at least.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::ordered_rows;

/// Tokens of a tile, and its tiles in a chunk.
inline constexpr int level_tokens = 8;
inline constexpr int chunk_levels = 8;

/// Levels, 2^13 above what they are: differences of two such words have no borrow.
inline constexpr int level_zero = 1 << 13;
template <int Keys>
struct alignas(16) channel_levels {
  std::uint16_t at[chunk_levels][Keys];

  __device__ __forceinline__ std::uint32_t pair(int tile, int channel) const {
    return *reinterpret_cast<const std::uint32_t*>(&at[tile][channel]);
  }
  __device__ __forceinline__ void put_pair(int tile, int channel, const float (&levels)[2]) {
    const auto word = [](float level) {
      return static_cast<std::uint32_t>(
          min(max(static_cast<int>(level) + level_zero, 0), 2 * level_zero - 1));
    };
    *reinterpret_cast<std::uint32_t*>(&at[tile][channel]) = word(levels[0]) | word(levels[1]) << 16;
  }
  __device__ __forceinline__ int word(int tile, int channel) const {
    return static_cast<int>(at[tile][channel]);
  }
  __device__ __forceinline__ float level(int tile, int channel) const {
    return static_cast<float>(word(tile, channel) - level_zero);
  }
  /// 2^(level of tile `to` - level of tile `from`) of a channel, as two elements of bf16.
  __device__ __forceinline__ std::uint32_t power(int to, int from, int channel) const {
    const int exponent = 127 + word(to, channel) - word(from, channel);
    return static_cast<std::uint32_t>(min(max(exponent, 0), 254)) * 0x00800080u;
  }
  __device__ __forceinline__ float single_power(int to, int from, int channel) const {
    const int exponent = 127 + word(to, channel) - word(from, channel);
    return __int_as_float(min(max(exponent, 0), 254) << 23);
  }
};

/// The same of two channels, from their words of two tiles.
__device__ __forceinline__ std::uint32_t powers_of(std::uint32_t to, std::uint32_t from) {
  // Of each half: 2^14 + 127 + the difference, which lies between 0 and 2^16.
  const std::uint32_t raised = to + 0x407f407fu - from;
  const std::uint32_t clamped = __vminu2(__vmaxu2(raised, 0x40004000u), 0x40fe40feu);
  return (clamped & 0x00ff00ffu) << 7;
}
/// Elements of bf16 times powers of 2: exact, if nothing leaves the range.
__device__ __forceinline__ std::uint32_t times_powers(std::uint32_t x, std::uint32_t powers) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(x), "r"(powers), "r"(0x80008000u));
  return product;
}

/// Where two channels of a token lie among rows of keys.
template <class Shape>
__device__ __forceinline__ std::uint32_t& pair_in(unsigned char* rows, int token, int channel) {
  return *reinterpret_cast<std::uint32_t*>(
      rows +
      Shape::key_rows::offset(static_cast<std::uint32_t>(token),
                              static_cast<std::uint32_t>(channel / 8)) +
      static_cast<std::uint32_t>(channel % 8 * 2));
}

/// The level of a tile from the sums of its first and last token.
__device__ __forceinline__ float level_of(float first, float last) {
  const float middle = rintf(0.5f * (first + last));
  return fabsf(middle) < static_cast<float>(level_zero) ? middle : 0.0f;
}

/// Two channels of a token, not rounded: rows that read, of keys without beta, and that write.
struct scaled_channels {
  float q[2], k[2], writes[2];
};
struct token_scales {
  float q = 1.0f, k = 1.0f, beta = 1.0f;
};

/// Rows q and k become those that read, of keys times beta, and `writes` those that write.
template <class Element, class Shape, class Memory>
__device__ __forceinline__ scaled_channels scale_pair(Memory& shared, const token_scales& scales,
                                                      int token, int channel, const float (&sum)[2],
                                                      const float (&levels)[2]) {
  using words = prim::cuda::half_words<Element>;
  std::uint32_t& of_q = pair_in<Shape>(shared.q, token, channel);
  std::uint32_t& of_k = pair_in<Shape>(shared.k, token, channel);
  scaled_channels of;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float read = prim::cuda::exp2_fast(sum[j] - levels[j]);
    const float k = scales.k * words::unpack(static_cast<std::uint16_t>(of_k >> (16 * j)));
    of.q[j] = scales.q * words::unpack(static_cast<std::uint16_t>(of_q >> (16 * j))) * read;
    of.k[j] = k * read;
    of.writes[j] = k * prim::cuda::exp2_fast(levels[j] - sum[j]);
  }
  of_q = words::pack(of.q[0], of.q[1]);
  of_k = words::pack(scales.beta * of.k[0], scales.beta * of.k[1]);
  pair_in<Shape>(shared.writes, token, channel) = words::pack(of.writes[0], of.writes[1]);
  return of;
}

/// Two neighbouring channels of some of a chunk's tokens, whole tiles: sums of log decays.
template <class Element, class Shape>
class channel_sums {
  static constexpr int pairs = Shape::keys / 2;
  static constexpr int parts = Shape::threads / pairs;
  static constexpr int own_tokens = Shape::tokens / parts;
  static_assert(own_tokens % level_tokens == 0);
  using words = prim::cuda::half_words<Element>;

 public:
  static constexpr int count = parts;
  using part_sums = float[parts][Shape::keys];

  __device__ __forceinline__ channel_sums(const delta_rule_kernel_args& call, std::int64_t head,
                                          float* sums)
      : call_(call), gate_(call.gate, head), sums_(sums) {
    channel_ = static_cast<int>(threadIdx.x) % pairs * 2;
    part_ = static_cast<int>(threadIdx.x) / pairs;
  }

  /// Sums of the thread's own tokens of the `left` of a chunk, to memory; their last to `ends`.
  __device__ __forceinline__ void add_up(const ordered_rows& rows, std::int64_t first, int left,
                                         part_sums& ends) {
    float sum[2] = {};
#pragma unroll 1
    for (int token = part_ * own_tokens; token < (part_ + 1) * own_tokens; token += level_tokens) {
      float x[level_tokens][2] = {};
      load(rows, first + token, left - token, x);
      limit(x);
#pragma unroll
      for (int i = 0; i < level_tokens; ++i) {
        sum[0] += x[i][0];
        sum[1] += x[i][1];
        put(token + i, sum);
      }
    }
    ends[part_][channel_] = sum[0];
    ends[part_][channel_ + 1] = sum[1];
  }
  /// Behind a barrier: those of earlier tokens too.
  __device__ __forceinline__ void add_earlier(const part_sums& ends) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      before_[j] = 0.0f;
      for (int part = 0; part < part_; ++part) before_[j] += ends[part][channel_ + j];
      end_[j] = before_[j];
      for (int part = part_; part < parts; ++part) end_[j] += ends[part][channel_ + j];
    }
  }

  /// Rows of all of the thread's tokens: those of the pairs in place of q and k, with those that
  /// write behind them, and those of the states to memory. `q` has the scale of the call.
  template <class Memory>
  __device__ __forceinline__ void scale(Memory& shared, const chunk_channel_rows& to,
                                        float* whole) const {
#pragma unroll 1
    for (int token = part_ * own_tokens; token < (part_ + 1) * own_tokens; token += level_tokens) {
      float2 sums[level_tokens];
#pragma unroll
      for (int i = 0; i < level_tokens; ++i) {
        sums[i] = *at(token + i);
        sums[i].x += before_[0];
        sums[i].y += before_[1];
        *at(token + i) = sums[i];
      }
      const float levels[2] = {level_of(sums[0].x, sums[level_tokens - 1].x),
                               level_of(sums[0].y, sums[level_tokens - 1].y)};
      shared.levels.put_pair(token / level_tokens, channel_, levels);
      const float front[2] = {prim::cuda::exp2_fast(levels[0]), prim::cuda::exp2_fast(levels[1])};
      const float rest[2] = {prim::cuda::exp2_fast(end_[0] - levels[0]),
                             prim::cuda::exp2_fast(end_[1] - levels[1])};
#pragma unroll
      for (int i = 0; i < level_tokens; ++i) {
        const float sum[2] = {sums[i].x, sums[i].y};
        scale_token(shared, to, token + i, sum, levels, front, rest);
      }
    }
    if (part_ == 0) {
      *reinterpret_cast<float2*>(whole + channel_) =
          make_float2(prim::cuda::exp2_fast(end_[0]), prim::cuda::exp2_fast(end_[1]));
    }
  }

 private:
  __device__ __forceinline__ void load(const ordered_rows& rows, std::int64_t first, int left,
                                       float (&x)[level_tokens][2]) const {
    prim::cuda::with_elements(call_.decay.data, call_.decay.type, [&](const auto* elements) {
#pragma unroll
      for (int i = 0; i < 2 * level_tokens; ++i) {
        if (i / 2 >= left || channel_ + i % 2 >= call_.key_dim) continue;
        x[i / 2][i % 2] = prim::cuda::float_of(elements[rows.at(first + i / 2) + channel_ + i % 2]);
      }
    });
#pragma unroll
    for (int i = 0; i < 2 * level_tokens; ++i) {
      float& of = x[i / 2][i % 2];
      if (i / 2 >= left || channel_ + i % 2 >= call_.key_dim) continue;
      if (gate_.raw) of = gate_.log_decay(of, channel_ + i % 2);
      of = recurrence::sm80::log2_decay(of);
    }
  }
  /// A tile that forgets too much for one level has decays of 2^-16 at least.
  static __device__ __forceinline__ void limit(float (&x)[level_tokens][2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float range = 0.0f;
#pragma unroll
      for (int i = 1; i < level_tokens; ++i) range += x[i][j];
      if (!(range < -112.0f)) continue;
#pragma unroll
      for (int i = 0; i < level_tokens; ++i) x[i][j] = x[i][j] < -16.0f ? -16.0f : x[i][j];
    }
  }
  /// `front` and `rest`: what is left at a level of the state in front, and of the level at the
  /// end.
  template <class Memory>
  __device__ __forceinline__ void scale_token(Memory& shared, const chunk_channel_rows& to,
                                              int token, const float (&sum)[2],
                                              const float (&levels)[2], const float (&front)[2],
                                              const float (&rest)[2]) const {
    const token_scales scales{shared.scale_q[token], shared.scale_k[token], shared.beta[token]};
    const auto of = scale_pair<Element, Shape>(shared, scales, token, channel_, sum, levels);
    const int place = token * Shape::keys + channel_;
    const auto store = [&](std::uint16_t* rows, const float(&x)[2], const float(&factors)[2]) {
      *reinterpret_cast<std::uint32_t*>(rows + place) =
          words::pack(x[0] * factors[0], x[1] * factors[1]);
    };
    store(to.queries, of.q, front);
    store(to.reads, of.k, front);
    store(to.writes, of.writes, rest);
  }
  __device__ __forceinline__ float2* at(int token) const {
    return reinterpret_cast<float2*>(sums_ + token * Shape::keys + channel_);
  }
  __device__ __forceinline__ void put(int token, const float (&sum)[2]) const {
    *at(token) = make_float2(sum[0], sum[1]);
  }

  const delta_rule_kernel_args& call_;
  head_gate<device_code> gate_;
  float* sums_;
  int channel_, part_;
  float before_[2], end_[2];
};

}  // namespace tessera::kernels::delta_rule::sm80
