// Tokens of a loss: where their rows are, what they weigh, which class they have.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::losses::cpu {

/// A token by its number among all.
struct token_place {
  std::int64_t nest = 0;
  std::int64_t group = 0;
  std::int64_t entry = 0;
  std::int64_t token = 0;
};
template <class Isa>
TESSERA_INLINE token_place place_of(const loss_tokens& tokens, std::int64_t row) {
  const std::int64_t entry = row / tokens.tokens, group = entry / tokens.entries;
  return {group / tokens.groups, group % tokens.groups, entry % tokens.entries,
          row % tokens.tokens};
}
template <class Isa>
TESSERA_INLINE std::int64_t offset_of(const token_rows& rows, const token_place& at) {
  return at.nest * rows.nest + at.group * rows.group + at.entry * rows.entry +
         at.token * rows.token;
}
template <class Isa>
TESSERA_INLINE std::int64_t count_of(const loss_tokens& tokens) {
  return tokens.nests * tokens.groups * tokens.entries * tokens.tokens;
}

/// The class of a token; -1 where it is ignored or no class.
template <class Isa>
TESSERA_INLINE std::int64_t target_of(const loss_tokens& tokens, const token_place& at) {
  const auto* const targets = static_cast<const std::int32_t*>(tokens.targets.data);
  const std::int64_t target = targets[offset_of<Isa>(tokens.targets, at)];
  const bool counts = target != tokens.ignore_index && target >= 0 && target < tokens.classes;
  return counts ? target : -1;
}

/// What a token weighs; a product of a float and a byte is exact.
template <class Isa>
TESSERA_INLINE double weight_of(const loss_tokens& tokens, const token_place& at) {
  if (tokens.targets.data != nullptr && target_of<Isa>(tokens, at) < 0) return 0;
  double weight = 1;
  if (tokens.mask.data != nullptr) {
    weight = static_cast<const std::uint8_t*>(tokens.mask.data)[offset_of<Isa>(tokens.mask, at)];
    if (weight == 0) return 0;
  }
  if (tokens.weights.data == nullptr) return weight;
  return weight * static_cast<double>(
                      prim::element_at<Isa>(tokens.weights, offset_of<Isa>(tokens.weights, at)));
}

/// What a mean is divided by.
template <class Isa>
TESSERA_INLINE double mean_divisor(double weight_sum) {
  return weight_sum < 1e-8 ? 1e-8 : weight_sum;
}

/// What multiplies the gradient of a token's loss: its weight and the gradient of the reduced loss.
template <class Isa>
class loss_gradients {
 public:
  explicit loss_gradients(const loss_tokens& tokens) : tokens_(tokens) {
    if (tokens.reduction != loss_reduction::mean) return;
    double weight_sum = 0;
    for (std::int64_t row = 0; row < count_of<Isa>(tokens); ++row) {
      weight_sum += weight_of<Isa>(tokens, place_of<Isa>(tokens, row));
    }
    divisor_ = mean_divisor<Isa>(weight_sum);
  }

  double of(const token_place& at, double weight) const {
    const auto* const d_loss = static_cast<const float*>(tokens_.d_loss.data);
    return weight * static_cast<double>(d_loss[offset_of<Isa>(tokens_.d_loss, at)]) / divisor_;
  }

 private:
  const loss_tokens& tokens_;
  double divisor_ = 1;
};

}  // namespace tessera::kernels::losses::cpu
