// Options of fused linear cross entropy.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/families/losses/reduction.hpp>

namespace tessera {

/// Those that cross_entropy_options has mean the same.
struct linear_cross_entropy_options {
  loss_reduction reduction = loss_reduction::mean;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
  /// Logits x become cap tanh(x / cap).
  std::optional<double> logits_soft_cap{};
  std::int64_t world_size = 1;

  friend bool operator==(const linear_cross_entropy_options&,
                         const linear_cross_entropy_options&) = default;
};

}  // namespace tessera
