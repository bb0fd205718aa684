// What divergences make of a row of two kinds of logits: sums relative to the largest of each,
// probabilities from them, and the mixture of both.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::losses::sm80 {

/// The options of a call as kernels want them.
struct divergence_terms {
  double square = 1;               ///< of the temperature
  double inverse_temperature = 1;  ///< of the temperature
  double beta = 0;
  float factor = 0;  ///< log2(e) / temperature
  // Mixture; see `mixture_ratios`.
  float of_student = 0, of_teacher = 0, log_odds = 0;

  static divergence_terms of(const kl_divergence_kernel_args& args) {
    divergence_terms terms{.square = args.temperature * args.temperature,
                           .inverse_temperature = 1 / args.temperature,
                           .beta = args.beta,
                           .factor = static_cast<float>(1.4426950408889634074 / args.temperature)};
    if (args.direction != kl_direction::jsd) return terms;
    terms.of_student = static_cast<float>(-std::log1p(-args.beta));
    terms.of_teacher = static_cast<float>(-std::log(args.beta));
    terms.log_odds = static_cast<float>(std::log(args.beta) - std::log1p(-args.beta));
    return terms;
  }
};

/// Whether a power is a number above 0: what has no probability has no part in a sum, however far
/// its logarithm. NaN is none that is below.
__device__ __forceinline__ bool is_likely(float power) {
  return !(power < std::numeric_limits<float>::min());
}

/// Of one distribution: exponentials are those of (x - maximum) / temperature.
struct softmax_sums {
  float maximum = minus_infinity;
  float powers = 0;
  float energy = 0;  ///< of the powers times x - maximum

  __device__ __forceinline__ float shift() const { return finite_maximum(maximum); }

  /// The same relative to a maximum that is not below; the powers are that much smaller.
  __device__ __forceinline__ float move_to(float to, float factor) {
    const float change = shift() - finite_maximum(to);
    const float rescale = prim::cuda::exp2_fast(change * factor);
    maximum = to;
    if (powers == 0) return 0;
    // Of powers that vanish nothing is left, though their distance be too large for a float.
    energy = rescale == 0 ? 0 : rescale * fmaf(powers, change, energy);
    powers *= rescale;
    return rescale;
  }
  __device__ __forceinline__ softmax_sums of_lane(int step) const {
    const auto from = [step](float x) { return __shfl_xor_sync(prim::cuda::all_lanes, x, step); };
    return {from(maximum), from(powers), from(energy)};
  }
};

/// Of a row or a part of it: `from` is what is measured, against `to`.
struct divergence_sums {
  softmax_sums from, to;
  /// Of the powers of `from` times the difference of the distances from the largest logits.
  float differences = 0;
  float factor = 0;  ///< of divergence_terms

  __device__ __forceinline__ void move_to(float from_maximum, float to_maximum) {
    if (from.powers != 0) {
      const float change =
          from.shift() - finite_maximum(from_maximum) - (to.shift() - finite_maximum(to_maximum));
      differences = fmaf(from.powers, change, differences);
    }
    if (from.maximum != from_maximum) {
      const float rescale = from.move_to(from_maximum, factor);
      differences = rescale == 0 ? 0 : differences * rescale;
    }
    if (to.maximum != to_maximum) to.move_to(to_maximum, factor);
  }

  __device__ __forceinline__ void merge(divergence_sums other) {
    const float of_from = fmaxf(from.maximum, other.from.maximum);
    const float of_to = fmaxf(to.maximum, other.to.maximum);
    move_to(of_from, of_to);
    other.move_to(of_from, of_to);
    from.powers += other.from.powers;
    from.energy += other.from.energy;
    to.powers += other.to.powers;
    to.energy += other.to.energy;
    differences += other.differences;
  }

  /// Logits of a unit, -inf where the row has none. `energies`: those are wanted.
  __device__ __forceinline__ void add(const float (&x)[unit_size], const float (&y)[unit_size],
                                      bool energies) {
    float of_from = from.maximum, of_to = to.maximum;
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      of_from = fmaxf(x[i], of_from);
      of_to = fmaxf(y[i], of_to);
    }
    if (of_from > from.maximum || of_to > to.maximum) move_to(of_from, of_to);
    const float from_shift = from.shift(), to_shift = to.shift();
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      const float of_x = x[i] - from_shift, of_y = y[i] - to_shift;
      const float p = prim::cuda::exp2_fast(of_x * factor);
      const float q = prim::cuda::exp2_fast(of_y * factor);
      from.powers += p;
      to.powers += q;
      if (is_likely(p)) differences = fmaf(p, of_x - of_y, differences);
    }
    if (!energies) return;
#pragma unroll
    for (int i = 0; i < unit_size; ++i) {
      const float of_x = x[i] - from_shift, of_y = y[i] - to_shift;
      const float p = prim::cuda::exp2_fast(of_x * factor);
      const float q = prim::cuda::exp2_fast(of_y * factor);
      if (is_likely(p)) from.energy = fmaf(p, of_x, from.energy);
      if (is_likely(q)) to.energy = fmaf(q, of_y, to.energy);
    }
  }

  __device__ __forceinline__ divergence_sums nothing() const {
    divergence_sums none;
    none.factor = factor;
    return none;
  }
  __device__ __forceinline__ divergence_sums of_lane(int step) const {
    return {from.of_lane(step), to.of_lane(step),
            __shfl_xor_sync(prim::cuda::all_lanes, differences, step), factor};
  }

  /// KL(from, to).
  __device__ __forceinline__ double divergence(double inverse_temperature) const {
    return inverse_temperature * static_cast<double>(differences) /
               static_cast<double>(from.powers) +
           log(static_cast<double>(to.powers)) - log(static_cast<double>(from.powers));
  }
};

/// Logarithms to base 2 of the probabilities of a row: (x - shift) log2(e) / T - log2_of_sum.
struct log2_probabilities {
  float shift = 0, factor = 0, log2_of_sum = 0;

  __device__ __forceinline__ log2_probabilities(const softmax_sums& sums, float by)
      : shift(sums.shift()), factor(by), log2_of_sum(log2f(sums.powers)) {}

  __device__ __forceinline__ float at(float x) const {
    return fmaf(x - shift, factor, -log2_of_sum);
  }
};

/// Logarithms of p_student / m and p_teacher / m for m = beta p_teacher + (1 - beta) p_student.
/// With D = ln(beta p_teacher) - ln((1 - beta) p_student), ln(p_teacher / m) = -ln(beta) -
/// ln(1 + e^-D) and ln(p_student / m) = -ln(1 - beta) - ln(1 + e^D).
struct mixture_ratios {
  float student = 0, teacher = 0;

  __device__ __forceinline__ mixture_ratios(const divergence_terms& terms, float log2_student,
                                            float log2_teacher) {
    const float d = fmaf(log2_teacher - log2_student, ln_2, terms.log_odds);
    const float log_of_sum = log1pf(prim::cuda::exp2_fast(-fabsf(d) * prim::log2_e));
    student = terms.of_student - (fmaxf(d, 0.0f) + log_of_sum);
    teacher = terms.of_teacher - (fmaxf(-d, 0.0f) + log_of_sum);
  }
};

/// Divergences from the mixture, summed up.
struct mixture_sums {
  float student = 0, teacher = 0;

  __device__ __forceinline__ void add(const divergence_terms& terms, float log2_student,
                                      float log2_teacher) {
    const mixture_ratios ratios(terms, log2_student, log2_teacher);
    const float p = prim::cuda::exp2_fast(log2_student), q = prim::cuda::exp2_fast(log2_teacher);
    if (is_likely(p)) student = fmaf(p, ratios.student, student);
    if (is_likely(q)) teacher = fmaf(q, ratios.teacher, teacher);
  }
  __device__ __forceinline__ void merge(const mixture_sums& other) {
    student += other.student;
    teacher += other.teacher;
  }
  __device__ __forceinline__ mixture_sums nothing() const { return {}; }
  __device__ __forceinline__ mixture_sums of_lane(int step) const {
    return {__shfl_xor_sync(prim::cuda::all_lanes, student, step),
            __shfl_xor_sync(prim::cuda::all_lanes, teacher, step)};
  }
};

}  // namespace tessera::kernels::losses::sm80
