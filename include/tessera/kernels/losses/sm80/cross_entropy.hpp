// Cross entropy of logits in memory, and its gradients: a block, or a warp where rows are short,
// has a token's row. Forward reads it once; backward twice, the second time from shared memory as
// far as that reaches, and else from a cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/row_launch.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>

namespace tessera::kernels::losses::sm80 {

/// Whether the logit of the target is the first of the largest: a look at the classes before it
/// where it is one of them. Asked by all of a team.
__device__ __forceinline__ bool is_first_largest(const row_team& team, const row_units& units,
                                                 const unit_row& logits, std::int64_t target,
                                                 float of_target, float maximum) {
  if (!(of_target >= maximum)) return false;
  bool earlier = false;
  for (std::int64_t unit = team.thread; units.first(unit) < target; unit += team.threads) {
    float x[unit_size];
    logits.load(units, units.first(unit), minus_infinity, x);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      if (units.first(unit) + i < target && units.holds(units.first(unit) + i)) {
        earlier = earlier || x[i] >= of_target;
      }
    }
  }
  return !team.any(earlier);
}

/// What a thread adds up of a row of logits alone.
__device__ __forceinline__ logit_sums sums_of_logits(const row_team& team, const row_units& units,
                                                     const unit_row& logits) {
  logit_sums sums;
  logits.with_type([&]<class Element>(const Element* row) {
    for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
      float x[unit_size];
      logits.load_from(row, units, units.first(unit), minus_infinity, x);
      sums.add(x);
    }
  });
  return sums;
}

/// `Plain`: neither shares nor smoothing.
template <bool Plain>
__global__ void __launch_bounds__(256, Plain ? 5 : 4)
    cross_entropy_rows(const cross_entropy_kernel_args args, const entropy_terms terms,
                       const bool by_warp, token_value* values) {
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= count_of(args.tokens)) return;
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  if (weight == 0) {
    if (team.is_first()) put_value(args.tokens, args.form.z_part, at, row, {}, values);
    return;
  }
  const row_units units(args.logits, at, args.tokens.classes);
  const unit_row logits(args.logits, at, units), shares(args.soft_targets, at, units);
  logit_sums sums;
  if (Plain) sums = sums_of_logits(team, units, logits);
  for (std::int64_t unit = team.thread; !Plain && unit < units.count; unit += team.threads) {
    const std::int64_t first = units.first(unit);
    float x[unit_size];
    logits.load(units, first, minus_infinity, x);
    sums.add(x);
    if (terms.is_smoothed()) sums.add_differences(units, first, x);
    if (shares.data == nullptr) continue;
    float p[unit_size];
    shares.load(units, first, 0, p);
    sums.add_shares(x, p);
  }
  sums = sums_of_team(team, sums);
  const std::int64_t target = target_of(args.tokens, at);
  const float of_target = target < 0 ? 0.0f
                                     : prim::cuda::number_at(args.logits.data, args.logits.type,
                                                             at.offset_in(args.logits) + target);
  const bool correct = target >= 0 && args.form.accuracy != nullptr &&
                       is_first_largest(team, units, logits, target, of_target, sums.maximum);
  if (!team.is_first()) return;
  token_value value = entropy_value(terms, sums, target, of_target, weight);
  if (correct) value.correct = weight;
  put_value(args.tokens, args.form.z_part, at, row, value, values);
}

/// `Plain`: without shares.
template <bool Plain>
__global__ void __launch_bounds__(512, 2)
    cross_entropy_gradients(const cross_entropy_kernel_args args, const entropy_terms terms,
                            const bool by_warp, const int kept_units, const double* weight_sum) {
  extern __shared__ uint4 kept_words[];
  const row_team team(by_warp);
  const std::int64_t row = team.row();
  if (row >= count_of(args.tokens)) return;
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  const row_units units(args.logits, at, args.tokens.classes);
  const unit_row logits(args.logits, at, units), shares(args.soft_targets, at, units);
  const unit_row d_logits(args.d_logits, at, units), d_shares(args.d_soft_targets, at, units);
  if (weight == 0) {
    for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
      d_logits.clear(units, units.first(unit));
      if (d_shares.data != nullptr) d_shares.clear(units, units.first(unit));
    }
    return;
  }
  const kept_row kept(kept_words, args.logits.type, kept_units);
  logit_sums sums;
  for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
    float x[unit_size];
    logits.load(units, units.first(unit), minus_infinity, x);
    if (unit < kept_units) kept.put(unit, x);
    sums.add(x);
    if (Plain) continue;
    float p[unit_size];
    shares.load(units, units.first(unit), 0, p);
    sums.add_shares(x, p);
  }
  sums = sums_of_team(team, sums);
  const std::int64_t target = target_of(args.tokens, at);
  const logit_gradient gradient =
      logit_gradient::of(terms, sums, target, gradient_factor(args.tokens, at, weight, weight_sum));
  for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
    const std::int64_t first = units.first(unit);
    float x[unit_size], d_x[unit_size];
    if (unit < kept_units) {
      kept.get(unit, x);
    } else {
      logits.load(units, first, minus_infinity, x);
    }
#pragma unroll
    for (int i = 0; i < unit_size; ++i) d_x[i] = gradient.at(x[i]);
    if (target >= first && target < first + unit_size) {
#pragma unroll
      for (int i = 0; i < unit_size; ++i) {
        if (first + i == target) d_x[i] -= gradient.at_target;
      }
    }
    if (!Plain) {
      float p[unit_size];
      shares.load(units, first, 0, p);
#pragma unroll
      for (int i = 0; i < unit_size; ++i) d_x[i] = fmaf(p[i], -gradient.share_factor, d_x[i]);
      if (d_shares.data != nullptr) {
#pragma unroll
        for (int i = 0; i < unit_size; ++i) p[i] = gradient.of_share(x[i]);
        d_shares.store(units, first, p);
      }
    }
    d_logits.store(units, first, d_x);
  }
}

/// A launch of either direction.
template <bool Backward>
class cross_entropy_row {
 public:
  cross_entropy_row(const losses_kernel_args& args, std::byte* workspace)
      : args_(args.cross_entropy), memory_(args_.tokens, Backward, workspace) {}

  static auto entries() {
    if constexpr (Backward) {
      return std::array{cuda::entry_of(&cross_entropy_gradients<true>, most_kept_bytes),
                        cuda::entry_of(&cross_entropy_gradients<false>, most_kept_bytes),
                        cuda::entry_of(&total_weights)};
    } else {
      return std::array{cuda::entry_of(&cross_entropy_rows<true>),
                        cuda::entry_of(&cross_entropy_rows<false>), cuda::entry_of(&total_values)};
    }
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) const {
    const entropy_terms terms = entropy_terms::of(args_.form, args_.tokens.classes);
    const bool soft = args_.soft_targets.data != nullptr;
    row_launch rows(args_.tokens, stream);
    if constexpr (Backward) {
      const row_grid grid = row_grid::of_kept(args_.tokens, args_.logits.type);
      rows.sum_weights(memory_);
      rows.run(soft ? &cross_entropy_gradients<false> : &cross_entropy_gradients<true>, grid, args_,
               terms, grid.by_warp, grid.kept_units,
               static_cast<const double*>(memory_.weight_sum));
    } else {
      const row_grid grid = row_grid::of(args_.tokens, 256, 16384);
      rows.run(
          soft || terms.elsewhere != 0 ? &cross_entropy_rows<false> : &cross_entropy_rows<true>,
          grid, args_, terms, grid.by_warp, memory_.values);
      rows.total(memory_, args_.form.z_part, args_.form.accuracy);
    }
    return rows.code();
  }

 private:
  const cross_entropy_kernel_args& args_;
  row_memory memory_;
};

}  // namespace tessera::kernels::losses::sm80
