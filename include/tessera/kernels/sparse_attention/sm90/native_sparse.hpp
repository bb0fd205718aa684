// Native sparse attention forward of f16 and bf16: the row of sm80, whose selected blocks are read
// once for tokens side by side that share them.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse.hpp>
#include <tessera/kernels/sparse_attention/sm90/shared_blocks.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

/// Selected blocks for tokens side by side; token by token where groups, blocks or slots have sizes
/// that a tile has no place for.
template <class Kernel>
class selected_by_shared_blocks {
  using tiles = shared_tiles<Kernel>;
  using blocks = token_blocks<tiles::tokens>;

 public:
  void place(const native_sparse_launch& launch, int multiprocessors,
             cuda::workspace_parts& parts) {
    by_tokens_.place(launch, multiprocessors, parts);
    const native_sparse_kernel_args& call = launch.call;
    const std::int64_t slots = launch.selects() ? launch.looked_slots : call.slots;
    shares_ = launch.group() <= sm80::tile && 2 * call.block_size > tiles::keys &&
              slots <= blocks::slots && launch.most_blocks() <= blocks::most_blocks &&
              call.sequences.tokens < INT32_MAX;
  }
  static void add_entries(std::vector<prim::cuda::kernel_entry>& all) {
    sm80::selected_by_tokens<Kernel>::add_entries(all);
    all.push_back(
        cuda::entry_of(&native_sparse_attend_shared<Kernel>, sizeof(shared_blocks_plan<Kernel>)));
  }
  void queue(sm80::kernel_queue& queue, const native_sparse_launch& launch) const {
    if (!shares_) return by_tokens_.queue(queue, launch);
    queue.run(&native_sparse_attend_shared<Kernel>,
              launch.parts(tiles::tokens) * launch.call.kv_heads, tiles::block_threads,
              sizeof(shared_blocks_plan<Kernel>), launch);
  }

 private:
  sm80::selected_by_tokens<Kernel> by_tokens_;
  bool shares_ = false;
};

template <class Kernel>
using native_sparse_forward_row =
    sm80::native_sparse_forward_row<Kernel, selected_by_shared_blocks<Kernel>>;

}  // namespace tessera::kernels::sparse_attention::sm90
