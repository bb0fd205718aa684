// Parts of an axis.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// A part of an axis.
struct part_of_axis {
  std::int64_t first = 0;
  int count = 0;
};

/// Block `block` of an axis of `all` elements that is cut into blocks of `size`.
template <class Kernel>
part_of_axis part_of(std::int64_t block, std::int64_t size, std::int64_t all) {
  const std::int64_t first = block * size, left = all - first;
  return {first, static_cast<int>(left < size ? left : size)};
}

/// Calls body(block, first, count) for every part of an axis of scales that lies in one block.
template <class Body>
TESSERA_INLINE void for_each_scale_block(part_of_axis k, std::int64_t block_size,
                                         const Body& body) {
  for (int done = 0; done < k.count;) {
    const std::int64_t block = (k.first + done) / block_size;
    const std::int64_t end = (block + 1) * block_size - k.first;
    const int stop = end < k.count ? static_cast<int>(end) : k.count;
    body(block, done, stop - done);
    done = stop;
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
