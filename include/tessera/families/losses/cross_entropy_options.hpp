// Options of fused cross entropy.
#pragma once

#include <cstdint>

#include <tessera/families/losses/reduction.hpp>

namespace tessera {

struct cross_entropy_options {
  loss_reduction reduction = loss_reduction::mean;
  /// Tokens with this target have weight 0, as have those whose target is no class.
  std::int64_t ignore_index = -100;
  /// Share of the target that the other classes have instead, in equal parts. The entropy of that
  /// distribution is subtracted: the loss of the best prediction is 0. Not with soft_targets.
  double label_smoothing = 0;
  /// Adds z_loss lse^2 to the loss of a token.
  double z_loss = 0;
  /// Parts of equal size that the classes are cut into: each is summed up by itself, then they are
  /// merged in their order, as devices do that share the vocabulary. Divides the classes.
  std::int64_t world_size = 1;

  friend bool operator==(const cross_entropy_options&, const cross_entropy_options&) = default;
};

}  // namespace tessera
