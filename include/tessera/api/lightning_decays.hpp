// The log decays of lightning attention, g_gamma [H], as models have them: they follow from the
// number of a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// -(8 / H) (1 - layer / layers) h for head h: head 0 never decays, and in layer `layers` none
/// does.
inline std::vector<float> lightning_decays(std::int64_t heads, std::int64_t layer,
                                           std::int64_t layers) {
  const double rest = 1.0 - static_cast<double>(layer) / static_cast<double>(layers);
  std::vector<float> decays;
  for (std::int64_t head = 0; head < heads; ++head) {
    decays.push_back(
        static_cast<float>(-8.0 / static_cast<double>(heads) * rest * static_cast<double>(head)));
  }
  return decays;
}

/// -2^(-8 (h + 1) / H) (1 - layer / (layers - 1) + 1e-5): slopes of ALiBi, of Lightning Attention-2
/// and MiniMax models. `layers` is at least 2.
inline std::vector<float> lightning_alibi_decays(std::int64_t heads, std::int64_t layer,
                                                 std::int64_t layers) {
  const double rest = 1.0 - static_cast<double>(layer) / static_cast<double>(layers - 1) + 1e-5;
  std::vector<float> decays;
  for (std::int64_t head = 0; head < heads; ++head) {
    const double exponent = -8.0 * static_cast<double>(head + 1) / static_cast<double>(heads);
    decays.push_back(static_cast<float>(-__builtin_exp2(exponent) * rest));
  }
  return decays;
}

}  // namespace tessera
