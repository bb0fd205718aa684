// What a few steps take of their tokens, in shared memory, as floats: rows over the channels of the
// keys, with zeros behind them, and the values of a tile's columns. A warp makes the rows of a
// token.
//
// | update | reads the state with | writes |
// |---|---|---|
// | delta | decay key | key |
// | low_rank, multiplicative | read | write, and key |
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Names the code that `sigmoid` and its like are compiled into.
struct device_code;

__device__ __forceinline__ float silu(float x) {
  return x * sigmoid<device_code>(x);
}
__device__ __forceinline__ float slope_of_silu(float x) {
  const float s = sigmoid<device_code>(x);
  return s * (1.0f + x * (1.0f - s));
}

enum class step_kind : std::int8_t { padding, goes_on, starts_anew };

/// 1 / sqrt(sum x^2 + 1e-6), from the lane's part of the sum.
__device__ __forceinline__ float inverse_length(float sum_of_squares) {
  return 1.0f / sqrtf(prim::cuda::sum_of_warp(sum_of_squares) + 1e-6f);
}

/// Rows of a token: what the step takes, or their gradients.
struct token_rows {
  float *query = nullptr, *key = nullptr, *decay = nullptr, *read = nullptr, *write = nullptr;
  static constexpr int count = 5;
  static __device__ __forceinline__ token_rows at(float* rows, int keys) {
    return {rows, rows + keys, rows + 2 * keys, rows + 3 * keys, rows + 4 * keys};
  }
};

/// Tokens that are in shared memory at a time.
template <class Shape>
inline constexpr int tokens_at_a_time = 1024 / Shape::keys;

template <class Shape>
struct token_memory {
  static constexpr int count = tokens_at_a_time<Shape>;
  float rows[count][token_rows::count][Shape::keys];
  float value[count][Shape::columns];
  float beta[count];
  step_kind kind[count];

  __device__ __forceinline__ token_rows rows_of(int i) {
    return token_rows::at(&rows[i][0][0], Shape::keys);
  }
};

/// The operands of one value head of a sequence.
template <class Element, class Shape>
class token_reader {
 public:
  __device__ token_reader(const delta_rule_kernel_args& args, const sequence& tokens,
                          std::int64_t head)
      : args_(args),
        tokens_(tokens),
        gate_(args.gate, head),
        head_(head),
        key_head_(head / (args.value_heads / args.key_heads)) {}

  /// Rows of steps [first, first + steps).
  __device__ void load_rows(token_memory<Shape>& to, std::int64_t first, int steps) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = static_cast<int>(threadIdx.x) / 32; i < steps; i += Shape::warps) {
      const bool pads = tokens_.is_padding(first + i);
      if (lane == 0) {
        to.kind[i] = pads                             ? step_kind::padding
                     : tokens_.starts_anew(first + i) ? step_kind::starts_anew
                                                      : step_kind::goes_on;
      }
      if (pads) continue;
      load_token(to.rows_of(i), tokens_.token(first + i));
      if (lane == 0) to.beta[i] = beta(tokens_.token(first + i));
    }
  }

  /// Columns [column, column + columns of a tile) of v or d_out; those behind the last are 0.
  __device__ void load_columns(float (&to)[tokens_at_a_time<Shape>][Shape::columns],
                               const delta_rule_input& from, std::int64_t first, int steps,
                               std::int64_t column, bool activates) const {
    for (int at = static_cast<int>(threadIdx.x); at < steps * Shape::columns;
         at += Shape::threads) {
      const int i = at / Shape::columns, j = at % Shape::columns;
      float x = 0.0f;
      if (column + j < args_.value_dim && !tokens_.is_padding(first + i)) {
        x = element_at(from, tokens_.token(first + i), head_, column + j);
      }
      to[i][j] = activates ? silu(x) : x;
    }
  }

  /// An element of q, k, read or write.
  __device__ __forceinline__ float operand_at(const delta_rule_input& from, std::int64_t token,
                                              int channel) const {
    const float x = element_at(from, token, key_head_, channel);
    return args_.activates ? silu(x) : x;
  }
  /// Calls body(channel) for the lane's channels of the rows, those behind the keys too.
  template <class Body>
  static __device__ __forceinline__ void for_each_channel(const Body& body) {
#pragma unroll 1
    for (int c = static_cast<int>(threadIdx.x) % 32; c < Shape::keys; c += 32) body(c);
  }
  __device__ __forceinline__ std::int64_t key_head() const {
    return key_head_;
  }
  __device__ __forceinline__ const head_gate<device_code>& gate() const {
    return gate_;
  }

  __device__ __forceinline__ float element_at(const delta_rule_input& from, std::int64_t token,
                                              std::int64_t head, std::int64_t column) const {
    const auto* const elements = static_cast<const Element*>(from.data);
    return prim::cuda::float_of(elements[row_of(from, tokens_.entry, token, head) + column]);
  }
  __device__ __forceinline__ float beta(std::int64_t token) const {
    if (args_.beta.data == nullptr) return 0.0f;
    return beta_of<device_code>(
        args_, prim::cuda::number_at(args_.beta.data, args_.beta.type,
                                     row_of(args_.beta, tokens_.entry, token, head_)));
  }

 private:
  /// Elements times `factor`, and 1 over their length if they are normalised.
  __device__ void load_operand(float* to, const delta_rule_input& from, std::int64_t token,
                               bool normalizes, float factor) const {
    float sum = 0.0f;
    for_each_channel([&](int c) {
      to[c] = c < args_.key_dim ? operand_at(from, token, c) : 0.0f;
      sum = fmaf(to[c], to[c], sum);
    });
    if (normalizes) factor *= inverse_length(sum);
    if (factor == 1.0f) return;
    for_each_channel([&](int c) { to[c] *= factor; });
  }
  __device__ void load_token(const token_rows& to, std::int64_t token) const {
    load_operand(to.query, args_.q, token, args_.normalizes, args_.scale);
    load_operand(to.key, args_.k, token, args_.normalizes, 1.0f);
    load_decay(to.decay, token);
    if (args_.update == delta_rule_update::delta) return;
    load_operand(to.read, args_.read, token, false, 1.0f);
    load_operand(to.write, args_.write, token, false, 1.0f);
    if (args_.update == delta_rule_update::low_rank) return;
    for_each_channel([&](int c) {
      to.write[c] *= to.read[c];
      to.read[c] = -to.read[c];
    });
  }

  __device__ void load_decay(float* to, std::int64_t token) const {
    const delta_rule_input& decay = args_.decay;
    const std::int64_t at = row_of(decay, tokens_.entry, token, head_);
    if (decay.data == nullptr || !args_.decay_has_channels) {
      float factor = 1.0f;
      if (decay.data != nullptr) {
        factor = expf(gate_.log_decay(prim::cuda::number_at(decay.data, decay.type, at), 0));
      }
      return for_each_channel([&](int c) { to[c] = factor; });
    }
    for_each_channel([&](int c) {
      to[c] = c < args_.key_dim
                  ? expf(gate_.log_decay(prim::cuda::number_at(decay.data, decay.type, at + c), c))
                  : 1.0f;
    });
  }

  const delta_rule_kernel_args& args_;
  const sequence& tokens_;
  head_gate<device_code> gate_;
  std::int64_t head_, key_head_;
};

}  // namespace tessera::kernels::delta_rule::sm80
