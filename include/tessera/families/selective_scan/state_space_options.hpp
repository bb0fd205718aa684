// Options of the selective state-space operations, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

/// `state_space_v1` has dt_softplus alone.
struct state_space_options {
  /// The step is softplus(dt + dt_bias) instead of dt + dt_bias.
  bool dt_softplus = false;
  /// Bounds of a step, after softplus. At least 0.
  std::optional<double> dt_min{};
  std::optional<double> dt_max{};
  /// The output is y silu(z) / rms(y silu(z)) norm_weight.
  bool norm = false;
  /// With norm: y / rms(y) norm_weight silu(z) instead.
  bool norm_before_gate = false;
  /// With norm: so many columns of a token, counted over its heads, have an rms of their own.
  std::optional<std::int64_t> norm_group_size{};
  /// With norm: added to the mean square. Above 0.
  double norm_eps = 1e-5;

  friend bool operator==(const state_space_options&, const state_space_options&) = default;
};

}  // namespace tessera
