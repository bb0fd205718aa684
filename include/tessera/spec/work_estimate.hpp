// What a row would have to do for a problem, in a handful of numbers that every family can give.
// The cost model (runtime/cost.hpp) makes seconds of them for a device.
#pragma once

#include <algorithm>
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
  int items_per_core = 1;        ///< that a multiprocessor works on at the same time
  std::int64_t most_splits = 1;  ///< parts that an item can be cut into, to be merged afterwards
};

/// Parts that items are cut into where there are too few of them for the multiprocessors.
constexpr std::int64_t predicted_splits(const work_estimate& work, int multiprocessors) noexcept {
  const std::int64_t slots = std::int64_t{multiprocessors} * work.items_per_core;
  if (work.items <= 0 || 10 * work.items >= 8 * slots) return 1;
  return std::clamp<std::int64_t>(slots / work.items, 1, work.most_splits);
}

}  // namespace tessera
