// Tokens of a product on a GPU: those that count lie one behind the other, whatever lies between
// them in memory; and what is known of their logits, some classes after the others.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::losses::sm80 {

/// Which tokens count.
struct active_tokens {
  std::int32_t* count = nullptr;   ///< their number
  std::int64_t* rows = nullptr;    ///< theirs among all tokens, in order
  std::int64_t* places = nullptr;  ///< of all tokens: the number among these; -1: none
};

/// What is known of the logits of a token.
struct linear_row {
  logit_sums sums;
  float of_target = 0;
  float before = minus_infinity;  ///< the largest logit of a class below the target
};

/// What makes gradients of them.
struct linear_gradient {
  logit_gradient of_logits;
  std::int64_t target = 0;
};

/// Logits of classes [first, first + count) of all tokens that count, without the cap.
struct logit_chunk {
  float* logits = nullptr;
  std::int64_t stride = 0;
  std::int64_t first = 0, count = 0;

  __device__ __forceinline__ token_rows rows() const {
    return {.data = logits, .type = dtype::f32, .token = stride};
  }
};

/// Where a token's largest logit is kept, and behind it the sum of powers relative to it.
__device__ __forceinline__ float* sums_at(const token_rows& rows, const token_place& at) {
  return static_cast<float*>(rows.data) + at.offset_in(rows);
}
__device__ __forceinline__ void save_sums(const token_rows& rows, const token_place& at,
                                          float maximum, float powers) {
  if (rows.data == nullptr) return;
  float* const to = sums_at(rows, at);
  to[0] = maximum, to[1] = powers;
}

/// Finds them: one block. Values of the others, which are all 0, are kept (null: none are), and so
/// are their sums.
static __global__ void __launch_bounds__(total_threads)
    find_active(const loss_tokens tokens, const token_rows beside, const token_rows sums,
                const active_tokens active, token_value* values) {
  __shared__ int of_warps[total_threads / 32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  std::int64_t found = 0;
  for (std::int64_t first = 0; first < count_of(tokens); first += total_threads) {
    const std::int64_t row = first + threadIdx.x;
    bool counts = false;
    if (row < count_of(tokens)) {
      const token_place at(tokens, row);
      counts = weight_of(tokens, at) != 0;
      if (!counts && values != nullptr) {
        put_value(tokens, beside, at, row, {}, values);
        save_sums(sums, at, 0, 0);
      }
    }
    const unsigned ballot = __ballot_sync(prim::cuda::all_lanes, counts);
    __syncthreads();
    if (lane == 0) of_warps[warp] = __popc(ballot);
    __syncthreads();
    std::int64_t place = found + __popc(ballot & ((1u << lane) - 1));
    for (int w = 0; w < total_threads / 32; ++w) {
      if (w < warp) place += of_warps[w];
      found += of_warps[w];
    }
    if (row >= count_of(tokens)) continue;
    active.places[row] = counts ? place : -1;
    if (counts) active.rows[place] = row;
  }
  if (threadIdx.x == 0) *active.count = static_cast<std::int32_t>(found);
}

/// Their hidden rows, `backwards` from the last column to the first: a block has a token.
template <class Element>
__global__ void __launch_bounds__(256)
    gather_hidden(const linear_cross_entropy_kernel_args args, const active_tokens active,
                  Element* hidden, const std::int64_t stride, const bool backwards) {
  const std::int64_t row = blockIdx.x, place = active.places[row];
  if (place < 0) return;
  const std::int64_t from = token_place(args.tokens, row).offset_in(args.hidden);
  for (std::int64_t column = threadIdx.x; column < args.columns; column += blockDim.x) {
    const std::int64_t to = backwards ? args.columns - 1 - column : column;
    hidden[place * stride + to] = prim::nearest<Element>(
        prim::cuda::number_at(args.hidden.data, args.hidden.type, from + column));
  }
}

/// d_hidden of all tokens, from rows as `gather_hidden` leaves them; zeros for those that do not
/// count.
static __global__ void __launch_bounds__(256)
    scatter_hidden(const linear_cross_entropy_kernel_args args, const active_tokens active,
                   const float* sums, const std::int64_t stride, const bool backwards) {
  const std::int64_t row = blockIdx.x, place = active.places[row];
  const std::int64_t to = token_place(args.tokens, row).offset_in(args.d_hidden);
  for (std::int64_t column = threadIdx.x; column < args.columns; column += blockDim.x) {
    const std::int64_t from = backwards ? args.columns - 1 - column : column;
    const float x = place < 0 ? 0.0f : sums[place * stride + from];
    prim::cuda::put_number(args.d_hidden.data, args.d_hidden.type, to + column, x);
  }
}

/// A logit as it is compared with targets.
__device__ __forceinline__ float capped(float x, float cap) {
  return cap == 0 ? x : cap * tanhf(x / cap);
}
/// The derivative of the cap. That is 1 - tanh^2, of which nothing would be left where tanh is
/// nearly 1: 4 e / (1 + e)^2 with e = exp(-2 |x / cap|).
__device__ __forceinline__ float slope_of_cap(float x, float cap) {
  if (cap == 0) return 1;
  const float e = prim::cuda::exp2_fast(fabsf(x) * (-2 * prim::log2_e / cap));
  return 4 * e / ((1 + e) * (1 + e));
}

/// Adds the logits of a chunk to what is known of their tokens; the first chunk begins it.
static __global__ void __launch_bounds__(512, 2)
    add_logits(const linear_cross_entropy_kernel_args args, const active_tokens active,
               const logit_chunk chunk, const bool smoothed, const bool by_warp,
               linear_row* known) {
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= *active.count) return;
  const std::int64_t target = target_of(args.tokens, token_place(args.tokens, active.rows[row]));
  const row_units units(chunk.rows(), token_place(row), chunk.count);
  const unit_row logits(chunk.rows(), token_place(row), units);
  linear_row own;
  for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
    const std::int64_t first = units.first(unit);
    float x[unit_size];
    logits.load(units, first, minus_infinity, x);
    if (args.soft_cap != 0) {
#pragma unroll
      for (int i = 0; i < unit_size; ++i) {
        x[i] = units.holds(first + i) ? capped(x[i], args.soft_cap) : minus_infinity;
      }
    }
    own.sums.add(x);
    if (smoothed) own.sums.add_differences(units, first, x);
    if (chunk.first + first > target) continue;
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      if (chunk.first + first + i < target) own.before = fmaxf(own.before, x[i]);
    }
  }
  own.sums = sums_of_team(team, own.sums);
  own.before = largest_of_team(team, own.before);
  if (!team.is_first()) return;
  linear_row all = own;
  if (chunk.first != 0) {
    all = known[row];
    all.sums.merge(own.sums);
    all.before = fmaxf(all.before, own.before);
  }
  if (target >= chunk.first && target < chunk.first + chunk.count) {
    all.of_target = capped(chunk.logits[row * chunk.stride + target - chunk.first], args.soft_cap);
  }
  known[row] = all;
}

inline constexpr int token_threads = 128;

/// The losses of tokens that count.
static __global__ void __launch_bounds__(token_threads)
    linear_values(const linear_cross_entropy_kernel_args args, const entropy_terms terms,
                  const active_tokens active, const linear_row* known, token_value* values) {
  const std::int64_t place = std::int64_t{blockIdx.x} * token_threads + threadIdx.x;
  if (place >= *active.count) return;
  const std::int64_t row = active.rows[place];
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  const linear_row own = known[place];
  const std::int64_t target = target_of(args.tokens, at);
  token_value value = entropy_value(terms, own.sums, target, own.of_target, weight);
  const bool correct = own.of_target >= own.sums.maximum && own.of_target > own.before;
  if (correct) value.correct = weight;
  put_value(args.tokens, args.form.z_part, at, row, value, values);
  save_sums(args.logit_sums, at, own.sums.maximum, own.sums.powers);
}

/// What makes gradients of the logits of tokens that count, from given sums if there are any.
static __global__ void __launch_bounds__(token_threads)
    linear_factors(const linear_cross_entropy_kernel_args args, const entropy_terms terms,
                   const active_tokens active, const linear_row* known, const double* weight_sum,
                   linear_gradient* gradients) {
  const std::int64_t place = std::int64_t{blockIdx.x} * token_threads + threadIdx.x;
  if (place >= *active.count) return;
  const token_place at(args.tokens, active.rows[place]);
  const std::int64_t target = target_of(args.tokens, at);
  const double factor = gradient_factor(args.tokens, at, weight_of(args.tokens, at), weight_sum);
  logit_sums sums;
  if (args.logit_sums.data == nullptr) {
    sums = known[place].sums;
  } else {
    const float* const given = sums_at(args.logit_sums, at);
    sums.maximum = given[0], sums.powers = given[1];
  }
  gradients[place] = {logit_gradient::of(terms, sums, target, factor), target};
}

/// The logits of a chunk become their gradients. `to` may be their memory.
template <class Element>
__global__ void __launch_bounds__(512, 2)
    chunk_gradients(const linear_cross_entropy_kernel_args args, const active_tokens active,
                    const logit_chunk chunk, const bool by_warp, const linear_gradient* gradients,
                    Element* to) {
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= *active.count) return;
  const row_units units(chunk.rows(), token_place(row), chunk.count);
  const unit_row logits(chunk.rows(), token_place(row), units);
  const unit_row d_logits({.data = to, .type = dtype_of<Element>::value, .token = chunk.stride},
                          token_place(row), units);
  const linear_gradient own = gradients[row];
  for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
    const std::int64_t first = units.first(unit);
    float x[unit_size];
    logits.load(units, first, minus_infinity, x);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      float d_x = own.of_logits.at(capped(x[i], args.soft_cap));
      if (chunk.first + first + i == own.target) d_x -= own.of_logits.at_target;
      x[i] = d_x * slope_of_cap(x[i], args.soft_cap);
    }
    d_logits.store(units, first, x);
  }
}

}  // namespace tessera::kernels::losses::sm80
