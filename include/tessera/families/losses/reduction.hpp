// What becomes of the losses of single tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class loss_reduction : std::uint8_t {
  mean,  ///< their weighted sum, divided by the sum of the weights (at least 1e-8)
  sum,   ///< their weighted sum
  none,  ///< nothing: weight times loss, one for each token
};
inline constexpr std::array<std::string_view, 3> loss_reduction_names{"mean", "sum", "none"};

}  // namespace tessera
