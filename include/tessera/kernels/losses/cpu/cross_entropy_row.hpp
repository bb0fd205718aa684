// The loss of one token from the sums over its logits, and the gradient of its logits.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/logit_sums.hpp>
#include <tessera/kernels/losses/cpu/totals.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// The distribution that a smoothed target stands for. Without other classes nothing is smoothed.
struct smoothed_target {
  double on_target = 1;
  double elsewhere = 0;
  double entropy = 0;

  template <class Isa>
  static smoothed_target of(double smoothing, std::int64_t classes) {
    if (smoothing == 0 || classes < 2) return {};
    const auto others = static_cast<double>(classes - 1);
    const double on_target = 1 - smoothing, elsewhere = smoothing / others;
    return {on_target, elsewhere,
            -(on_target * std::log(on_target) + smoothing * std::log(elsewhere))};
  }
};

/// The gradient of a row's logits: softmax * softmax_factor - elsewhere, and on the target
/// `at_target` less. The softmax is exp2((x - shift) log2(e) - log2_of_sum).
struct logit_gradient {
  float shift = 0;
  float log2_of_sum = 0;
  float softmax_factor = 0;
  float elsewhere = 0;
  float at_target = 0;
  float share_factor = 0;  ///< multiplies shares, which are subtracted
};

/// What options and targets make of a row of logits.
template <class Isa>
class cross_entropy_row {
 public:
  cross_entropy_row(const cross_entropy_form& form, std::int64_t classes)
      : z_loss_(form.z_loss), smoothed_(smoothed_target::of<Isa>(form.label_smoothing, classes)) {}

  bool is_smoothed() const { return smoothed_.elsewhere != 0; }

  /// Distances from the largest logit are small where logits are large, and nothing of them is lost
  /// when they are subtracted: sum p = 1 but for soft targets, where the rest follows.
  row_value value(const logit_sums& sums, const target_logit& target) const {
    const double shift = static_cast<double>(finite_maximum(sums.maximum));
    const double log_sum = log_of_powers(sums.powers);
    const double lse = shift + log_sum;
    row_value value;
    value.beside = z_loss_ == 0 ? 0 : z_loss_ * lse * lse;
    if (target.target < 0) {
      value.loss = (sums.shares == 0 ? 0 : sums.shares * log_sum) - sums.products + value.beside;
      return value;
    }
    const double of_target = static_cast<double>(target.logit) - shift;
    value.loss = log_sum - (smoothed_.on_target - smoothed_.elsewhere) * of_target;
    if (is_smoothed()) {
      value.loss -= smoothed_.elsewhere * sums.differences + smoothed_.entropy;
    }
    value.loss += value.beside;
    value.correct = target.is_first_largest(sums.maximum);
    return value;
  }

  /// For a loss whose gradient is `factor`; `target` is negative for soft targets.
  logit_gradient gradient(const logit_sums& sums, std::int64_t target, double factor) const {
    const double shift = static_cast<double>(finite_maximum(sums.maximum));
    const double log_sum = log_of_powers(sums.powers);
    const double of_z = z_loss_ == 0 ? 0 : 2 * z_loss_ * (shift + log_sum);
    const double shares = target < 0 ? sums.shares : 1;
    logit_gradient gradient{.shift = static_cast<float>(shift),
                            .log2_of_sum = static_cast<float>(std::log2(sums.powers)),
                            .softmax_factor = static_cast<float>(factor * (shares + of_z))};
    if (target < 0) {
      gradient.share_factor = static_cast<float>(factor);
    } else {
      gradient.elsewhere = static_cast<float>(factor * smoothed_.elsewhere);
      gradient.at_target = static_cast<float>(factor * (smoothed_.on_target - smoothed_.elsewhere));
    }
    return gradient;
  }

 private:
  double z_loss_;
  smoothed_target smoothed_;
};

/// A block of logits becomes their gradients, but for what shares and the target take off.
template <class Isa>
TESSERA_INLINE void differentiate_block(float* x, int count, const logit_gradient& gradient) {
  using vec = prim::simd<Isa>;
  const auto shift = vec::broadcast(gradient.shift), log2_e = vec::broadcast(prim::log2_e),
             log_sum = vec::broadcast(-gradient.log2_of_sum),
             factor = vec::broadcast(gradient.softmax_factor),
             elsewhere = vec::broadcast(-gradient.elsewhere);
  for (int at = 0; at < count; at += vec::width) {
    const auto softmax = vec::exp2(vec::fma(vec::sub(vec::load(x + at), shift), log2_e, log_sum));
    vec::store(x + at, vec::fma(softmax, factor, elsewhere));
  }
}

}  // namespace tessera::kernels::losses::cpu
