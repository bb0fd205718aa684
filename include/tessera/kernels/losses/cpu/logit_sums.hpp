// What cross entropy needs of a row of logits, summed up block by block relative to the largest
// logit: differences are exact where logits are not, and no exponential overflows.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/kernels/losses/cpu/blocks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// Sums over the classes of a block, or of a row.
struct logit_sums {
  float maximum = minus_infinity;
  double powers = 0;       ///< of exp(x - maximum)
  double differences = 0;  ///< of x - maximum; where labels are smoothed
  double shares = 0;       ///< of the shares p of classes; where these are given
  double products = 0;     ///< of p (x - maximum)
  std::int64_t classes = 0;

  /// The same relative to a maximum that is not below.
  template <class Isa>
  TESSERA_INLINE void move_to(float to) {
    if (maximum == to) return;
    const double change =
        static_cast<double>(finite_maximum(maximum)) - static_cast<double>(finite_maximum(to));
    if (powers != 0) powers *= std::exp(change);
    differences += static_cast<double>(classes) * change;
    if (shares != 0) products += shares * change;
    maximum = to;
  }

  template <class Isa>
  TESSERA_INLINE void merge(logit_sums other) {
    const float most = maximum > other.maximum ? maximum : other.maximum;
    move_to<Isa>(most);
    other.move_to<Isa>(most);
    powers += other.powers;
    differences += other.differences;
    shares += other.shares;
    products += other.products;
    classes += other.classes;
  }
};

/// The target of a row: its logit, and the largest one of a lower class.
struct target_logit {
  std::int64_t target = -1;
  float logit = 0;
  float before = minus_infinity;

  /// A block of classes from number `first` on, whose largest logit is `most`.
  template <class Isa>
  TESSERA_INLINE void look_at(const float* x, std::int64_t first, int count, float most) {
    if (target < first) return;
    if (target >= first + count) {
      before = most > before ? most : before;
      return;
    }
    const int at = static_cast<int>(target - first);
    const float lower = maximum_of<Isa>(x, at);
    before = lower > before ? lower : before;
    logit = x[at];
  }
  /// Whether it is the first of the largest.
  TESSERA_INLINE bool is_first_largest(float maximum) const {
    return logit >= maximum && logit > before;
  }
};

/// Sums of a block of logits; `p` (null: none) are the shares of its classes.
template <class Isa>
logit_sums sums_of_block(const float* x, const float* p, int count, bool smooth) {
  using vec = prim::simd<Isa>;
  logit_sums sums{.maximum = maximum_of<Isa>(x, count), .classes = count};
  const float shift = finite_maximum(sums.maximum);
  const auto from = vec::broadcast(shift);
  sums.powers = sum_of_powers<Isa>(x, count, shift, prim::log2_e);
  const auto difference = [&](int at) { return vec::sub(vec::load(x + at), from); };
  if (smooth) {
    // In units whose sum is a float also where masks are the least number.
    constexpr float unit = 0x1p32f;
    const auto by = vec::broadcast(1 / unit), begin = vec::broadcast(-shift / unit);
    sums.differences = static_cast<double>(unit) * sum_of<Isa>(count, [&](int at) {
                         return vec::fma(vec::load(x + at), by, begin);
                       });
  }
  if (p == nullptr) return sums;
  sums.shares = sum_of<Isa>(count, [&](int at) { return vec::load(p + at); });
  // A share of 0 has no part in the sum, also where the logit is -inf.
  sums.products = sum_of<Isa>(count, [&](int at) {
    const auto share = vec::load(p + at), zero = vec::zero();
    const auto product = vec::mul(share, difference(at));
    return vec::select_below(share, zero, product, vec::select_below(zero, share, product, zero));
  });
  return sums;
}

}  // namespace tessera::kernels::losses::cpu
