// Attention on latents in pages, which are the keys of all heads and, their first columns, the
// values. New latents are written first:
//
//   for each new token { copy }
//   for each block of rows of a sequence { for each tile of latents { scores; softmax;
//                                                                      weighted values } }
//
// Rows of a block are tokens times all heads, so that a tile that is read serves many of them.
// Blocks are cut by the rows of their sequence alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/absorbed_block.hpp>
#include <tessera/kernels/latent_attention/cpu/pages.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class absorbed_forward {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  explicit absorbed_forward(const latent_attention_kernel_args& args)
      : args_(args), sequences_{args} {}

  std::size_t workspace_bytes(int threads) const {
    return starts_bytes() + static_cast<std::size_t>(threads) * thread_memory(args_, nullptr).bytes;
  }

  void run(std::byte* workspace, int threads) const {
    auto* const starts = reinterpret_cast<std::int64_t*>(workspace);
    const std::int64_t count = sequences_.count();
    starts[0] = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      starts[n + 1] = starts[n] + blocks_of(sequences_[n]);
    }
    if (args_.ckv_new.data != nullptr) {
      prim::parallel_items<isa_type>(count, threads, [&](std::int64_t n, int) {
        const prim::sequence seq = sequences_[n];
        for (std::int64_t i = 0; i < seq.q_len; ++i) write_latent<Kernel>(args_, seq, i);
      });
    }
    const std::size_t step = thread_memory(args_, nullptr).bytes;
    prim::parallel_items<isa_type>(starts[count], threads, [&](std::int64_t item, int thread) {
      const std::int64_t n = std::upper_bound(starts, starts + count + 1, item) - starts - 1;
      attend(sequences_[n], item - starts[n],
             thread_memory(args_,
                           workspace + starts_bytes() + static_cast<std::size_t>(thread) * step));
    });
    clear_unused(threads);
  }

 private:
  /// Of a thread.
  struct thread_memory {
    thread_memory(const latent_attention_kernel_args& args, std::byte* base)
        : carver(base), block(args, carver), bytes(carver.bytes()) {}
    prim::float_carver carver;
    absorbed_scratch<Kernel> block;
    std::size_t bytes;
  };

  /// The number of each sequence's first block, and of all blocks.
  std::size_t starts_bytes() const {
    return (static_cast<std::size_t>(args_.entries + 1) * sizeof(std::int64_t) + 63) / 64 * 64;
  }
  std::int64_t blocks_of(const prim::sequence& seq) const {
    return (seq.q_len * args_.heads + shape::block_rows - 1) / shape::block_rows;
  }

  /// The blocks of a sequence have the same number of rows, up to one.
  void attend(const prim::sequence& seq, std::int64_t block, const thread_memory& scratch) const {
    const std::int64_t all = seq.q_len * args_.heads, blocks = blocks_of(seq);
    const std::int64_t begin = all * block / blocks, end = all * (block + 1) / blocks;
    const query_rows<Kernel> rows(args_, seq, 0, begin, static_cast<int>(end - begin));
    absorbed_block<Kernel> sums(args_, rows, scratch.block);
    const prim::key_interval seen = rows.keys_of_some();
    const std::int64_t first = seen.begin / shape::block_keys * shape::block_keys;
    const auto tile_at = [&](std::int64_t key0) {
      const std::int64_t left = key0 < seen.end ? seq.k_len - key0 : 0;
      return key_range{key0, static_cast<int>(std::min<std::int64_t>(shape::block_keys, left))};
    };
    for (std::int64_t key0 = first; key0 < seen.end; key0 += shape::block_keys) {
      sums.add(tile_at(key0), tile_at(key0 + shape::block_keys));
    }
    sums.store();
  }

  /// Tokens behind the last sequence.
  void clear_unused(int threads) const {
    if (args_.cu_seqlens_q == nullptr) return;
    const std::int64_t first = sequences_.end_of_tokens();
    prim::parallel_items<isa_type>(args_.length - first, threads, [&](std::int64_t item, int) {
      for (std::int64_t head = 0; head < args_.heads; ++head) {
        const std::int64_t row = args_.out.at(0, first + item, head);
        prim::with_elements<isa_type>(args_.out, [&](auto* elements) {
          using element = std::remove_pointer_t<decltype(elements)>;
          std::fill_n(elements + row, args_.value, element{});
        });
        if (args_.lse.data == nullptr) continue;
        args_.lse.data[head * args_.lse.head + (first + item) * args_.lse.row] =
            prim::minus_infinity;
      }
    });
  }

  const latent_attention_kernel_args& args_;
  paged_sequences<Kernel> sequences_;
};

}  // namespace tessera::kernels::latent_attention::cpu
