// The blocks that tokens side by side look at: each once, in their order, with the tokens that do.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

using sm80::native_sparse_launch, sm80::key_range, sm80::sequence_part;

/// Of `Tokens` tokens, a warp each, whose lanes have a slot each.
template <int Tokens>
struct token_blocks {
  static constexpr int slots = prim::cuda::warp_size;
  static constexpr int most = Tokens * slots;
  /// Blocks of a sequence: each has a bit.
  static constexpr int most_blocks = 12288;
  static constexpr int words = most_blocks / 32;
  static_assert(words <= Tokens * 32, "a thread looks at one word");

  int count;
  int block[most];
  std::uint32_t tokens[most];  ///< a bit for each that looks at the block

  /// Memory that is not needed once the blocks are known.
  struct scratch {
    std::uint32_t bits[words];
    int before[words];  ///< blocks in words before
    int of_warp[Tokens];
    int repeats[Tokens];
  };

  /// All threads. `mine` is the number of the block in the lane's slot, < 0: none. A block that a
  /// token names twice counts twice, behind all others.
  __device__ __forceinline__ void gather(scratch& memory, int mine) {
    const auto lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const auto warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
    const auto thread = static_cast<int>(threadIdx.x);
    const std::uint32_t lower = (1u << lane) - 1;
    const std::uint32_t alike = __match_any_sync(prim::cuda::all_lanes, mine);
    const bool repeats = mine >= 0 && (alike & lower) != 0;
    const std::uint32_t repeating = __ballot_sync(prim::cuda::all_lanes, repeats);
    if (thread < words) memory.bits[thread] = 0;
    for (int i = thread; i < most; i += Tokens * prim::cuda::warp_size) tokens[i] = 0;
    if (lane == 0) memory.repeats[warp] = __popc(repeating);
    __syncthreads();
    if (mine >= 0) atomicOr(memory.bits + mine / 32, 1u << mine % 32);
    __syncthreads();
    const int own = thread < words ? __popc(memory.bits[thread]) : 0;
    const int up_to = prim::cuda::inclusive_sum_of_warp(own, lane);
    if (lane == prim::cuda::warp_size - 1) memory.of_warp[warp] = up_to;
    __syncthreads();
    int all = 0, before = up_to - own, repeats_before = 0, all_repeats = 0;
    for (int w = 0; w < Tokens; ++w) {
      if (w < warp) before += memory.of_warp[w];
      if (w < warp) repeats_before += memory.repeats[w];
      all += memory.of_warp[w];
      all_repeats += memory.repeats[w];
    }
    if (thread < words) memory.before[thread] = before;
    if (thread == 0) count = all + all_repeats;
    __syncthreads();
    if (mine < 0) return;
    int at = 0;
    if (repeats) {
      at = all + repeats_before + __popc(repeating & lower);
    } else {
      const std::uint32_t word = memory.bits[mine / 32];
      at = memory.before[mine / 32] + __popc(word & ((1u << mine % 32) - 1));
    }
    block[at] = mine;
    atomicOr(tokens + at, 1u << warp);
  }
};

/// The places of a token among them, one after the other. A warp.
template <int Tokens>
class own_blocks {
 public:
  __device__ __forceinline__ own_blocks(const token_blocks<Tokens>& of, int warp)
      : of_(of), warp_(warp) {
    look();
  }
  /// The next place; the number of places if there is none.
  __device__ __forceinline__ int next() {
    while (left_ == 0) {
      first_ += prim::cuda::warp_size;
      if (first_ >= of_.count) return of_.count;
      look();
    }
    const int place = first_ + __ffs(static_cast<int>(left_)) - 1;
    left_ &= left_ - 1;
    return place;
  }

 private:
  __device__ __forceinline__ void look() {
    const int place = first_ + static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const bool own = place < of_.count && (of_.tokens[place] >> warp_ & 1u) != 0;
    left_ = __ballot_sync(prim::cuda::all_lanes, own);
  }

  const token_blocks<Tokens>& of_;
  int warp_, first_ = 0;
  std::uint32_t left_ = 0;
};

}  // namespace tessera::kernels::sparse_attention::sm90
