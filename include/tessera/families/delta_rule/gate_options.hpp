// What the options of the delta rules ask of each other, and what a kernel gets of them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::delta_rule_table {

// A state is at most 4 MiB, so that sizes of scratch memory cannot overflow.
inline constexpr std::int64_t most_recurrent_heads = 65536;
inline constexpr std::int64_t most_recurrent_dim = 1024;

/// Options with the members of `delta_rule_options`; a choice of a row depends on the last alone.
template <class Options>
inline constexpr std::array gate_option_forms{
    option_form{.name = "scale",
                .offset = offsetof(Options, scale),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "1/sqrt(K)",
                .free = true},
    option_form{.name = "use_qk_l2norm", .offset = offsetof(Options, use_qk_l2norm), .free = true},
    option_form{.name = "use_gate", .offset = offsetof(Options, use_gate), .free = true},
    option_form{.name = "gate_lower_bound",
                .offset = offsetof(Options, gate_lower_bound),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "none",
                .free = true},
    option_form{
        .name = "use_beta_sigmoid", .offset = offsetof(Options, use_beta_sigmoid), .free = true},
    option_form{.name = "allow_neg_eigval", .offset = offsetof(Options, allow_neg_eigval)},
};

template <class Options>
bool gates_agree(const Options& wanted, status& failure) {
  if (wanted.gate_lower_bound) {
    if (!wanted.use_gate) {
      return checks::refuse(failure, "gate_lower_bound: is set, use_gate is false");
    }
    if (!(*wanted.gate_lower_bound < 0)) {
      return checks::refuse(failure, "gate_lower_bound: is ", *wanted.gate_lower_bound,
                            ", must be below 0");
    }
  }
  return !wanted.allow_neg_eigval || wanted.use_beta_sigmoid ||
         checks::refuse(failure, "allow_neg_eigval: is true, use_beta_sigmoid is false");
}

/// What raw gates need: `decay` and `rate` say whether a log decay and A_log are given.
template <class Options>
bool has_gate_tensors(const Options& wanted, bool decay, bool rate, status& failure) {
  if (!wanted.use_gate) return true;
  if (!decay) return checks::refuse(failure, "g: is absent, use_gate is true");
  return rate || checks::refuse(failure, "A_log: is absent, use_gate is true");
}

/// Of q: 1 / sqrt(K) unless it is set.
inline float scale_of(const std::optional<double>& scale, std::int64_t key_dim) {
  return static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(key_dim))));
}

template <class Options>
void set_gates(const Options& wanted, delta_rule_kernel_args& filled) {
  filled.normalizes = wanted.use_qk_l2norm;
  filled.beta_is_raw = wanted.use_beta_sigmoid;
  filled.beta_most = wanted.allow_neg_eigval ? 2.0f : 1.0f;
  filled.scale = scale_of(wanted.scale, filled.key_dim);
  filled.gate.raw = wanted.use_gate;
  filled.gate.bounded = wanted.gate_lower_bound.has_value();
  filled.gate.lower_bound = static_cast<float>(wanted.gate_lower_bound.value_or(0.0));
}

}  // namespace tessera::delta_rule_table
