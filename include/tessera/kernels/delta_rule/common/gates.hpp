// Gates of one token: raw numbers to log decays and to beta, and their slopes.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::delta_rule {

template <class Isa>
TESSERA_HD inline float sigmoid(float x) {
  // Of a large negative x both quotients are 0, but only one of exp(x) and exp(-x) is finite.
  return x < 0 ? std::exp(x) / (1.0f + std::exp(x)) : 1.0f / (1.0f + std::exp(-x));
}

/// log(1 + exp(x)); above 20 it is x to the last digit of a float.
template <class Isa>
TESSERA_HD inline float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

/// Slopes of a log decay by its raw gate, and by A_log.
struct gate_slopes {
  float by_raw = 1, by_a_log = 0;
};

/// How the gates of a value head become log decays.
template <class Isa>
struct head_gate {
  bool raw = false, bounded = false;
  float lower_bound = 0;
  float rate = 0;               ///< exp(A_log)
  const float* bias = nullptr;  ///< of the head, or of its channels; null: 0

  TESSERA_HD head_gate(const delta_rule_gate& gate, std::int64_t head)
      : raw(gate.raw), bounded(gate.bounded), lower_bound(gate.lower_bound) {
    if (raw) rate = std::exp(gate.a_log[head * gate.a_log_head]);
    if (gate.bias != nullptr) bias = gate.bias + head * gate.bias_head;
  }

  TESSERA_HD float biased(float x, std::int64_t channel) const {
    return bias != nullptr ? x + bias[channel] : x;
  }
  TESSERA_HD gate_slopes slopes(float x, std::int64_t channel) const {
    const float with_bias = biased(x, channel);
    if (!bounded) {
      return {-rate * sigmoid<Isa>(with_bias), -rate * softplus<Isa>(with_bias)};
    }
    const float share = sigmoid<Isa>(rate * with_bias);
    const float slope = lower_bound * share * (1.0f - share) * rate;
    return {slope, slope * with_bias};
  }
  TESSERA_HD float log_decay(float x, std::int64_t channel) const {
    if (!raw) return x;
    const float with_bias = biased(x, channel);
    return bounded ? lower_bound * sigmoid<Isa>(rate * with_bias)
                   : -rate * softplus<Isa>(with_bias);
  }
};

template <class Isa>
TESSERA_HD inline float beta_of(const delta_rule_kernel_args& args, float x) {
  return args.beta_is_raw ? args.beta_most * sigmoid<Isa>(x) : x;
}

}  // namespace tessera::kernels::delta_rule
