// Biases that the copy unit brings with tiles of keys: a panel of 64 keys for the rows of a work
// tile, beside the keys in their ring, from where lanes read what their scores want by ldmatrix.
// Read from global memory by the lanes themselves, a row of 64 biases is eight times as many
// accesses as lines.
#pragma once

#include <cstdint>

#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// The bias of a call whose tiles are brought. Panels have the lines that it has: one where all
/// tokens and heads have the same.
struct boxed_bias {
  std::uint32_t bytes = 0;  ///< of a panel, at most; 0: lanes read biases themselves
  int of_entry = 0, of_head = 0, of_token = 0;  ///< 1, or 0 where all have the same
  int heads = 1;                                ///< lines of a token

  /// The line of a row of the work tile.
  __device__ __forceinline__ int line_of(int row, const prim::divisor& heads_of_tile) const {
    const int token = heads_of_tile.quotient(row);
    const int head = row - token * static_cast<int>(heads_of_tile.value);
    return token * of_token * heads + head * of_head;
  }
};

/// Whether the places of keys have biases in this launch.
template <class Traits, class Args>
__device__ __forceinline__ bool holds_biases(const Args& args) {
  if constexpr (Traits::brings_biases) return args.bias.bytes != 0;
  return false;
}

/// The panel of a tile of keys, of a thread that reads it. It has the number of their place, whose
/// turn it shares.
template <int Stages>
class bias_panel {
 public:
  __device__ __forceinline__ bias_panel(std::uint32_t barriers, std::uint32_t at,
                                        const prim::cuda::ring_place<Stages>& place)
      : barriers_(barriers), at_(at), place_(place) {}

  /// Its address, once the biases are there.
  __device__ __forceinline__ std::uint32_t wait() const {
    place_.wait_full(barriers_);
    return at_;
  }
  /// By all of a warp, once it is read.
  __device__ __forceinline__ void release() const {
    if (prim::cuda::thread_index() % prim::cuda::warp_size == 0) place_.release(barriers_);
  }
  /// By all of a warp that reads nothing of it.
  __device__ __forceinline__ void pass() const {
    wait();
    release();
  }

 private:
  std::uint32_t barriers_, at_;
  prim::cuda::ring_place<Stages> place_;
};

/// Panels beside the places of keys: the end of a block's shared memory, which launches without
/// such biases leave to the cache.
template <class Traits>
struct bias_places {
  alignas(1024) unsigned char panels[Traits::kv_stages][Traits::q_panel_bytes];
};
struct no_bias_places {};

/// Where in a panel the chunk of eight biases lies that a lane addresses for eight rows of its
/// warp, of which it has row l % 8: those of keys 8 (l / 8) on.
__device__ __forceinline__ std::uint32_t chunk_of_line(int line, int lane) {
  return static_cast<std::uint32_t>(line * prim::cuda::panel_row_bytes +
                                    (lane / 8 ^ line % 8) * 16);
}

/// A lane's biases of one of its rows and 64 keys, two a word; `chunk`: see above.
template <class Pair>
__device__ __forceinline__ void load_from_panel(std::uint32_t panel, std::uint32_t chunk,
                                                Pair (&to)[8]) {
#pragma unroll
  for (int n = 0; n < 8; n += 4) {
    std::uint32_t words[4];
    prim::cuda::load_matrices(words, (panel + chunk) ^ (n * 16u));
#pragma unroll
    for (int i = 0; i < 4; ++i) to[n + i].word = words[i];
  }
}

}  // namespace tessera::kernels::attention::sm90
