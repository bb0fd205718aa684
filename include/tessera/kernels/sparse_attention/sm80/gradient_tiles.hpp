// The tiles that gradients of sparse attention work on, in dynamic shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Shared memory: q, d_out, k, v.
inline int gradient_bytes(std::int64_t head_dim, std::int64_t v_head_dim) {
  return 2 * (float_tile::words(head_dim) + float_tile::words(v_head_dim)) *
         static_cast<int>(sizeof(float));
}

/// The tiles of a block, in dynamic shared memory.
struct gradient_tiles {
  float_tile q, k, d_out, v;
  __device__ gradient_tiles(float* memory, std::int64_t head_dim, std::int64_t v_head_dim)
      : q(memory, head_dim),
        k(q.end(), head_dim),
        d_out(k.end(), v_head_dim),
        v(d_out.end(), v_head_dim) {}
};

}  // namespace tessera::kernels::sparse_attention::sm80
