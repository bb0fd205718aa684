// What a few steps take of their tokens, in shared memory, as floats: rows over the channels of the
// keys, with zeros behind them, and columns of a tile. A warp makes the rows of a token.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/lane_rows.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::row_of;
using recurrence::sequence;
using recurrence::sequence_of;
using recurrence::sequences_with_rest;
using recurrence::sm80::column_values;
using recurrence::sm80::fetched_rows;
using recurrence::sm80::row_source;
using recurrence::sm80::state_tile;
using recurrence::sm80::thread_place;

/// Names the code that a sequence is found by.
struct device_code;

/// What a kernel is compiled for; without decays of keys their factors are 1.
enum class scan_kind : std::uint8_t {
  plain,
  value_decays,  ///< columns of a state decay too
  bonus,         ///< a token reads the state it finds, and itself through `u`
};

/// Rows of a token: what the step takes, or their gradients; that of `decay` is of its logarithm.
struct token_rows {
  float *query = nullptr, *key = nullptr, *decay = nullptr;
  float* bonus = nullptr;  ///< gradients: what the token adds to that of u
  static constexpr int count = 4;
  static __device__ __forceinline__ token_rows at(float* rows, int keys) {
    return {rows, rows + keys, rows + 2 * keys, rows + 3 * keys};
  }
};

/// Tokens that are in shared memory at a time.
template <class Shape>
inline constexpr int tokens_at_a_time = Shape::tokens;

template <class Shape>
struct token_memory {
  static constexpr int count = tokens_at_a_time<Shape>;
  float rows[count][token_rows::count][Shape::keys];
  float u[Shape::keys];
  float value[count][Shape::columns], value_decay[count][Shape::columns];
  float bonus[count];  ///< q . (u k)

  __device__ __forceinline__ token_rows rows_of(int i) {
    return token_rows::at(&rows[i][0][0], Shape::keys);
  }
};

/// -exp(x), the log decay that raw numbers stand for; finite, for a decay of -exp(80) is as good as
/// any that forgets.
__device__ __forceinline__ float log_decay_of_raw(float x) {
  return -expf(x > 80.0f ? 80.0f : x);
}

/// The operands of one head of a sequence.
template <class Shape>
class token_reader {
 public:
  __device__ token_reader(const chunked_scan_kernel_args& args, const sequence& tokens,
                          std::int64_t head)
      : args_(args),
        tokens_(tokens),
        head_(head),
        kv_head_(recurrence::shared_head(head, args.heads, args.kv_heads)) {
    if (args.g_gamma != nullptr && !tokens.is_rest) {
      gamma_ = args.g_gamma[tokens.number * args.gamma_sequence + head * args.gamma_head];
    }
  }

  __device__ void load_bonus(token_memory<Shape>& to) const {
    if (args_.u.data == nullptr || threadIdx.x >= 32) return;
    for_each_channel([&](int c) {
      to.u[c] = c < args_.keys
                    ? prim::cuda::number_at(args_.u.data, args_.u.type, head_ * args_.u.head + c)
                    : 0.0f;
    });
  }

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
    load_values(to, first, steps, column);
  }
  /// The same of one step, as the first in shared memory, in two halves. In place of the bonus,
  /// `u`.
  __device__ __forceinline__ void fetch_step(fetched_rows<Shape>& rows, std::int64_t step,
                                             std::int64_t column) const {
    rows.fetch(row_count(), [&](int row) {
      return row == 4 ? recurrence::sm80::source_in(args_.u, head_ * args_.u.head, args_.keys)
                      : source_of(row, step, column);
    });
  }
  __device__ __forceinline__ void make_step(token_memory<Shape>& to,
                                            const fetched_rows<Shape>& rows, std::int64_t step,
                                            std::int64_t column) const {
    rows.for_each_row(row_count(), [&](int row, const auto& elements) {
      if (row != 4) return make_row(to, 0, row, step, elements);
      elements.template for_each<Shape::keys>(args_.u.type, [&](int c, float x) { to.u[c] = x; });
    });
    if (args_.gv.data != nullptr) {
      load_columns(to.value_decay, args_.gv, head_, step, 1, column, true);
    }
  }
  /// The bonus of a step that was made so, in each lane of a warp, once all warps have.
  static __device__ __forceinline__ float bonus_of(token_memory<Shape>& of) {
    const token_rows rows = of.rows_of(0);
    float bonus = 0.0f;
    for_each_channel([&](int c) { bonus = fmaf(rows.query[c] * of.u[c], rows.key[c], bonus); });
    return prim::cuda::sum_of_warp(bonus);
  }

  /// Columns [column, column + columns of a tile) of a head of v, d_out or gv, of which they are
  /// factors; 0 behind the last.
  __device__ void load_columns(float (&to)[tokens_at_a_time<Shape>][Shape::columns],
                               const chunked_scan_rows& from, std::int64_t head, std::int64_t first,
                               int steps, std::int64_t column, bool decays = false) const {
    for (int at = static_cast<int>(threadIdx.x); at < steps * Shape::columns;
         at += Shape::threads) {
      const int i = at / Shape::columns, j = at % Shape::columns;
      float x = 0.0f;
      if (column + j < args_.values) {
        const std::int64_t row = row_of(from, tokens_.entry, tokens_.token(first + i), head);
        x = prim::cuda::number_at(from.data, from.type, row + column + j);
        if (decays) x = expf(x);
      }
      to[i][j] = x;
    }
  }
  /// Values and their decays.
  __device__ void load_values(token_memory<Shape>& to, std::int64_t first, int steps,
                              std::int64_t column) const {
    load_columns(to.value, args_.v, kv_head_, first, steps, column);
    if (args_.gv.data == nullptr) return;
    load_columns(to.value_decay, args_.gv, head_, first, steps, column, true);
  }

  /// Calls body(channel) for the lane's channels of the rows, those behind the keys too.
  template <class Body>
  static __device__ __forceinline__ void for_each_channel(const Body& body) {
#pragma unroll 1
    for (int c = static_cast<int>(threadIdx.x) % 32; c < Shape::keys; c += 32) body(c);
  }
  __device__ __forceinline__ std::int64_t kv_head() const {
    return kv_head_;
  }

 private:
  /// Row 0, the values of a tile's columns, 1, the query, 2, the key, 3, the decay, or 4, the query
  /// that makes the bonus.
  __device__ __forceinline__ int row_count() const {
    return args_.u.data != nullptr ? 5 : 4;
  }
  __device__ __forceinline__ row_source source_of(int row, std::int64_t step,
                                                  std::int64_t column) const {
    const std::int64_t token = tokens_.token(step);
    const auto in = [&](const chunked_scan_rows& rows, std::int64_t head, std::int64_t count) {
      return recurrence::sm80::source_in(rows, row_of(rows, tokens_.entry, token, head), count);
    };
    if (row == 0) {
      row_source values = in(args_.v, kv_head_, args_.values - column);
      values.first += column;
      return values;
    }
    if (row == 2) return in(args_.k, kv_head_, args_.keys);
    if (row != 3) return in(args_.q, head_, args_.keys);
    return args_.gk.data != nullptr ? in(args_.gk, head_, args_.keys) : in(args_.g, head_, 1);
  }
  /// A row of token i in shared memory.
  template <class Row>
  __device__ void make_row(token_memory<Shape>& to, int i, int row, std::int64_t step,
                           const Row& elements) const {
    const token_rows rows = to.rows_of(i);
    if (row == 0) {
      if constexpr (Shape::columns >= 32) {
        elements.template for_each<Shape::columns>(args_.v.type,
                                                   [&](int c, float x) { to.value[i][c] = x; });
      }
    } else if (row == 1) {
      elements.template for_each<Shape::keys>(
          args_.q.type, [&](int c, float x) { rows.query[c] = args_.scale * x; });
    } else if (row == 2) {
      elements.template for_each<Shape::keys>(args_.k.type,
                                              [&](int c, float x) { rows.key[c] = x; });
    } else if (row == 3) {
      make_decay(rows.decay, tokens_.token(step), elements);
    } else {
      make_bonus(to, i, step, elements);
    }
  }
  template <class Row>
  __device__ void make_bonus(token_memory<Shape>& to, int i, std::int64_t step,
                             const Row& elements) const {
    const std::int64_t k = row_of(args_.k, tokens_.entry, tokens_.token(step), kv_head_);
    float bonus = 0.0f;
    elements.template for_each<Shape::keys>(args_.q.type, [&](int c, float x) {
      if (c >= args_.keys) return;
      const float key = prim::cuda::number_at(args_.k.data, args_.k.type, k + c);
      bonus = fmaf(args_.scale * x * to.u[c], key, bonus);
    });
    bonus = prim::cuda::sum_of_warp(bonus);
    if (threadIdx.x % 32 == 0) to.bonus[i] = bonus;
  }
  template <class Row>
  __device__ void make_decay(float* to, std::int64_t token, const Row& elements) const {
    float of_head = gamma_;
    if (args_.gk.data == nullptr) {
      elements.template for_each<32>(args_.g.type, [&](int c, float x) {
        if (c == 0) of_head += x;
      });
      const float factor = expf(__shfl_sync(prim::cuda::all_lanes, of_head, 0));
      return for_each_channel([&](int c) { to[c] = factor; });
    }
    if (args_.g.data != nullptr) {
      of_head += prim::cuda::number_at(args_.g.data, args_.g.type,
                                       row_of(args_.g, tokens_.entry, token, head_));
    }
    elements.template for_each<Shape::keys>(args_.gk.type, [&](int c, float x) {
      const float decay = expf((args_.raw_decay ? log_decay_of_raw(x) : x) + of_head);
      to[c] = c < args_.keys ? decay : 1.0f;
    });
  }

  const chunked_scan_kernel_args& args_;
  const sequence& tokens_;
  std::int64_t head_, kv_head_;
  float gamma_ = 0.0f;
};

}  // namespace tessera::kernels::chunked_scan::sm80
