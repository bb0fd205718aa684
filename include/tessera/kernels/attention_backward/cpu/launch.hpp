// Entry points of the kernels: what is made of rows, then gradients of keys with sums of d_q, then
// d_q itself; gradients of biases and sinks where they are wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/kernels/attention/cpu/gemm_tiles.hpp>
#include <tessera/kernels/attention_backward/cpu/bias_gradients.hpp>
#include <tessera/kernels/attention_backward/cpu/functors.hpp>
#include <tessera/kernels/attention_backward/cpu/gradients.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/rows.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Bytes of scratch memory for `launch_with`. Reads no memory that `args` points to.
template <class Row>
std::size_t workspace_bytes_with(const attention_backward_kernel_args& args,
                                 const typename traits<Row>::hooks& hooks, int threads) {
  return launch_memory<Row>::at(nullptr, args, hooks, threads < 1 ? 1 : threads).bytes;
}

/// The same for `launch`.
template <class Row>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int threads) {
  return workspace_bytes_with<Row>(args, {}, threads);
}

/// `prim::parallel_items`; where there are tile registers, an item has them.
template <class Row, class Body>
void for_each_item(std::int64_t items, int threads, const Body& body) {
  prim::parallel_items<typename traits<Row>::isa_type>(
      items, threads, [&](std::int64_t item, int thread) {
        [[maybe_unused]] const typename forward::traits<typename traits<Row>::kernel>::tile_scope
            products;
        body(item, thread);
      });
}

/// The longest sequence by `length`, queries or keys; of dense tensors `all`, of which a sequence
/// may use less.
inline std::int64_t longest(const attention_kernel_args& args, bool packed, std::int64_t all,
                            std::int64_t prim::sequence::*length) {
  if (!packed) return all;
  std::int64_t most = 0;
  for (std::int64_t n = 0; n < args.batch; ++n) {
    const std::int64_t one = kernels::attention::sequence_of(args, n).*length;
    most = one > most ? one : most;
  }
  return most;
}

/// Calls body(sequence, kv_head, first row, end, thread) for blocks of folded rows of every
/// sequence, of which dense tensors may have more than it uses.
template <class Row, class Body>
void for_each_block_of_rows(const attention_kernel_args& args, int threads, const Body& body) {
  constexpr std::int64_t step = traits<Row>::block_q;
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t group = kernels::attention::group_of(args);
  const std::int64_t blocks = schedule_backward::ceil_div(
      longest(args, packed, args.q_len, &prim::sequence::q_len) * group, step);
  for_each_item<Row>(
      args.batch * args.kv_heads * blocks, threads, [&](std::int64_t item, int thread) {
        const prim::sequence seq =
            kernels::attention::sequence_of(args, item / blocks / args.kv_heads);
        const std::int64_t all = (packed ? seq.q_len : args.q_len) * group;
        const std::int64_t begin = item % blocks * step;
        const std::int64_t end = begin + step < all ? begin + step : all;
        if (begin < end) {
          body(seq, static_cast<int>(item / blocks % args.kv_heads), begin, end, thread);
        }
      });
}

template <class Row>
void run_rows(const attention_backward_kernel_args& args, const launch_memory<Row>& memory,
              int threads) {
  using shape = traits<Row>;
  const attention_kernel_args& of = args.forward;
  for_each_block_of_rows<Row>(
      of, threads,
      [&](const prim::sequence& seq, int kv_head, std::int64_t begin, std::int64_t, int thread) {
        const typename shape::query_rows rows(of, *memory.hooks, seq.index, kv_head, begin,
                                              shape::block_q);
        if (rows.count() == 0) return;
        prepare_rows<Row>(args, rows, memory.block_of(of, seq, kv_head, begin), memory,
                          memory.of_thread(thread, of));
      });
}

/// Tiles of keys of all heads: the first tiles, which with a causal mask most rows see, first. A
/// tile waits for those of its head before it alone, which threads have taken by then.
template <class Row>
void run_keys(const attention_backward_kernel_args& args, const launch_memory<Row>& memory,
              int threads) {
  const attention_kernel_args& of = args.forward;
  const std::int64_t heads = of.batch * of.kv_heads;
  const std::int64_t tiles = schedule_backward::tiles_of(
      longest(of, of.cu_seqlens_k != nullptr, of.kv_len, &prim::sequence::k_len),
      traits<Row>::block_kv);
  const std::int64_t items = heads * tiles;
  new (memory.items) typename launch_memory<Row>::progress;
  for_each_item<Row>(threads < items ? threads : items, threads, [&](std::int64_t, int thread) {
    const scratch<Row> buffers = memory.of_thread(thread, of);
    for (std::int64_t item = memory.items->take(1); item < items; item = memory.items->take(1)) {
      const std::int64_t head = item % heads;
      const prim::sequence seq = kernels::attention::sequence_of(of, head / of.kv_heads);
      key_gradients<Row>(args, seq, static_cast<int>(head % of.kv_heads), memory, buffers)
          .run(item / heads);
    }
  });
}

/// Packed rows and keys that belong to no sequence.
template <class Row>
void clear_behind_the_last(const attention_backward_kernel_args& args,
                           const launch_memory<Row>& memory) {
  const attention_kernel_args& of = args.forward;
  prim::sequence rest;
  rest.q_begin = of.cu_seqlens_q[of.batch];
  rest.k_begin = of.cu_seqlens_k[of.batch];
  for (int head = 0; head < of.kv_heads; ++head) {
    store_d_q<Row>(args, rest, head, 0,
                   (of.q_len - rest.q_begin) * kernels::attention::group_of(of), memory);
    key_gradients<Row>(args, rest, head, memory, scratch<Row>{})
        .clear_keys(0, of.kv_len - rest.k_begin);
  }
}

/// Runs the kernel with functors. `args` come from `lower`, `context.workspace` has
/// `workspace_bytes_with<Row>(args, hooks, context.threads)` bytes.
template <class Row>
status launch_with(const attention_backward_kernel_args& args,
                   const typename traits<Row>::hooks& hooks, const launch_context& context) {
  const int threads = context.threads < 1 ? 1 : context.threads;
  const std::size_t needed = workspace_bytes_with<Row>(args, hooks, threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  const auto memory = launch_memory<Row>::at(context.workspace, args, hooks, threads);
  const attention_kernel_args& of = args.forward;
  run_rows<Row>(args, memory, threads);
  run_keys<Row>(args, memory, threads);
  for_each_block_of_rows<Row>(
      of, threads,
      [&](const prim::sequence& seq, int kv_head, std::int64_t begin, std::int64_t end, int) {
        store_d_q<Row>(args, seq, kv_head, begin, end, memory);
      });
  if (of.cu_seqlens_q != nullptr) clear_behind_the_last<Row>(args, memory);
  const auto run_bias = [&](const score_gradient& to, bool behind_cap) {
    if (to.data == nullptr || to.batches * to.heads * to.rows * to.columns == 0) return;
    const bias_gradient<Row> gradient(args, to, behind_cap, memory);
    for_each_item<Row>(gradient.items(), threads,
                       [&](std::int64_t item, int thread) { gradient.run(item, thread); });
  };
  run_bias(args.d_bias_pre, false);
  run_bias(args.d_bias_post, true);
  if (args.d_sinks != nullptr) {
    for_each_item<Row>(args.d_sink_heads, threads,
                       [&](std::int64_t row, int) { store_d_sinks<Row>(args, row, memory); });
  }
  if constexpr (traits<Row>::has_parameters) {
    const parameter_gradients<Row> gradients(args, memory);
    for_each_item<Row>(parameter_lanes, threads,
                       [&](std::int64_t lane, int thread) { gradients.run_lane(lane, thread); });
    gradients.store();
  }
  return {};
}

/// Runs the kernel of a row of the table.
template <class Row>
status launch(const attention_backward_kernel_args& args, const launch_context& context) {
  return launch_with<Row>(args, {}, context);
}

}  // namespace tessera::kernels::attention_backward::cpu
