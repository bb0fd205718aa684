// Options of the delta rule operations, under the names that tools and files use.
#pragma once

#include <optional>

namespace tessera {

struct delta_rule_options {
  std::optional<double> scale{};  ///< of q; unset: 1 / sqrt(K)
  /// q and k become x / sqrt(sum x^2 + 1e-6), in front of the scale.
  bool use_qk_l2norm = false;
  /// Gates are raw: log decay = -exp(A_log) softplus(raw + dt_bias).
  bool use_gate = false;
  /// With `use_gate`, below 0: log decay = gate_lower_bound sigmoid(exp(A_log) (raw + dt_bias)).
  std::optional<double> gate_lower_bound{};
  bool use_beta_sigmoid = false;  ///< beta = sigmoid(raw)
  bool allow_neg_eigval = false;  ///< with `use_beta_sigmoid`: twice that

  friend bool operator==(const delta_rule_options&, const delta_rule_options&) = default;
};

}  // namespace tessera
