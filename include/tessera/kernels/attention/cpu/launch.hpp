// Entry points of the flash attention forward kernels: from lowered arguments to work items.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/cpu/decode.hpp>
#include <tessera/kernels/attention/cpu/prefill.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention::cpu {

/// Longest query length over the sequences of a launch.
template <class Isa>
std::int64_t longest_q(const attention_kernel_args& args) {
  if (args.cu_seqlens_q == nullptr) return args.q_len;
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < args.batch; ++n) {
    const std::int64_t q_len = args.cu_seqlens_q[n + 1] - args.cu_seqlens_q[n];
    longest = q_len > longest ? q_len : longest;
  }
  return longest;
}

/// Workspace of a decode launch: one scratch per thread, then the split results. Follows from the
/// sizes alone, so that a plan can be made before any length is known.
template <class Row>
struct decode_workspace {
  using shape = traits<Row>;
  decode_grid<Row> grid;
  std::size_t scratch_bytes;  ///< of one thread
  std::size_t bytes;          ///< of all
  split_results results;

  static decode_workspace at(std::byte* base, const attention_kernel_args& args, int threads) {
    decode_workspace space{};
    space.grid = decode_grid<Row>::of(args, threads);
    // A core's prefetcher extends the strides of some kilobytes in which the loop over heads walks
    // through a slice. It may not reach what another core writes.
    constexpr std::size_t page = 4096;
    constexpr std::size_t apart = 64 * 1024;
    space.scratch_bytes = (space.grid.bytes(args) + page - 1) / page * page + apart;
    split_results& results = space.results;
    results.splits = key_splits::room_for(args.kv_len);
    results.q_heads = args.q_heads;
    results.stride = decode_buffers<Row>::sum_stride(shape::v_head_dim(args));
    const std::int64_t tokens = args.cu_seqlens_q != nullptr ? args.q_len : args.batch * args.q_len;
    const auto rows = static_cast<std::size_t>(tokens * args.q_heads * results.splits);
    const std::size_t scratch = static_cast<std::size_t>(threads) * space.scratch_bytes;
    const std::size_t sums = rows * static_cast<std::size_t>(results.stride) * sizeof(float);
    results.sums = reinterpret_cast<float*>(base + scratch);
    results.states = reinterpret_cast<prim::softmax_state*>(base + scratch + sums);
    space.bytes = scratch + sums + rows * sizeof(prim::softmax_state);
    return space;
  }
};

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Row>
std::size_t workspace_bytes(const attention_kernel_args& args, int threads) {
  using shape = traits<Row>;
  const int workers = threads < 1 ? 1 : threads;
  if constexpr (shape::config.phase == attention_phase::decode) {
    return decode_workspace<Row>::at(nullptr, args, workers).bytes;
  } else {
    return static_cast<std::size_t>(workers) *
           prefill_buffers<Row>::carve(nullptr, rows_of_item<Row>(args, workers),
                                       shape::head_dim(args), shape::v_head_dim(args), nullptr);
  }
}

/// Blocks of rows, longest keys first: with a causal mask later rows see more.
template <class Row, class Hooks>
void run_prefill(const attention_kernel_args& args, const Hooks& hooks,
                 const launch_context& context) {
  using shape = traits<Row>;
  const std::int64_t rows = longest_q<typename shape::isa_type>(args) * group_of(args);
  const int item_rows = rows_of_item<Row>(args, context.threads < 1 ? 1 : context.threads);
  const std::int64_t blocks = (rows + item_rows - 1) / item_rows;
  const std::int64_t heads = args.batch * args.kv_heads;
  const std::size_t slice = prefill_buffers<Row>::carve(nullptr, item_rows, shape::head_dim(args),
                                                        shape::v_head_dim(args), nullptr);
  prim::parallel_items<typename shape::isa_type>(
      blocks * heads, context.threads, [&](std::int64_t item, int thread) {
        prefill_buffers<Row> scratch;
        prefill_buffers<Row>::carve(context.workspace + static_cast<std::size_t>(thread) * slice,
                                    item_rows, shape::head_dim(args), shape::v_head_dim(args),
                                    &scratch);
        const std::int64_t block = blocks - 1 - item / heads;
        const std::int64_t head = item % heads;
        prefill_item<Row, Hooks>(args, hooks, scratch, head / args.kv_heads,
                                 static_cast<int>(head % args.kv_heads), block * item_rows,
                                 item_rows)
            .run();
      });
}

/// Splits first, then one merge per row.
template <class Row, class Hooks>
void run_decode(const attention_kernel_args& args, const Hooks& hooks,
                const launch_context& context) {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  const int group = group_of(args);
  const std::int64_t rows = longest_q<isa_type>(args) * group;
  const std::int64_t blocks = (rows + shape::block_q - 1) / shape::block_q;
  const auto space =
      decode_workspace<Row>::at(context.workspace, args, context.threads < 1 ? 1 : context.threads);
  const split_results& results = space.results;
  const auto scratch = [&](int thread) {
    return context.workspace + static_cast<std::size_t>(thread) * space.scratch_bytes;
  };
  const int head_groups = space.grid.head_groups;
  prim::parallel_items<isa_type>(
      args.batch * blocks * results.splits * head_groups, context.threads,
      [&](std::int64_t item, int thread) {
        const auto head_group = static_cast<int>(item % head_groups);
        const std::int64_t split = item / head_groups % results.splits;
        const std::int64_t block = item / head_groups / results.splits % blocks;
        const std::int64_t entry = item / head_groups / results.splits / blocks;
        decode_item<Row, Hooks>(args, hooks, scratch(thread), space.grid, entry,
                                block * shape::block_q, head_group)
            .run(split, results);
      });
  prim::parallel_items<isa_type>(
      args.batch * args.q_heads, context.threads, [&](std::int64_t item, int thread) {
        const prim::sequence seq = prim::sequence_of(args, item / args.q_heads);
        const auto head = static_cast<int>(item % args.q_heads);
        const std::int64_t all = args.cu_seqlens_q != nullptr ? seq.q_len : args.q_len;
        for (std::int64_t query = 0; query < all; ++query) {
          if (query < seq.q_len) {
            merge_splits<Row>(args, seq, query, head, results,
                              reinterpret_cast<float*>(scratch(thread)));
          } else {
            store_row<Row>(args, seq, query, head, {}, nullptr);
          }
        }
      });
}

/// Packed rows that belong to no sequence: zeros and -inf.
template <class Row>
void clear_rows_past_the_last(const attention_kernel_args& args) {
  prim::sequence rest;
  rest.q_begin = args.cu_seqlens_q[args.batch];
  for (std::int64_t query = 0; query < args.q_len - rest.q_begin; ++query) {
    for (int head = 0; head < args.q_heads; ++head) {
      store_row<Row>(args, rest, query, head, {}, nullptr);
    }
  }
}

/// Runs the row's kernel with user hooks. `args` come from `lower`, `context.workspace` has
/// `workspace_bytes<Row>(args, context.threads)` bytes.
template <class Row, class Hooks>
status launch_with(const attention_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  using shape = traits<Row>;
  const std::size_t needed = workspace_bytes<Row>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  if constexpr (shape::config.phase == attention_phase::decode) {
    run_decode<Row>(args, hooks, context);
  } else {
    run_prefill<Row>(args, hooks, context);
  }
  if (args.cu_seqlens_q != nullptr) clear_rows_past_the_last<Row>(args);
  return {};
}

/// Runs the row's kernel; see `attention_launch_function`.
template <class Row>
status launch(const attention_kernel_args& args, const launch_context& context) {
  return launch_with<Row>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention::cpu
