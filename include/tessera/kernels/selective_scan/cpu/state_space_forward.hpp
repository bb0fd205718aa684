// Outputs and final states of a selective state-space call: each block of channels walks its
// sequence token by token, its states in the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_block.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_norm.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// The workspace of a launch: that of the norm, if there is one, and memory of each thread.
template <class Kernel>
class state_space_forward {
  using block_type = state_space_block<Kernel>;
  using cut_type = state_space_cut<Kernel>;
  using isa_type = typename block_type::isa_type;
  using vec = typename block_type::vec;

 public:
  explicit state_space_forward(const state_space_kernel_args& args) : args_(args), cut_{args} {}

  std::size_t workspace_bytes(int threads) const {
    return norm_type(args_).bytes(threads) + static_cast<std::size_t>(threads) * thread_bytes();
  }

  void run(std::byte* workspace, int threads) const {
    run_blocks(workspace, threads);
    if (args_.norm) norm_type(args_).run(workspace, threads);
    clear_unused<isa_type>(args_.out, args_.sequences, args_.heads, args_.columns, threads);
  }

  /// Blocks that lie side by side and are one item: those of lone tokens are too short for many
  /// threads, each of which has four items or more.
  std::int64_t blocks_of_item(std::int64_t blocks, int threads) const {
    if (!has_lone_tokens()) return 1;
    if (threads <= 1) return std::max<std::int64_t>(blocks, 1);
    return std::clamp<std::int64_t>(blocks / (4 * threads), 1, 16);
  }

  /// Final states; outputs, or with norm the columns that are to be normalised.
  void run_blocks(std::byte* workspace, int threads) const {
    std::byte* const of_threads = workspace + norm_type(args_).bytes(threads);
    const std::int64_t blocks = cut_.blocks(), all = args_.sequences.count * blocks;
    const std::int64_t run = blocks_of_item(all, threads);
    prim::parallel_items<isa_type>(
        (all + run - 1) / run, threads, [&](std::int64_t item, int thread) {
          for (std::int64_t at = item * run; at < std::min(all, (item + 1) * run); ++at) {
            channel_block block = cut_.block_at(at / blocks, at % blocks);
            block.is_last = threads > 1 && at + 1 == std::min(all, (item + 1) * run);
            scan(block, of_threads + static_cast<std::size_t>(thread) * thread_bytes(), workspace);
          }
        });
  }

 private:
  /// No sequence has two tokens.
  bool has_lone_tokens() const {
    if (args_.sequences.cu_seqlens == nullptr) return args_.sequences.tokens <= 1;
    if (args_.sequences.tokens > args_.sequences.count) return false;
    for (std::int64_t sequence = 0; sequence < args_.sequences.count; ++sequence) {
      const token_range tokens = tokens_of<isa_type>(args_.sequences, sequence);
      if (tokens.end - tokens.begin > 1) return false;
    }
    return true;
  }

  using norm_type = state_space_norm<isa_type>;

  struct thread_memory {
    thread_memory(const state_space_kernel_args& args, std::int64_t width, std::byte* base)
        : carver(base),
          block(args, carver),
          states(carver.take(args.states * width)),
          y(carver.take(width)) {}
    prim::float_carver carver;
    block_type block;
    float* states;
    float* y;
  };
  std::size_t thread_bytes() const {
    return thread_memory(args_, cut_.width(), nullptr).carver.bytes();
  }

  void scan(const channel_block& channels, std::byte* memory, std::byte* workspace) const {
    thread_memory own(args_, cut_.width(), memory);
    const token_range tokens = tokens_of<isa_type>(args_.sequences, channels.sequence);
    const bool in_place = tokens.end - tokens.begin == 1 && own.block.is_in_place(channels);
    own.block.enter(channels, in_place);
    if (!in_place) own.block.load_states(args_.initial_state, own.states);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      own.block.load_token(tokens.entry, token);
      if (in_place) {
        own.block.step_in_place(own.y);
      } else {
        own.block.update(own.states, own.states);
        own.block.read(own.states, own.y);
      }
      if (args_.norm) {
        float* const row = norm_type(args_).token_columns(workspace, tokens.entry, token);
        std::copy(own.y, own.y + channels.columns,
                  row + channels.head * args_.columns + channels.first);
        continue;
      }
      if (args_.z.data != nullptr) apply_gate(own, tokens.entry, token);
      store_row<isa_type>(args_.out, own.block.row_at(args_.out, tokens.entry, token),
                          channels.columns, own.y);
    }
    if (!in_place) own.block.store_states(args_.final_state, own.states);
  }

  /// y silu(z).
  void apply_gate(thread_memory& own, std::int64_t entry, std::int64_t token) const {
    own.block.load_gate(entry, token);
    for (std::int64_t at = 0; at < own.block.lanes(); at += vec::width) {
      const auto gate = prim::silu_of<isa_type>(vec::load(own.block.z() + at)).value;
      vec::store(own.y + at, vec::mul(vec::load(own.y + at), gate));
    }
  }

  const state_space_kernel_args& args_;
  cut_type cut_;
};

}  // namespace tessera::kernels::selective_scan::cpu
