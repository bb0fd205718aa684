// The size of a tile of a product, and where its sums are.
#pragma once

#include <cstdint>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows and columns of a tile.
struct tile_size {
  int rows = 0;
  int columns = 0;
  bool across = false;  ///< rows of the tensor that is B lie across the summed axis
};

/// Where sums of a tile are: in its memory, or at last in the tensor itself.
struct tile_sums {
  float* data = nullptr;
  std::int64_t stride = 0;
};

}  // namespace tessera::kernels::grouped_matmul::cpu
