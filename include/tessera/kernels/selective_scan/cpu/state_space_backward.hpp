// Gradients of a selective state-space call. States are computed again: a walk forward leaves those
// at the beginning of every chunk, a walk back has those of one chunk after the other.
//
// A work item owns a block of channels of some of the sequences, and so the gradients of the
// block's tokens; what sums over sequences or over blocks is added up afterwards, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/cpu/rows.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_block.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_forward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_gradients.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_norm_backward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_sums.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::selective_scan::cpu {

template <class Kernel>
class state_space_backward {
  using block_type = state_space_block<Kernel>;
  using cut_type = state_space_cut<Kernel>;
  using isa_type = typename block_type::isa_type;
  using sums_type = state_space_sums<Kernel>;
  using gradients_type = state_space_gradients<Kernel>;

 public:
  explicit state_space_backward(const state_space_kernel_args& args)
      : args_(args), cut_{args}, sums_(args), forward_(args), norm_(args) {}

  std::size_t workspace_bytes(int threads) const {
    return norm_bytes(threads) + sums_.bytes() + static_cast<std::size_t>(threads) * thread_bytes();
  }

  void run(std::byte* workspace, int threads) const {
    const float* const d_columns = run_norm(workspace, threads);
    workspace += norm_bytes(threads);
    const std::int64_t blocks = cut_.blocks();
    std::byte* const of_threads = workspace + sums_.bytes();
    prim::parallel_items<isa_type>(
        sums_.parts() * blocks, threads, [&](std::int64_t item, int thread) {
          thread_memory own(args_, cut_.width(),
                            of_threads + static_cast<std::size_t>(thread) * thread_bytes());
          const std::int64_t part = item / blocks, block = item % blocks;
          own.gradients.begin(sums_.parameters_at(workspace, part, block));
          for (std::int64_t sequence = part; sequence < args_.sequences.count;
               sequence += sums_.parts()) {
            walk(own, cut_.block_at(sequence, block), block, workspace, d_columns);
          }
        });
    sums_.add_up(workspace, threads);
    for (const scan_tensor* rows : {&args_.d_x, &args_.d_z}) {
      clear_unused<isa_type>(*rows, args_.sequences, args_.heads, args_.columns, threads);
    }
    clear_unused<isa_type>(args_.d_dt, args_.sequences, args_.heads,
                           cut_type::shares_steps ? 1 : args_.columns, threads);
    for (const scan_tensor* rows : {&args_.d_B, &args_.d_C}) {
      clear_unused<isa_type>(*rows, args_.sequences, args_.groups, args_.states, threads);
    }
  }

 private:
  static constexpr std::int64_t chunk_tokens = 64;

  struct thread_memory {
    thread_memory(const state_space_kernel_args& args, std::int64_t width, std::byte* base)
        : carver(base), block(args, carver), gradients(args, block, carver) {
      const std::int64_t states = args.states * width;
      const std::int64_t chunks = (args.sequences.tokens + chunk_tokens - 1) / chunk_tokens;
      checkpoints = carver.take(chunks * states);
      chunk = carver.take((std::min(args.sequences.tokens, chunk_tokens) + 1) * states);
    }
    prim::float_carver carver;
    block_type block;
    gradients_type gradients;
    float* checkpoints;  ///< the states in front of each chunk of a sequence
    float* chunk;        ///< those in front of each token of a chunk, and behind the last
  };
  std::size_t thread_bytes() const {
    return thread_memory(args_, cut_.width(), nullptr).carver.bytes();
  }

  void walk(thread_memory& own, const channel_block& channels, std::int64_t block,
            std::byte* workspace, const float* d_columns) const {
    const token_range tokens = tokens_of<isa_type>(args_.sequences, channels.sequence);
    own.block.enter(channels);
    own.block.load_states(args_.initial_state, own.chunk);
    leave_checkpoints(own, tokens);
    own.gradients.load_states();
    const std::int64_t length = tokens.end - tokens.begin;
    for (std::int64_t chunk = (length + chunk_tokens - 1) / chunk_tokens - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = tokens.begin + chunk * chunk_tokens;
      const std::int64_t end = std::min(begin + chunk_tokens, tokens.end);
      compute_chunk(own, tokens.entry, begin, end, chunk);
      for (std::int64_t token = end - 1; token >= begin; --token) {
        const float* const before = own.chunk + (token - begin) * state_floats();
        own.block.load_token(tokens.entry, token);
        if (args_.z.data != nullptr) own.block.load_gate(tokens.entry, token);
        const float* const d_row =
            d_columns == nullptr ? nullptr : d_columns + column_at(channels, tokens.entry, token);
        own.gradients.step_back(tokens.entry, token, before, before + state_floats(),
                                sums_.groups_at(workspace, tokens.entry, token, block), d_row);
      }
      own.gradients.end_chunk();
    }
    own.gradients.store_states();
  }

  /// From the states in `chunk` on.
  void leave_checkpoints(thread_memory& own, const token_range& tokens) const {
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const std::int64_t at = token - tokens.begin;
      if (at % chunk_tokens == 0) {
        std::copy(own.chunk, own.chunk + state_floats(),
                  own.checkpoints + at / chunk_tokens * state_floats());
      }
      own.block.load_token(tokens.entry, token);
      own.block.update(own.chunk, own.chunk);
    }
  }

  void compute_chunk(thread_memory& own, std::int64_t entry, std::int64_t begin, std::int64_t end,
                     std::int64_t chunk) const {
    const float* const first = own.checkpoints + chunk * state_floats();
    std::copy(first, first + state_floats(), own.chunk);
    for (std::int64_t token = begin; token < end; ++token) {
      float* const before = own.chunk + (token - begin) * state_floats();
      own.block.load_token(entry, token);
      own.block.update(before, before + state_floats());
    }
  }

  /// With norm: the gradients of the columns that blocks give it, where the workspace begins.
  const float* run_norm(std::byte* workspace, int threads) const {
    if (!args_.norm) return nullptr;
    forward_.run_blocks(workspace, threads);
    auto* const columns = reinterpret_cast<float*>(workspace);
    norm_.run(columns, workspace + forward_.workspace_bytes(threads), threads);
    return columns;
  }
  std::size_t norm_bytes(int threads) const {
    return args_.norm ? forward_.workspace_bytes(threads) + norm_.bytes(threads) : 0;
  }
  std::int64_t column_at(const channel_block& channels, std::int64_t entry,
                         std::int64_t token) const {
    const std::int64_t row = entry * args_.sequences.tokens + token;
    return (row * args_.heads + channels.head) * args_.columns + channels.first;
  }

  std::int64_t state_floats() const { return args_.states * cut_.width(); }

  const state_space_kernel_args& args_;
  cut_type cut_;
  sums_type sums_;
  state_space_forward<Kernel> forward_;
  state_space_norm_backward<isa_type> norm_;
};

}  // namespace tessera::kernels::selective_scan::cpu
