// What divergences need of a row of two kinds of logits, summed up block by block relative to the
// largest of each.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// `x` where `power` is not 0 or NaN, else 0: what has no probability has no part in a sum, however
/// far its logarithm.
template <class Isa>
TESSERA_INLINE typename prim::simd<Isa>::reg where_likely(typename prim::simd<Isa>::reg power,
                                                          typename prim::simd<Isa>::reg x) {
  using vec = prim::simd<Isa>;
  constexpr float least = std::numeric_limits<float>::min();
  return vec::select_below(power, vec::broadcast(least), vec::zero(), x);
}

/// Of one distribution: exponentials are those of (x - maximum) / temperature.
struct softmax_sums {
  float maximum = minus_infinity;
  double powers = 0;  ///< of exp((x - maximum) / T)
  double energy = 0;  ///< of exp((x - maximum) / T) (x - maximum)

  TESSERA_INLINE double shift() const { return static_cast<double>(finite_maximum(maximum)); }
};

/// Of a row or a block: `from` is what is measured, against `to`.
struct divergence_sums {
  softmax_sums from, to;
  /// Of the powers of `from` times the difference of the distances from the largest logits.
  double differences = 0;

  template <class Isa>
  TESSERA_INLINE void move_to(float from_maximum, float to_maximum, double inverse_temperature) {
    const double of_from = from.shift() - static_cast<double>(finite_maximum(from_maximum));
    const double of_to = to.shift() - static_cast<double>(finite_maximum(to_maximum));
    if (from.powers != 0) {
      differences += from.powers * (of_from - of_to);
      const double rescale = std::exp(of_from * inverse_temperature);
      differences *= rescale;
      from.energy = rescale * (from.energy + from.powers * of_from);
      from.powers *= rescale;
    }
    if (to.powers != 0) {
      const double rescale = std::exp(of_to * inverse_temperature);
      to.energy = rescale * (to.energy + to.powers * of_to);
      to.powers *= rescale;
    }
    from.maximum = from_maximum;
    to.maximum = to_maximum;
  }

  template <class Isa>
  TESSERA_INLINE void merge(divergence_sums other, double inverse_temperature) {
    const float of_from = from.maximum > other.from.maximum ? from.maximum : other.from.maximum;
    const float of_to = to.maximum > other.to.maximum ? to.maximum : other.to.maximum;
    move_to<Isa>(of_from, of_to, inverse_temperature);
    other.move_to<Isa>(of_from, of_to, inverse_temperature);
    from.powers += other.from.powers;
    from.energy += other.from.energy;
    to.powers += other.to.powers;
    to.energy += other.to.energy;
    differences += other.differences;
  }
};

/// Which sums a loss needs beside those of powers.
struct divergence_wishes {
  bool differences = false;
  bool from_energy = false;
  bool to_energy = false;
};

/// Sums of a block of logits; `factor` is log2(e) / temperature.
template <class Isa>
divergence_sums divergence_of_block(const float* from, const float* to, int count, float factor,
                                    const divergence_wishes& wishes) {
  using vec = prim::simd<Isa>;
  divergence_sums sums{.from = {.maximum = maximum_of<Isa>(from, count)},
                       .to = {.maximum = maximum_of<Isa>(to, count)}};
  const float from_maximum = finite_maximum(sums.from.maximum);
  const float to_maximum = finite_maximum(sums.to.maximum);
  const auto from_shift = vec::broadcast(from_maximum), to_shift = vec::broadcast(to_maximum),
             by = vec::broadcast(factor);
  // Powers of x times what weigh(distance of x, element) gives.
  const auto weighted = [&](const float* x, auto shift, const auto& weigh) {
    return sum_of<Isa>(count, [&](int at) {
      const auto distance = vec::sub(vec::load(x + at), shift);
      const auto power = vec::exp2(vec::mul(distance, by));
      return where_likely<Isa>(power, vec::mul(power, weigh(distance, at)));
    });
  };
  const auto itself = [](auto distance, int) { return distance; };
  sums.from.powers = sum_of_powers<Isa>(from, count, from_maximum, factor);
  sums.to.powers = sum_of_powers<Isa>(to, count, to_maximum, factor);
  if (wishes.from_energy) sums.from.energy = weighted(from, from_shift, itself);
  if (wishes.to_energy) sums.to.energy = weighted(to, to_shift, itself);
  if (wishes.differences) {
    sums.differences = weighted(from, from_shift, [&](auto distance, int at) {
      return vec::sub(distance, vec::sub(vec::load(to + at), to_shift));
    });
  }
  return sums;
}

}  // namespace tessera::kernels::losses::cpu
