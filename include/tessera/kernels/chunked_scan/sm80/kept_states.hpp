// States in front of chunks, on both ways, for the gradients of decays: what a thread has of the
// transposed state, rounded to bf16, as the operand that products read it as.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// The number of a sequence's first chunk.
__device__ __forceinline__ std::int64_t first_chunk_of(const chunk_states& states,
                                                       const sequence& all) {
  return states.entry == 0 ? all.begin / chunk_states::tokens + all.number
                           : all.entry * states.entry;
}

/// Of the tile of 16 columns and one chunk, the words of a lane.
template <int Keys>
struct kept_tile {
  static constexpr int quads = Keys / 16;

  static __device__ __forceinline__ kept_tile of(uint4* states, std::int64_t chunk,
                                                 const chunked_scan_kernel_args& call,
                                                 std::int64_t head, int tile) {
    const std::int64_t tiles = (call.keys + 15) / 16;
    return {states + ((chunk * call.heads + head) * tiles + tile) * (quads * 32) +
            threadIdx.x % 32};
  }

  template <class Element>
  __device__ __forceinline__ prim::cuda::fragment_b2 operand(int depth) const {
    const uint4 words = lane[depth * 32];
    return {{words.x, words.z, words.y, words.w}};
  }
  /// The same as 16 rows of the state as it is, as they lie; not asked for before its turn, as
  /// registers are rare.
  __device__ __forceinline__ prim::cuda::fragment_a rows(int depth) const {
    prim::cuda::fragment_a a;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.reg[0]), "=r"(a.reg[1]), "=r"(a.reg[2]), "=r"(a.reg[3])
                 : "l"(lane + depth * 32));
    return a;
  }
  /// Brings the tile near.
  __device__ __forceinline__ void fetch() const {
    constexpr int lines = quads * 4;
    const int line = static_cast<int>(threadIdx.x) % 32;
    if (line < lines) prim::cuda::fetch_line(lane + line * 7);
  }

  uint4* lane;
};

/// Keeps the tiles of a warp, which begin with number `first`; those behind the columns are
/// nobody's.
template <int Keys, class State>
__device__ __forceinline__ void keep_state(const State& state, uint4* states, std::int64_t chunk,
                                           const chunked_scan_kernel_args& call, std::int64_t head,
                                           int first) {
  constexpr int tiles = sizeof(state.at) / sizeof(state.at[0]);
#pragma unroll
  for (int i = 0; i < tiles; ++i) {
    if ((first + i) * 16 >= call.keys) return;
    const auto to = kept_tile<Keys>::of(states, chunk, call, head, first + i);
#pragma unroll
    for (int depth = 0; depth < kept_tile<Keys>::quads; ++depth) {
      const prim::cuda::fragment_b2 words = state.template operand<bf16>(i, depth);
      to.lane[depth * 32] = make_uint4(words.reg[0], words.reg[2], words.reg[1], words.reg[3]);
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::sm80
