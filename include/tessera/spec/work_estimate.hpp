// What a row would have to do for a problem, in a handful of numbers that every family can give.
// The cost model (runtime/cost.hpp) makes seconds of them for a device.
#pragma once

#include <cstdint>

namespace tessera {

/// What one row does for one problem, tile edges and padding included.
struct work_estimate {
  double flops = 0;              ///< of the matrix products
  double product_share = 1;      ///< part of the peak that the row's product loop reaches
  double most_products = 0;      ///< flops a cycle that it reaches whatever the peak; 0: no limit
  double vector_operations = 0;  ///< elementwise operations beside the products
  double bytes = 0;              ///< moved between memory (or a shared cache) and the cores
  double streamed_bytes = 0;     ///< written past the caches, beside `bytes`
  double footprint_bytes = 0;    ///< of all tensors, if it decides where `bytes` come from; else 0
  double tile_bytes = 0;         ///< working set of one thread
  std::int64_t items = 1;        ///< independent pieces of about equal size
  // Of thread blocks on a GPU.
  int items_per_core = 1;   ///< that a multiprocessor works on at the same time
  std::int64_t splits = 1;  ///< parts that the kernel's schedule cuts each item into
  int launches = 1;         ///< kernels one after the other
};

}  // namespace tessera
