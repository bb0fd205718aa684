// Score modification: what is done to a raw score q . k before the softmax, in the order scale,
// bias_pre, cap, bias_post or biases of positions, functor, mask. Here is what a launch asks for;
// how a back end does it to its registers is with the back end.
#pragma once

#include <limits>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention {

/// What a score in memory means. Scores are raw dot products as long as nothing but the softmax
/// looks at them: its exponential then takes the scale with the factor log2(e) that it needs
/// anyway. Biases, caps, functors and written weights need logits in natural units.
struct score_units {
  float scale = 1.0f;     ///< what score modification multiplies scores by before anything else
  float unit = 1.0f;      ///< a score times this is a logit, after score modification
  float exponent = 1.0f;  ///< exp(logit) = exp2(score * exponent), likewise

  /// The softmax state of such scores in natural units.
  TESSERA_INLINE prim::softmax_state natural(const prim::softmax_state& state) const {
    return {state.maximum == prim::minus_infinity ? state.maximum : state.maximum * unit,
            state.denominator};
  }
};

/// An element of q that is divided before all else: nothing leaves its type's range of numbers.
template <class Element>
TESSERA_HD constexpr float divided(float element, float divisor) noexcept {
  constexpr float largest = std::is_same_v<Element, f16>    ? 65504.0f
                            : std::is_same_v<Element, bf16> ? 0x1.fep127f
                                                            : std::numeric_limits<float>::max();
  const float x = element / divisor;
  return x > largest ? largest : x < -largest ? -largest : x;
}

/// What score modification of a kernel holds, and what of it a launch needs.
template <class Kernel, class Hooks>
struct score_mods {
  static constexpr attention_features features = Kernel::config.features;
  static constexpr bool caps = features.has(attention_feature::soft_cap);
  static constexpr bool paged = are_paged(Kernel::config.keys);
  static constexpr bool biases = features.has(attention_feature::bias) && !paged;
  static constexpr bool position_biases = features.has(attention_feature::bias) && paged;
  static constexpr bool masks = features.has(attention_feature::mask);
  static constexpr bool segments = features.has(attention_feature::segments);
  static constexpr bool weights = features.has(attention_feature::weights);

  static TESSERA_INLINE bool has_bias(const attention_kernel_args& args) {
    return (biases && (args.bias_pre.data != nullptr || args.bias_post.data != nullptr)) ||
           (position_biases &&
            (args.positions.slopes != nullptr || args.positions.bias != nullptr));
  }
  static TESSERA_INLINE bool has_cap(const attention_kernel_args& args) {
    return caps && args.soft_cap > 0.0f;
  }

  static TESSERA_INLINE score_units units_of(const attention_kernel_args& args) {
    return units_of(args, args.softmax_scale);
  }
  /// Of a head of keys with a scale of its own.
  static TESSERA_INLINE score_units units_of(const attention_kernel_args& args, float scale) {
    const bool natural = Hooks::has_logits || !(scale > 0.0f) || has_cap(args) || has_bias(args) ||
                         (weights && args.weights != nullptr);
    if (natural) return {scale, 1.0f, prim::log2_e};
    return {1.0f, scale, scale * prim::log2_e};
  }

  /// True if keys inside the visible interval may be hidden, beyond what `tile_visibility` says.
  static TESSERA_INLINE bool may_hide(const attention_kernel_args& args) {
    return Hooks::has_mask || Hooks::has_logits || (masks && args.mask.data != nullptr) ||
           (segments && args.q_segments.data != nullptr) || has_bias(args);
  }

  /// True if something is to be done to a row that sees all of its columns.
  static TESSERA_INLINE bool changes(const attention_kernel_args& args, const score_units& units) {
    return units.scale != 1.0f || Hooks::has_logits || has_bias(args) || has_cap(args);
  }
};

}  // namespace tessera::kernels::attention
