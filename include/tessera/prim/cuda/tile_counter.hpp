// Thread blocks that stay for a whole launch and take one tile after the other: each begins with
// the tile of its own number, then takes the next that nobody has.
#pragma once

namespace tessera::prim::cuda {

/// Counts the tiles that blocks have taken, in a word of memory that is 0 before and after every
/// launch. Launches that are under way at the same time have different words. Used by one thread of
/// a block.
class tile_counter {
 public:
  /// `tiles` of the launch. Blocks beyond them have no first tile and take none.
  __device__ __forceinline__ tile_counter(unsigned* word, int tiles) : word_(word), tiles_(tiles) {}

  /// The next tile; `tiles` or more if there is none. Taken once after each tile: so the taking
  /// numbered `tiles` is the last one, and leaves the word ready for the next launch.
  __device__ __forceinline__ int take() const {
    const auto taken = static_cast<int>(atomicAdd(word_, 1u));
    if (taken == tiles_ - 1) *word_ = 0;
    int blocks;  // read when it is needed: the caller's loop has no register for it
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
    return blocks + taken;
  }

 private:
  unsigned* word_;
  int tiles_;
};

}  // namespace tessera::prim::cuda
