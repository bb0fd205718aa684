// Tokens of a loss on a GPU: where their rows are, what they weigh, which class they have; and what
// becomes of all of them, summed up by one block in an order that sizes alone decide.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm80 {

/// A token by its number among all. Which nest and group it is in is found out for each offset,
/// where there are several: no register holds them beside a row.
struct token_place {
  const loss_tokens* tokens = nullptr;  ///< null: a row of a tensor of its own
  std::int64_t entry = 0;               ///< among those of all groups
  std::int64_t token = 0;

  __device__ __forceinline__ explicit token_place(std::int64_t row) : token(row) {}
  __device__ __forceinline__ token_place(const loss_tokens& all, std::int64_t row)
      : tokens(&all), entry(row / all.tokens), token(row - entry * all.tokens) {}

  __device__ __forceinline__ std::int64_t offset_in(const token_rows& rows) const {
    if (tokens == nullptr || (tokens->nests == 1 && tokens->groups == 1)) {
      return entry * rows.entry + token * rows.token;
    }
    const std::int64_t group = entry / tokens->entries, nest = group / tokens->groups;
    return nest * rows.nest + (group - nest * tokens->groups) * rows.group +
           (entry - group * tokens->entries) * rows.entry + token * rows.token;
  }
};

constexpr std::int64_t count_of(const loss_tokens& tokens) {
  return tokens.nests * tokens.groups * tokens.entries * tokens.tokens;
}

/// The class of a token; -1 where it is ignored or no class, or where there are shares instead.
__device__ __forceinline__ std::int64_t target_of(const loss_tokens& tokens,
                                                  const token_place& at) {
  if (tokens.targets.data == nullptr) return -1;
  const std::int64_t target =
      static_cast<const std::int32_t*>(tokens.targets.data)[at.offset_in(tokens.targets)];
  const bool counts = target != tokens.ignore_index && target >= 0 && target < tokens.classes;
  return counts ? target : -1;
}

/// What a token weighs; a product of a float and a byte is exact.
__device__ __forceinline__ double weight_of(const loss_tokens& tokens, const token_place& at) {
  if (tokens.targets.data != nullptr && target_of(tokens, at) < 0) return 0;
  double weight = 1;
  if (tokens.mask.data != nullptr) {
    weight = static_cast<const std::uint8_t*>(tokens.mask.data)[at.offset_in(tokens.mask)];
    if (weight == 0) return 0;
  }
  if (tokens.weights.data == nullptr) return weight;
  return weight * static_cast<double>(prim::cuda::number_at(
                      tokens.weights.data, tokens.weights.type, at.offset_in(tokens.weights)));
}

/// What a mean is divided by.
__device__ __forceinline__ double mean_divisor(double weight_sum) {
  return weight_sum < 1e-8 ? 1e-8 : weight_sum;
}

/// What multiplies the gradient of a token's loss: its weight and the gradient of the reduced loss.
/// `weight_sum` is read for means only.
__device__ __forceinline__ double gradient_factor(const loss_tokens& tokens, const token_place& at,
                                                  double weight, const double* weight_sum) {
  const auto* const d_loss = static_cast<const float*>(tokens.d_loss.data);
  const double factor = weight * static_cast<double>(d_loss[at.offset_in(tokens.d_loss)]);
  return tokens.reduction == loss_reduction::mean ? factor / mean_divisor(*weight_sum) : factor;
}

/// What a token's row gives, times its weight.
struct token_value {
  double loss = 0;
  double beside = 0;  ///< what is reduced like the loss: z part, entropy of the teacher
  double weight = 0;
  double correct = 0;

  __device__ __forceinline__ void add(const token_value& other) {
    loss += other.loss;
    beside += other.beside;
    weight += other.weight;
    correct += other.correct;
  }
};

/// Keeps the value of a token, and stores what is not reduced.
__device__ __forceinline__ void put_value(const loss_tokens& tokens, const token_rows& beside,
                                          const token_place& at, std::int64_t row,
                                          const token_value& value, token_value* values) {
  values[row] = value;
  if (tokens.reduction != loss_reduction::none) return;
  const auto put = [&](const token_rows& to, double x) {
    if (to.data == nullptr) return;
    static_cast<float*>(to.data)[at.offset_in(to)] = static_cast<float>(x);
  };
  put(tokens.loss, value.loss);
  put(beside, value.beside);
}

inline constexpr int total_threads = 1024;

/// The sum of a number of each thread of a block of `total_threads`, the same for all.
__device__ __forceinline__ double sum_of_block(double x) {
  __shared__ double of_warps[total_threads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(prim::cuda::all_lanes, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < total_threads / 32; ++warp) sum += of_warps[warp];
  return sum;
}

/// The outputs that all tokens share: one block.
static __global__ void __launch_bounds__(total_threads)
    total_values(const loss_tokens tokens, const token_rows beside, float* accuracy,
                 const token_value* values) {
  token_value own;
  for (std::int64_t row = threadIdx.x; row < count_of(tokens); row += total_threads) {
    own.add(values[row]);
  }
  const double loss = sum_of_block(own.loss), of_beside = sum_of_block(own.beside);
  const double weight = sum_of_block(own.weight), correct = sum_of_block(own.correct);
  if (threadIdx.x != 0) return;
  const double mean = mean_divisor(weight);
  if (tokens.weight_sum != nullptr) *tokens.weight_sum = static_cast<float>(weight);
  if (accuracy != nullptr) *accuracy = static_cast<float>(correct / mean);
  if (tokens.reduction == loss_reduction::none) return;
  const double divisor = tokens.reduction == loss_reduction::mean ? mean : 1;
  *static_cast<float*>(tokens.loss.data) = static_cast<float>(loss / divisor);
  if (beside.data == nullptr) return;
  *static_cast<float*>(beside.data) = static_cast<float>(of_beside / divisor);
}

/// The sum of all weights: one block.
static __global__ void __launch_bounds__(total_threads)
    total_weights(const loss_tokens tokens, double* weight_sum) {
  double own = 0;
  for (std::int64_t row = threadIdx.x; row < count_of(tokens); row += total_threads) {
    own += weight_of(tokens, token_place(tokens, row));
  }
  const double sum = sum_of_block(own);
  if (threadIdx.x == 0) *weight_sum = sum;
}

}  // namespace tessera::kernels::losses::sm80
