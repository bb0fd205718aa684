// What cross entropy makes of a row of logits: sums relative to the largest one, the loss from
// them, and what gradients follow from.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::losses::sm80 {

using prim::finite_maximum;
using prim::minus_infinity;
inline constexpr float ln_2 = 0.693147180559945309417f;

/// The options of a call: the distribution that a smoothed target stands for, the weight of lse^2.
/// Without other classes nothing is smoothed.
struct entropy_terms {
  double on_target = 1;
  double elsewhere = 0;
  double entropy = 0;
  double z_loss = 0;

  static entropy_terms of(const cross_entropy_form& form, std::int64_t classes) {
    entropy_terms terms{.z_loss = form.z_loss};
    if (form.label_smoothing == 0 || classes < 2) return terms;
    terms.on_target = 1 - form.label_smoothing;
    terms.elsewhere = form.label_smoothing / static_cast<double>(classes - 1);
    terms.entropy = -(terms.on_target * std::log(terms.on_target) +
                      form.label_smoothing * std::log(terms.elsewhere));
    return terms;
  }
  __device__ __forceinline__ bool is_smoothed() const { return elsewhere != 0; }
};

/// x - from, in units whose sum over all classes is a float also where masks are the least number.
inline constexpr float difference_unit = 0x1p32f;
__device__ __forceinline__ float difference_of(float x, float from) {
  return fmaf(x, 1 / difference_unit, -from / difference_unit);
}

/// Sums over classes of a row.
struct logit_sums {
  float maximum = minus_infinity;
  float powers = 0;       ///< of exp(x - maximum)
  float differences = 0;  ///< of x - maximum, in their unit; where labels are smoothed
  float count = 0;        ///< of these
  float shares = 0;       ///< of the shares p of classes; where these are given
  float products = 0;     ///< of p (x - maximum)

  /// The same relative to a maximum that is not below.
  __device__ __forceinline__ void move_to(float to) {
    const float change = finite_maximum(maximum) - finite_maximum(to);
    if (powers != 0) powers *= prim::cuda::exp2_fast(change * prim::log2_e);
    if (count != 0) {
      const float moved = difference_of(finite_maximum(maximum), finite_maximum(to));
      differences = fmaf(count, moved, differences);
    }
    if (shares != 0) products = fmaf(shares, change, products);
    maximum = to;
  }

  __device__ __forceinline__ void merge(logit_sums other) {
    const float most = fmaxf(maximum, other.maximum);
    if (maximum != most) move_to(most);
    if (other.maximum != most) other.move_to(most);
    powers += other.powers;
    differences += other.differences;
    count += other.count;
    shares += other.shares;
    products += other.products;
  }

  /// The logits of a unit, -inf where the row has none. A NaN is nobody's maximum.
  __device__ __forceinline__ void add(const float (&x)[unit_size]) {
    float most = maximum;
#pragma unroll
    for (int i = 0; i < unit_size; ++i) most = fmaxf(x[i], most);
    if (most > maximum) move_to(most);
    const float shift = finite_maximum(maximum);
    float sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      sums[i % 2] += prim::cuda::exp2_fast((x[i] - shift) * prim::log2_e);
    }
    powers += sums[0] + sums[1];
  }
  /// What smoothing wants of them besides.
  __device__ __forceinline__ void add_differences(const row_units& units, std::int64_t first,
                                                  const float (&x)[unit_size]) {
    const float shift = finite_maximum(maximum);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      if (!units.holds(first + i)) continue;
      differences += difference_of(x[i], shift);
      count += 1;
    }
  }
  /// Their shares. One of 0 has no part in the sum, also where the logit is -inf.
  __device__ __forceinline__ void add_shares(const float (&x)[unit_size],
                                             const float (&p)[unit_size]) {
    const float shift = finite_maximum(maximum);
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      shares += p[i];
      if (p[i] != 0) products = fmaf(p[i], x[i] - shift, products);
    }
  }

  __device__ __forceinline__ logit_sums nothing() const {
    return {};
  }
  __device__ __forceinline__ logit_sums of_lane(int step) const {
    const auto from = [step](float x) { return __shfl_xor_sync(prim::cuda::all_lanes, x, step); };
    return {from(maximum), from(powers), from(differences),
            from(count),   from(shares), from(products)};
  }
};

/// Sums of any kind of a warp's lanes, merged in one order; all lanes get them.
template <class Sums>
__device__ __forceinline__ Sums sums_of_warp(Sums sums) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Sums other = sums.of_lane(step);
    // The lower lane's sums come first for both.
    const bool lower = (threadIdx.x & static_cast<unsigned>(step)) == 0;
    Sums first = lower ? sums : other;
    first.merge(lower ? other : sums);
    sums = first;
  }
  return sums;
}

/// The same of a row's threads, at most 32 warps. A team that is a block meets at barriers.
template <class Sums>
__device__ __forceinline__ Sums sums_of_team(const row_team& team, Sums sums) {
  sums = sums_of_warp(sums);
  if (team.threads == 32) return sums;
  __shared__ alignas(16) unsigned char shared[32 * sizeof(Sums)];
  auto* const of_warps = reinterpret_cast<Sums*>(shared);
  __syncthreads();
  if (team.thread % 32 == 0) of_warps[team.thread / 32] = sums;
  __syncthreads();
  const int warp = team.thread % 32;
  return sums_of_warp(warp < team.threads / 32 ? of_warps[warp] : sums.nothing());
}

/// The largest number of a team, for all of it.
struct largest_number {
  float x = minus_infinity;
  __device__ __forceinline__ void merge(const largest_number& other) { x = fmaxf(x, other.x); }
  __device__ __forceinline__ largest_number nothing() const { return {}; }
  __device__ __forceinline__ largest_number of_lane(int step) const {
    return {__shfl_xor_sync(prim::cuda::all_lanes, x, step)};
  }
};
__device__ __forceinline__ float largest_of_team(const row_team& team, float x) {
  return sums_of_team(team, largest_number{x}).x;
}

/// The loss of a row and its part from lse^2, times `weight`. `of_target` is the target's logit;
/// `target` is negative where there are shares.
__device__ __forceinline__ token_value entropy_value(const entropy_terms& terms,
                                                     const logit_sums& sums, std::int64_t target,
                                                     float of_target, double weight) {
  const double shift = static_cast<double>(finite_maximum(sums.maximum));
  const double log_sum = log(static_cast<double>(sums.powers));
  const double lse = shift + log_sum;
  const double beside = terms.z_loss == 0 ? 0 : terms.z_loss * lse * lse;
  double loss = 0;
  if (target < 0) {
    const auto shares = static_cast<double>(sums.shares);
    loss = (shares == 0 ? 0 : shares * log_sum) - static_cast<double>(sums.products);
  } else {
    loss = log_sum - (terms.on_target - terms.elsewhere) * (static_cast<double>(of_target) - shift);
    if (terms.is_smoothed()) {
      loss -= terms.elsewhere * difference_unit * static_cast<double>(sums.differences);
      loss -= terms.entropy;
    }
  }
  return {.loss = weight * (loss + beside), .beside = weight * beside, .weight = weight};
}

/// The gradient of a row's logits: softmax * softmax_factor - elsewhere, and on the target
/// `at_target` less. The softmax is exp2((x - shift) log2(e) - log2_of_sum).
struct logit_gradient {
  float shift = 0;
  float log2_of_sum = 0;
  float softmax_factor = 0;
  float elsewhere = 0;
  float at_target = 0;
  float share_factor = 0;  ///< multiplies shares, which are subtracted

  /// For a loss whose gradient is `factor`.
  static __device__ __forceinline__ logit_gradient of(const entropy_terms& terms,
                                                      const logit_sums& sums, std::int64_t target,
                                                      double factor) {
    const double shift = static_cast<double>(finite_maximum(sums.maximum));
    const double log_sum = log(static_cast<double>(sums.powers));
    const double of_z = terms.z_loss == 0 ? 0 : 2 * terms.z_loss * (shift + log_sum);
    const double shares = target < 0 ? static_cast<double>(sums.shares) : 1;
    logit_gradient gradient{.shift = static_cast<float>(shift),
                            .log2_of_sum = log2f(sums.powers),
                            .softmax_factor = static_cast<float>(factor * (shares + of_z))};
    if (target < 0) {
      gradient.share_factor = static_cast<float>(factor);
    } else {
      gradient.elsewhere = static_cast<float>(factor * terms.elsewhere);
      gradient.at_target = static_cast<float>(factor * (terms.on_target - terms.elsewhere));
    }
    return gradient;
  }

  /// Of logits but the target's, without what shares take off.
  __device__ __forceinline__ float at(float x) const {
    const float power = fmaf(x - shift, prim::log2_e, -log2_of_sum);
    return fmaf(prim::cuda::exp2_fast(power), softmax_factor, -elsewhere);
  }
  /// Of a share.
  __device__ __forceinline__ float of_share(float x) const {
    return share_factor * (log2_of_sum * ln_2 - (x - shift));
  }
};

}  // namespace tessera::kernels::losses::sm80
