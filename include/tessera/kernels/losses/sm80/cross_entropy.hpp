// Cross entropy of logits in memory, and its gradients: a block, or a warp where rows are short,
// has a token's row. Forward reads it once; backward too where multiprocessors
// have room for it (kept_rows.hpp); with shares twice, the second time from shared memory as far as
// that reaches, and then from a cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/kept_rows.hpp>
#include <tessera/kernels/losses/sm80/row_chunks.hpp>
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

/// The loss of a team's row, from `sums_of(units, logits)`.
template <class SumsOf>
__device__ __forceinline__ void evaluate_row(const cross_entropy_kernel_args& args,
                                             const entropy_terms& terms, const row_team& team,
                                             token_value* values, const SumsOf& sums_of) {
  const std::int64_t row = team.row();
  if (row >= count_of(args.tokens)) return;
  const token_place at(args.tokens, row);
  const double weight = weight_of(args.tokens, at);
  if (weight == 0) {
    if (team.is_first()) put_value(args.tokens, args.form.z_part, at, row, {}, values);
    return;
  }
  const row_units units(args.logits, at, args.tokens.classes);
  const unit_row logits(args.logits, at, units);
  const logit_sums sums = sums_of_team(team, sums_of(at, units, logits));
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

/// `Plain`: neither shares nor smoothing.
template <bool Plain>
__global__ void __launch_bounds__(256, Plain ? 5 : 4)
    cross_entropy_rows(const cross_entropy_kernel_args args, const entropy_terms terms,
                       const bool by_warp, token_value* values) {
  const row_team team(by_warp);
  evaluate_row(args, terms, team, values,
               [&](const token_place& at, const row_units& units, const unit_row& logits) {
                 if (Plain) return sums_of_logits(team, units, logits);
                 const unit_row shares(args.soft_targets, at, units);
                 logit_sums sums;
                 for (std::int64_t unit = team.thread; unit < units.count; unit += team.threads) {
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
                 return sums;
               });
}

inline constexpr int streamed_threads = 256;

/// The same of long rows of one type: the next 64 bytes of each thread are on their way.
template <class Element>
__global__ void __launch_bounds__(streamed_threads, 4)
    streamed_rows(const cross_entropy_kernel_args args, const entropy_terms terms,
                  token_value* values) {
  const row_team team(false);
  evaluate_row(args, terms, team, values,
               [&](const token_place&, const row_units& units, const unit_row& logits) {
                 return sums_of_stream<4>(team, chunked_row<Element>(units, logits));
               });
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

/// Calls use(kernel of the logits' type) of a kernel template.
template <class Use>
void with_row_type(dtype type, const Use& use) {
  if (type == dtype::f32) return use(static_cast<float*>(nullptr));
  if (type == dtype::f16) return use(static_cast<f16*>(nullptr));
  use(static_cast<bf16*>(nullptr));
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
                        cuda::entry_of(&kept_gradients<float>),
                        cuda::entry_of(&kept_gradients<f16>),
                        cuda::entry_of(&kept_gradients<bf16>),
                        cuda::entry_of(&total_weights)};
    } else {
      return std::array{
          cuda::entry_of(&cross_entropy_rows<true>), cuda::entry_of(&cross_entropy_rows<false>),
          cuda::entry_of(&streamed_rows<float>),     cuda::entry_of(&streamed_rows<f16>),
          cuda::entry_of(&streamed_rows<bf16>),      cuda::entry_of(&total_values)};
    }
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) const {
    row_launch rows(args_.tokens, stream);
    if constexpr (Backward) {
      rows.sum_weights(memory_);
      differentiate(rows);
    } else {
      evaluate(rows);
      rows.total(memory_, args_.form.z_part, args_.form.accuracy);
    }
    return rows.code();
  }

 private:
  bool is_soft() const { return args_.soft_targets.data != nullptr; }
  entropy_terms terms() const { return entropy_terms::of(args_.form, args_.tokens.classes); }

  void evaluate(row_launch& rows) const {
    const row_grid grid = row_grid::of(args_.tokens, 256, 16384);
    const bool plain = !is_soft() && terms().elsewhere == 0;
    if (!plain || grid.by_warp) {
      return rows.run(plain ? &cross_entropy_rows<true> : &cross_entropy_rows<false>, grid, args_,
                      terms(), grid.by_warp, memory_.values);
    }
    with_row_type(args_.logits.type, [&]<class Element>(Element*) {
      rows.enqueue(&streamed_rows<Element>, count_of(args_.tokens), streamed_threads, 0, args_,
                   terms(), memory_.values);
    });
  }

  void differentiate(row_launch& rows) const {
    const row_grid grid = row_grid::of_kept(args_.tokens, args_.logits.type);
    const auto* const weight_sum = static_cast<const double*>(memory_.weight_sum);
    if (!grid.by_warp && !is_soft() && lie_alike(args_.logits, args_.d_logits)) {
      return with_row_type(args_.logits.type, [&]<class Element>(Element*) {
        differentiate_kept<Element>(rows, weight_sum);
      });
    }
    rows.run(is_soft() ? &cross_entropy_gradients<false> : &cross_entropy_gradients<true>, grid,
             args_, terms(), grid.by_warp, grid.kept_units, weight_sum);
  }

  /// A block may have all shared memory of a multiprocessor, which devices have more or less of.
  template <class Element>
  void differentiate_kept(row_launch& rows, const double* weight_sum) const {
    constexpr int of_kernel = 2048;  // what the kernel has besides, and the system
    int device = 0, most = 0;
    rows.add(cudaGetDevice(&device));
    rows.add(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    rows.add(cudaFuncSetAttribute(&kept_gradients<Element>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, most - of_kernel));
    const kept_grid kept = kept_grid_of(args_.logits, args_.tokens.classes, most - of_kernel,
                                        cuda::starts_early<cross_entropy_row>());
    rows.enqueue_clusters(&kept_gradients<Element>, count_of(args_.tokens), kept.blocks,
                          kept.threads, kept.shared_bytes, args_, terms(), kept, weight_sum);
  }

  const cross_entropy_kernel_args& args_;
  row_memory memory_;
};

}  // namespace tessera::kernels::losses::sm80
