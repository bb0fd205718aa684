// The masks that need no tensor.
#pragma once

#include <cstdint>

namespace tessera {

/// The visible keys of a query row that a kernel can express without a tensor. Each mode includes
/// the ones before it: `window` kernels also run causal and full problems.
enum class mask_mode : std::uint8_t {
  full,    ///< every key of the sequence
  causal,  ///< keys up to the aligned diagonal
  window,  ///< an interval around the aligned diagonal, cut by the diagonal when causal
};

}  // namespace tessera
