// Gradients of native sparse attention, in passes: statistics of selected blocks, queries and
// gates, means of blocks, keys and values with what selected blocks add to the queries. The
// selection is a constant.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_keys.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_queries.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_statistics.hpp>
#include <tessera/kernels/sparse_attention/cpu/selected_tokens.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::sparse_attention::cpu {

template <class Kernel>
class native_sparse_backward {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using rows_type = native_sparse_rows<isa_type>;
  using queries_type = native_sparse_queries<isa_type>;
  using keys_type = native_sparse_keys<isa_type>;
  using counter = std::atomic<std::int64_t>;

 public:
  explicit native_sparse_backward(const native_sparse_kernel_args& args) : args_(args) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    const launch_memory launch(args_, memory);
    return memory.bytes() + static_cast<std::size_t>(threads) * thread_bytes(launch);
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    const launch_memory launch(args_, memory);
    const bool means = launch.rows.has(sparse_branch::compressed);
    if (means) launch.rows.make_means(threads);
    launch.selected.make(threads);
    const thread_part parts{workspace + memory.bytes(), thread_bytes(launch), threads};
    start_statistics(launch, threads);
    for_each_block(launch, parts,
                   [](keys_type& keys, const token_sequence& tokens, std::int64_t kv_head,
                      std::int64_t block) { keys.add_statistics(tokens, kv_head, block); });
    differentiate_queries(launch, parts);
    if (means) differentiate_means(launch, parts);
    for_each_block(launch, parts,
                   [](keys_type& keys, const token_sequence& tokens, std::int64_t kv_head,
                      std::int64_t block) { keys.differentiate_block(tokens, kv_head, block); });
    store_queries(launch, threads);
    launch.rows.for_each_unused(threads, [&](const token_sequence& token) {
      rows_type::clear(args_.d_q, token, args_.q_heads, args_.head_dim);
      rows_type::clear(args_.d_k, token, args_.kv_heads, args_.head_dim);
      rows_type::clear(args_.d_v, token, args_.kv_heads, args_.v_head_dim);
      for (const sparse_rows* gate : {&args_.d_g_slc, &args_.d_g_cmp, &args_.d_g_swa}) {
        rows_type::clear(*gate, token, args_.q_heads, 1);
      }
    });
  }

 private:
  struct launch_memory {
    launch_memory(const native_sparse_kernel_args& args, prim::float_carver& memory)
        : rows(args, memory),
          selected(rows, memory),
          statistics(rows, memory),
          means{rows.means(args.head_dim, memory), rows.means(args.v_head_dim, memory)},
          next_item(memory.take<counter>(1)) {}
    rows_type rows;
    selected_tokens<isa_type> selected;
    branch_statistics<isa_type> statistics;
    mean_gradients means;
    counter* next_item;  ///< of the blocks that threads take
  };
  /// Where the memory of threads lies.
  struct thread_part {
    std::byte* begin;
    std::size_t bytes;
    int threads;
    prim::float_carver of(int thread) const {
      return prim::float_carver(begin + static_cast<std::size_t>(thread) * bytes);
    }
  };

  /// The passes use the same memory.
  static std::size_t thread_bytes(const launch_memory& launch) {
    prim::float_carver of_queries(nullptr), of_keys(nullptr);
    static_cast<void>(queries_type(launch.rows, launch.statistics, of_queries));
    static_cast<void>(keys_of(launch, of_keys));
    return std::max(of_queries.bytes(), of_keys.bytes());
  }

  /// Calls body(tokens, key/value head, number, thread) for numbers [0, count) of every sequence
  /// and key/value head.
  template <class Body>
  void for_each_item(const launch_memory& launch, int threads, std::int64_t count,
                     const Body& body) const {
    prim::parallel_items<isa_type>(args_.sequences.count * args_.kv_heads * count, threads,
                                   [&](std::int64_t item, int thread) {
                                     body(launch.rows.sequence(item / (count * args_.kv_heads)),
                                          item / count % args_.kv_heads, item % count, thread);
                                   });
  }

  void differentiate_queries(const launch_memory& launch, const thread_part& parts) const {
    const std::int64_t step = launch.rows.tokens_of_list();
    const std::int64_t lists = (args_.sequences.tokens + step - 1) / step;
    for_each_item(
        launch, parts.threads, lists,
        [&](const token_sequence& tokens, std::int64_t kv_head, std::int64_t number, int thread) {
          const std::int64_t first = (lists - 1 - number) * step;
          if (first >= tokens.length) return;
          prim::float_carver own = parts.of(thread);
          queries_type queries(launch.rows, launch.statistics, own);
          queries.run(tokens, kv_head, {first, std::min(first + step, tokens.length)});
        });
  }
  void differentiate_means(const launch_memory& launch, const thread_part& parts) const {
    const std::int64_t tiles = (launch.rows.most_blocks() + block_keys - 1) / block_keys;
    for_each_item(
        launch, parts.threads, tiles,
        [&](const token_sequence& tokens, std::int64_t kv_head, std::int64_t number, int thread) {
          const std::int64_t blocks = launch.rows.blocks_in(tokens.length);
          const std::int64_t first = number * block_keys;
          if (first >= blocks) return;
          prim::float_carver own = parts.of(thread);
          keys_type keys = keys_of(launch, own);
          keys.differentiate_means(tokens, kv_head,
                                   {first, std::min<std::int64_t>(first + block_keys, blocks)});
        });
  }
  static keys_type keys_of(const launch_memory& launch, prim::float_carver& memory) {
    return {launch.rows, launch.selected, launch.statistics, launch.means, memory};
  }

  /// Calls body(keys, tokens, kv_head, block) for every block, the first ones of all heads first. A
  /// block waits for blocks in front of it alone, which threads have taken by then.
  template <class Body>
  void for_each_block(const launch_memory& launch, const thread_part& parts,
                      const Body& body) const {
    const std::int64_t heads = args_.sequences.count * args_.kv_heads;
    const std::int64_t items = heads * launch.rows.longest_blocks();
    new (launch.next_item) counter{0};
    prim::parallel_items<isa_type>(
        std::min<std::int64_t>(parts.threads, items), parts.threads, [&](std::int64_t, int thread) {
          prim::float_carver own = parts.of(thread);
          keys_type keys = keys_of(launch, own);
          const auto take = [&] {
            return launch.next_item->fetch_add(1, std::memory_order_relaxed);
          };
          for (std::int64_t item = take(); item < items; item = take()) {
            const std::int64_t head = item % heads, block = item / heads;
            const token_sequence tokens = launch.rows.sequence(head / args_.kv_heads);
            if (block >= launch.rows.blocks_in(tokens.length)) continue;
            body(keys, tokens, head % args_.kv_heads, block);
          }
        });
  }

  /// Calls body(tokens, token, kv_head, heads of the group) for the tokens of all sequences.
  template <class Body>
  void for_each_token(const launch_memory& launch, int threads, const Body& body) const {
    constexpr std::int64_t step = 64;
    const std::int64_t group = launch.rows.group();
    for_each_item(
        launch, threads, (args_.sequences.tokens + step - 1) / step,
        [&](const token_sequence& tokens, std::int64_t kv_head, std::int64_t number, int) {
          const std::int64_t end = std::min((number + 1) * step, tokens.length);
          for (std::int64_t token = number * step; token < end; ++token) {
            body(tokens, token, kv_head, head_range{kv_head * group, (kv_head + 1) * group});
          }
        });
  }
  void start_statistics(const launch_memory& launch, int threads) const {
    for_each_token(launch, threads,
                   [&](const token_sequence& tokens, std::int64_t token, std::int64_t kv_head,
                       head_range heads) {
                     launch.statistics.start_sums(tokens, token, heads);
                     launch.statistics.start_turns(tokens, token, kv_head);
                   });
  }
  void store_queries(const launch_memory& launch, int threads) const {
    using vec = prim::simd<isa_type>;
    const auto scale = vec::broadcast(args_.softmax_scale);
    for_each_token(
        launch, threads,
        [&](const token_sequence& tokens, std::int64_t token, std::int64_t, head_range heads) {
          for (std::int64_t head = heads.begin; head < heads.end; ++head) {
            float* const row = launch.statistics.d_q(tokens, token, head);
            for (std::int64_t d = 0; d < args_.head_dim; d += vec::width) {
              vec::store(row + d, vec::mul(vec::load(row + d), scale));
            }
            prim::store_row<isa_type>(args_.d_q, rows_type::offset(args_.d_q, tokens, token, head),
                                      args_.head_dim, row);
          }
        });
  }

  const native_sparse_kernel_args args_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
