// Options of fused Kullback-Leibler divergence.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/losses/reduction.hpp>

namespace tessera {

/// Which distribution is measured against which.
enum class kl_direction : std::uint8_t {
  forward,  ///< KL(teacher, student)
  reverse,  ///< KL(student, teacher)
  jsd,      ///< of both against their mixture
};
inline constexpr std::array<std::string_view, 3> kl_direction_names{"forward", "reverse", "jsd"};

struct kl_divergence_options {
  loss_reduction reduction = loss_reduction::mean;
  kl_direction direction = kl_direction::forward;
  /// Divides the logits of both; the loss is multiplied by its square.
  double temperature = 1;
  /// jsd: share of the teacher in the mixture, and of its divergence in the loss. Above 0, below 1.
  double beta = 0.5;
  /// As that of cross_entropy_options.
  std::int64_t world_size = 1;

  friend bool operator==(const kl_divergence_options&, const kl_divergence_options&) = default;
};

}  // namespace tessera
