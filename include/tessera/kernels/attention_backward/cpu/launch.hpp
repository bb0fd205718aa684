// Entry points of the kernels: corrections of rows, then gradients of keys with sums of d_q, then
// d_q itself; gradients of biases and sinks where they are wanted.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention_backward/kernel_args.hpp>
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

/// Calls body(sequence, kv_head, first query, end) for blocks of queries of every sequence, of
/// which dense tensors may have more than it uses.
template <class Row, class Body>
void for_each_block_of_queries(const attention_kernel_args& args, int threads, const Body& body) {
  constexpr std::int64_t queries = 64;
  const bool packed = args.cu_seqlens_q != nullptr;
  std::int64_t longest = args.q_len;
  if (packed) {
    longest = 0;
    for (std::int64_t n = 0; n < args.batch; ++n) {
      const std::int64_t length = kernels::attention::sequence_of(args, n).q_len;
      longest = length > longest ? length : longest;
    }
  }
  const std::int64_t blocks = schedule_backward::ceil_div(longest, queries);
  prim::parallel_items<typename traits<Row>::isa_type>(
      args.batch * args.kv_heads * blocks, threads, [&](std::int64_t item, int thread) {
        const prim::sequence seq =
            kernels::attention::sequence_of(args, item / blocks / args.kv_heads);
        const std::int64_t all = packed ? seq.q_len : args.q_len;
        const std::int64_t begin = item % blocks * queries;
        const std::int64_t end = begin + queries < all ? begin + queries : all;
        if (begin < end) {
          body(seq, static_cast<int>(item / blocks % args.kv_heads), begin, end, thread);
        }
      });
}

template <class Row>
void run_corrections(const attention_backward_kernel_args& args, const launch_memory<Row>& memory,
                     int threads) {
  using shape = traits<Row>;
  const attention_kernel_args& of = args.forward;
  for_each_block_of_queries<Row>(
      of, threads,
      [&](const prim::sequence& seq, int kv_head, std::int64_t begin, std::int64_t end,
          int thread) {
        const std::int64_t group = kernels::attention::group_of(of);
        const std::int64_t used = end < seq.q_len ? end : seq.q_len;
        float* const correction = memory.correction_of(of, seq, kv_head);
        const scratch<Row> buffers = memory.of_thread(thread, of);
        for (std::int64_t row = begin * group; row < used * group; row += shape::block_q) {
          const std::int64_t left = used * group - row;
          const typename shape::query_rows rows(
              of, *memory.hooks, seq.index, kv_head, row,
              static_cast<int>(left < shape::block_q ? left : shape::block_q));
          compute_corrections<Row>(args, rows, correction + row, buffers);
        }
      });
}

/// Items of keys: the first parts, which with a causal mask most rows see, first.
template <class Row>
void run_keys(const attention_backward_kernel_args& args, const launch_memory<Row>& memory,
              int threads) {
  const attention_kernel_args& of = args.forward;
  const std::int64_t heads = of.batch * of.kv_heads;
  const std::int64_t parts = schedule_backward::key_parts::room_for(of.kv_heads);
  prim::parallel_items<typename traits<Row>::isa_type>(
      heads * parts, threads, [&](std::int64_t item, int thread) {
        const scratch<Row> buffers = memory.of_thread(thread, of);
        const std::int64_t head = item % heads;
        const prim::sequence seq = kernels::attention::sequence_of(of, head / of.kv_heads);
        key_gradients<Row>(args, seq, static_cast<int>(head % of.kv_heads), memory, buffers)
            .run(item / heads);
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
    store_d_q<Row>(args, rest, head, 0, of.q_len - rest.q_begin, memory);
    key_gradients<Row>(args, rest, head, memory, scratch<Row>{})
        .clear_keys(0, of.kv_len - rest.k_begin);
  }
}

/// Runs the kernel with functors. `args` come from `lower`, `context.workspace` has
/// `workspace_bytes_with<Row>(args, hooks, context.threads)` bytes.
template <class Row>
status launch_with(const attention_backward_kernel_args& args,
                   const typename traits<Row>::hooks& hooks, const launch_context& context) {
  using isa_type = typename traits<Row>::isa_type;
  const int threads = context.threads < 1 ? 1 : context.threads;
  const std::size_t needed = workspace_bytes_with<Row>(args, hooks, threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  const auto memory = launch_memory<Row>::at(context.workspace, args, hooks, threads);
  const attention_kernel_args& of = args.forward;
  run_corrections<Row>(args, memory, threads);
  run_keys<Row>(args, memory, threads);
  for_each_block_of_queries<Row>(
      of, threads,
      [&](const prim::sequence& seq, int kv_head, std::int64_t begin, std::int64_t end, int) {
        store_d_q<Row>(args, seq, kv_head, begin, end, memory);
      });
  if (of.cu_seqlens_q != nullptr) clear_behind_the_last<Row>(args, memory);
  const auto run_bias = [&](const score_gradient& to, bool behind_cap) {
    if (to.data == nullptr || to.batches * to.heads * to.rows * to.columns == 0) return;
    const bias_gradient<Row> gradient(args, to, behind_cap, memory);
    prim::parallel_items<isa_type>(gradient.items(), threads, [&](std::int64_t item, int thread) {
      gradient.run(item, thread);
    });
  };
  run_bias(args.d_bias_pre, false);
  run_bias(args.d_bias_post, true);
  if (args.d_sinks != nullptr) {
    prim::parallel_items<isa_type>(args.d_sink_heads, threads, [&](std::int64_t row, int) {
      store_d_sinks<Row>(args, row, memory);
    });
  }
  if constexpr (traits<Row>::has_parameters) {
    const parameter_gradients<Row> gradients(args, memory);
    prim::parallel_items<isa_type>(parameter_lanes, threads, [&](std::int64_t lane, int thread) {
      gradients.run_lane(lane, thread);
    });
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
