// Outputs and final sums of an rwkv4 call: each block of channels walks its sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_block.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::selective_scan::cpu {

template <class Kernel>
class rwkv4_forward {
  using block_type = rwkv4_block<Kernel>;
  using isa_type = typename block_type::isa_type;
  using vec = typename block_type::vec;

 public:
  explicit rwkv4_forward(const rwkv4_kernel_args& args) : args_(args) {}

  /// Memory of each thread.
  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(threads) * thread_memory(args_, nullptr).carver.bytes();
  }

  void run(std::byte* workspace, int threads) const {
    const std::size_t bytes = workspace_bytes(1);
    const std::int64_t blocks = block_type::blocks(args_.channels);
    prim::parallel_items<isa_type>(
        args_.sequences.count * blocks, threads, [&](std::int64_t item, int thread) {
          thread_memory own(args_, workspace + static_cast<std::size_t>(thread) * bytes);
          own.block.enter(item / blocks, item % blocks);
          scan(own, tokens_of<isa_type>(args_.sequences, item / blocks));
        });
    clear_unused<isa_type>(args_.out, args_.sequences, args_.channels, threads);
  }

 private:
  struct thread_memory {
    thread_memory(const rwkv4_kernel_args& args, std::byte* base)
        : carver(base),
          block(args, carver),
          sums(block_type::carve_sums(carver)),
          y(carver.take(block_type::width)) {}
    prim::float_carver carver;
    block_type block;
    rwkv4_sums sums;
    float* y;
  };

  void scan(thread_memory& own, const token_range& tokens) const {
    own.block.load_sums(args_.initial_state, own.sums);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      own.block.load_token(tokens.entry, token);
      for (std::int64_t at = 0; at < own.block.columns(); at += vec::width) {
        vec::store(own.y + at, own.block.read(own.sums, at));
        own.block.update(own.sums, own.sums, at);
      }
      store_row<isa_type>(args_.out, own.block.row_at(args_.out, tokens.entry, token),
                          own.block.columns(), own.y);
    }
    own.block.store_sums(args_.final_state, own.sums);
  }

  const rwkv4_kernel_args& args_;
};

}  // namespace tessera::kernels::selective_scan::cpu
