// What a few steps take of their tokens, in shared memory, as floats: rows over the channels of the
// keys, with zeros behind them, and columns of a tile. A warp makes the rows of a token.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::row_of;
using recurrence::sequence;
using recurrence::sequence_of;
using recurrence::sequences_with_rest;
using recurrence::sm80::column_values;
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
inline constexpr int tokens_at_a_time = 1024 / Shape::keys;

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
      : args_(args), tokens_(tokens), head_(head), kv_head_(head / (args.heads / args.kv_heads)) {
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

  /// Rows of steps [first, first + steps).
  __device__ void load_rows(token_memory<Shape>& to, std::int64_t first, int steps) const {
    for (int i = static_cast<int>(threadIdx.x) / 32; i < steps; i += Shape::warps) {
      const std::int64_t token = tokens_.token(first + i);
      const token_rows rows = to.rows_of(i);
      const std::int64_t q = row_of(args_.q, tokens_.entry, token, head_);
      const std::int64_t k = row_of(args_.k, tokens_.entry, token, kv_head_);
      float bonus = 0.0f;
      for_each_channel([&](int c) {
        const bool used = c < args_.keys;
        rows.query[c] =
            used ? args_.scale * prim::cuda::number_at(args_.q.data, args_.q.type, q + c) : 0.0f;
        rows.key[c] = used ? prim::cuda::number_at(args_.k.data, args_.k.type, k + c) : 0.0f;
        if (args_.u.data != nullptr) bonus = fmaf(rows.query[c] * to.u[c], rows.key[c], bonus);
      });
      load_decay(rows.decay, token);
      if (args_.u.data == nullptr) continue;
      bonus = prim::cuda::sum_of_warp(bonus);
      if (threadIdx.x % 32 == 0) to.bonus[i] = bonus;
    }
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
  __device__ void load_decay(float* to, std::int64_t token) const {
    float of_head = gamma_;
    if (args_.g.data != nullptr) {
      of_head += prim::cuda::number_at(args_.g.data, args_.g.type,
                                       row_of(args_.g, tokens_.entry, token, head_));
    }
    if (args_.gk.data == nullptr) {
      const float factor = expf(of_head);
      return for_each_channel([&](int c) { to[c] = factor; });
    }
    const std::int64_t row = row_of(args_.gk, tokens_.entry, token, head_);
    for_each_channel([&](int c) {
      to[c] = 1.0f;
      if (c >= args_.keys) return;
      const float x = prim::cuda::number_at(args_.gk.data, args_.gk.type, row + c);
      to[c] = expf((args_.raw_decay ? log_decay_of_raw(x) : x) + of_head);
    });
  }

  const chunked_scan_kernel_args& args_;
  const sequence& tokens_;
  std::int64_t head_, kv_head_;
  float gamma_ = 0.0f;
};

}  // namespace tessera::kernels::chunked_scan::sm80
