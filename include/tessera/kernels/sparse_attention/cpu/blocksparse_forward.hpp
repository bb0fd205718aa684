// Blocksparse attention: for each block of query rows, the tiles of keys that it sees some of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/softmax_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/visible_pairs.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Where a row of (entry, head) begins: element offset of row `first` + i.
template <class Tensor>
auto rows_from(const Tensor& tensor, std::int64_t entry, std::int64_t head, std::int64_t first) {
  const std::int64_t begin = entry * tensor.entry + head * tensor.head + first * tensor.token;
  return [begin, stride = tensor.token](std::int64_t i) { return begin + i * stride; };
}

/// Rows [first, first + block_rows) of an entry and query head.
struct row_block {
  std::int64_t entry, head, block;
  std::int64_t first() const { return block * block_rows; }
  int rows(std::int64_t length) const {
    return static_cast<int>(std::min<std::int64_t>(block_rows, length - first()));
  }
};

/// Keys of tile number `tile`.
inline int keys_of_tile(std::int64_t tile, std::int64_t length) {
  return static_cast<int>(std::min<std::int64_t>(block_keys, length - tile * block_keys));
}

template <class Kernel, class Mask = prim::no_mask_functor>
class blocksparse_forward {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using pairs_type = visible_pairs<isa_type, Mask>;
  using block_type = softmax_block<isa_type>;

 public:
  explicit blocksparse_forward(const blocksparse_kernel_args& args, const Mask& mask = {})
      : args_(args), mask_(mask) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    static_cast<void>(pairs_type(args_, mask_, memory));
    return memory.bytes() + static_cast<std::size_t>(threads) * thread_bytes();
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    const pairs_type pairs(args_, mask_, memory);
    pairs.prepare(threads);
    std::byte* const of_threads = workspace + memory.bytes();
    const std::int64_t blocks = pairs.blocks();
    // The last rows of a causal head have the most keys.
    prim::parallel_items<isa_type>(
        args_.batch * args_.q_heads * blocks, threads, [&](std::int64_t item, int thread) {
          const std::int64_t head = item / blocks;
          const row_block rows{head / args_.q_heads, head % args_.q_heads,
                               blocks - 1 - item % blocks};
          prim::float_carver own(of_threads + static_cast<std::size_t>(thread) * thread_bytes());
          block_type block(args_.head_dim, args_.v_head_dim, own);
          attend(rows, pairs, block);
        });
  }

 private:
  std::size_t thread_bytes() const {
    prim::float_carver memory(nullptr);
    static_cast<void>(block_type(args_.head_dim, args_.v_head_dim, memory));
    return memory.bytes();
  }

  void attend(const row_block& at, const pairs_type& pairs, block_type& block) const {
    const std::int64_t kv_head = at.head / (args_.q_heads / args_.kv_heads);
    block.load_queries(args_.q, at.rows(args_.q_len),
                       rows_from(args_.q, at.entry, at.head, at.first()));
    block.start();
    for (std::int64_t tile = 0; tile < pairs.tiles(); ++tile) {
      const auto seen = pairs.of_tile(at.entry, at.head, at.block, tile);
      if (seen == prim::tile_visibility::skip) continue;
      const std::int64_t key = tile * block_keys;
      block.load_keys(args_.k, keys_of_tile(tile, args_.kv_len),
                      rows_from(args_.k, at.entry, kv_head, key));
      block.load_values(args_.v, rows_from(args_.v, at.entry, kv_head, key));
      block.compute_scores({args_.softmax_scale, args_.soft_cap});
      if (seen == prim::tile_visibility::full) {
        for (int r = 0; r < block.rows; ++r) block.hide_outside(r, 0, block.keys);
      } else {
        pairs.hide(at.entry, at.head, at.block, tile, block);
      }
      block.accumulate();
    }
    store(at, block);
  }

  void store(const row_block& at, const block_type& block) const {
    const auto out = rows_from(args_.out, at.entry, at.head, at.first());
    const auto lse = rows_from(args_.lse, at.entry, at.head, at.first());
    const sparse_sinks& sinks = args_.sinks;
    const bool has_sinks = sinks.data != nullptr;
    for (int r = 0; r < block.rows; ++r) {
      const prim::softmax_result done =
          block.finish(r, has_sinks ? sinks.data + at.head * sinks.head : nullptr,
                       has_sinks ? args_.sink_count : 0, sinks.sink);
      prim::store_row<isa_type>(args_.out, out(r), args_.v_head_dim, block.output_row(r));
      if (args_.lse.data != nullptr) args_.lse.data[lse(r)] = done.lse;
    }
  }

  const blocksparse_kernel_args args_;
  const Mask mask_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
