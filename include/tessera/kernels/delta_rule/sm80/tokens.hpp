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
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/recurrence/sm80/lane_rows.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::fetched_rows;
using recurrence::sm80::row_source;

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
inline constexpr int tokens_at_a_time = Shape::tokens;

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
  static constexpr dtype operand_type = std::is_same_v<Element, bf16>  ? dtype::bf16
                                        : std::is_same_v<Element, f16> ? dtype::f16
                                                                       : dtype::f32;

 public:
  __device__ token_reader(const delta_rule_kernel_args& args, const sequence& tokens,
                          std::int64_t head)
      : args_(args),
        tokens_(tokens),
        gate_(args.gate, head),
        head_(head),
        key_head_(recurrence::shared_head(head, args.value_heads, args.key_heads)) {}

  /// Rows of steps [first, first + steps), a warp each.
  __device__ void load_rows(token_memory<Shape>& to, std::int64_t first, int steps) const {
    const int rows = row_count() - 1;
    for (int item = static_cast<int>(threadIdx.x) / 32; item < steps * rows; item += Shape::warps) {
      const int i = item / rows, row = item % rows + 1;
      make_row(to, i, row, first + i,
               recurrence::sm80::row_in_memory{source_of(row, first + i, 0)});
    }
  }
  /// And the values of a tile's columns.
  __device__ void load_steps(token_memory<Shape>& to, std::int64_t first, int steps,
                             std::int64_t column) const {
    load_rows(to, first, steps);
    load_columns(to.value, args_.v, first, steps, column, args_.activates);
  }
  /// The same of one step, as the first in shared memory, in two halves.
  __device__ __forceinline__ void fetch_step(fetched_rows<Shape>& rows, std::int64_t step,
                                             std::int64_t column) const {
    rows.fetch(row_count(), [&](int row) { return source_of(row, step, column); });
  }
  __device__ __forceinline__ void make_step(token_memory<Shape>& to,
                                            const fetched_rows<Shape>& rows,
                                            std::int64_t step) const {
    rows.for_each_row(row_count(),
                      [&](int row, const auto& elements) { make_row(to, 0, row, step, elements); });
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
  /// Row 0, the values of a tile's columns, 1, the query, 2, the key, 3, the decay, 4, beta, 5,
  /// `read`, or 6, `write`.
  __device__ __forceinline__ int row_count() const {
    return args_.update == delta_rule_update::delta ? 5 : 7;
  }
  __device__ __forceinline__ row_source source_of(int row, std::int64_t step,
                                                  std::int64_t column) const {
    if (tokens_.is_padding(step)) return {};
    const std::int64_t token = tokens_.token(step);
    const auto in = [&](const delta_rule_input& rows, std::int64_t head, std::int64_t count) {
      return recurrence::sm80::source_in(rows, row_of(rows, tokens_.entry, token, head), count);
    };
    if (row == 0) {
      row_source values = in(args_.v, head_, args_.value_dim - column);
      values.first += column;
      return values;
    }
    if (row == 3) return in(args_.decay, head_, args_.decay_has_channels ? args_.key_dim : 1);
    if (row == 4) return in(args_.beta, head_, 1);
    return in(row == 1   ? args_.q
              : row == 2 ? args_.k
              : row == 5 ? args_.read
                         : args_.write,
              key_head_, args_.key_dim);
  }
  /// A row of token i in shared memory.
  template <class Row>
  __device__ void make_row(token_memory<Shape>& to, int i, int row, std::int64_t step,
                           const Row& elements) const {
    const bool pads = tokens_.is_padding(step);
    if (row == 4 && threadIdx.x % 32 == 0) {
      to.kind[i] = pads                        ? step_kind::padding
                   : tokens_.starts_anew(step) ? step_kind::starts_anew
                                               : step_kind::goes_on;
    }
    if (pads) return;
    const token_rows rows = to.rows_of(i);
    const bool multiplies = args_.update == delta_rule_update::multiplicative;
    if (row == 0) {
      if constexpr (Shape::columns >= 32) {
        elements.template for_each<Shape::columns>(
            args_.v.type, [&](int c, float x) { to.value[i][c] = args_.activates ? silu(x) : x; });
      }
    } else if (row == 1) {
      make_operand(rows.query, elements, args_.normalizes, args_.scale);
    } else if (row == 2) {
      make_operand(rows.key, elements, args_.normalizes, 1.0f);
    } else if (row == 3) {
      make_decay(rows.decay, elements);
    } else if (row == 4) {
      const float raw = first_of(elements, args_.beta.type);
      if (threadIdx.x % 32 == 0) {
        to.beta[i] = args_.beta.data == nullptr ? 0.0f : beta_of<device_code>(args_, raw);
      }
    } else if (row == 5) {
      make_operand(rows.read, elements, false, multiplies ? -1.0f : 1.0f);
    } else if (!multiplies) {
      make_operand(rows.write, elements, false, 1.0f);
    } else {
      const std::int64_t token = tokens_.token(step);
      elements.template for_each<Shape::keys>(operand_type, [&](int c, float x) {
        const float read = c < args_.key_dim ? operand_at(args_.read, token, c) : 0.0f;
        rows.write[c] = read * (args_.activates ? silu(x) : x);
      });
    }
  }

  /// Elements times `factor`, and 1 over their length if they are normalised.
  template <class Row>
  __device__ void make_operand(float* to, const Row& elements, bool normalizes,
                               float factor) const {
    float sum = 0.0f;
    elements.template for_each<Shape::keys>(operand_type, [&](int c, float x) {
      to[c] = args_.activates ? silu(x) : x;
      sum = fmaf(to[c], to[c], sum);
    });
    if (normalizes) factor *= inverse_length(sum);
    if (factor == 1.0f) return;
    for_each_channel([&](int c) { to[c] *= factor; });
  }
  /// The only number of a row, in all lanes.
  template <class Row>
  __device__ __forceinline__ float first_of(const Row& elements, dtype type) const {
    float first = 0.0f;
    elements.template for_each<32>(type, [&](int, float x) { first = x; });
    return __shfl_sync(prim::cuda::all_lanes, first, 0);
  }
  template <class Row>
  __device__ void make_decay(float* to, const Row& elements) const {
    const dtype type = args_.decay.type;
    if (args_.decay.data == nullptr || !args_.decay_has_channels) {
      float factor = 1.0f;
      if (args_.decay.data != nullptr) {
        factor = expf(gate_.log_decay(first_of(elements, type), 0));
      }
      return for_each_channel([&](int c) { to[c] = factor; });
    }
    elements.template for_each<Shape::keys>(type, [&](int c, float x) {
      to[c] = c < args_.key_dim ? expf(gate_.log_decay(x, c)) : 1.0f;
    });
  }

  const delta_rule_kernel_args& args_;
  const sequence& tokens_;
  head_gate<device_code> gate_;
  std::int64_t head_, key_head_;
};

}  // namespace tessera::kernels::delta_rule::sm80
