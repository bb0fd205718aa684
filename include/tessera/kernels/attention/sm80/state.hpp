// What a thread block keeps in shared memory besides its tiles.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::sm80 {

/// What all threads of a block know and rarely need. It lies in shared memory, because every
/// register counts in the loop.
template <mask_mode Mode, class Window>
struct block_state {
  key_range keys;
  const std::uint16_t* k = nullptr;  ///< key 0 of the sequence, in units of 16 bits
  const std::uint16_t* v = nullptr;
  row_range range;
  Window window;
  prim::row_visibility<Mode> visible;
  bool negate = false;   ///< the queries' signs are still to be turned
  bool careful = false;  ///< a sum was not finite: run again and look at every value
};

}  // namespace tessera::kernels::attention::sm80
