// Entry points of the flash attention forward kernels: from lowered arguments to work items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/kernels/flash_attention/decode.hpp>
#include <tessera/kernels/flash_attention/prefill.hpp>
#include <tessera/kernels/flash_attention/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::flash {

/// Longest query and key lengths over the sequences of a launch.
struct longest_lengths {
  std::int64_t q = 0;
  std::int64_t k = 0;
};

template <class Isa>
longest_lengths longest_of(const flash_kernel_args& args) {
  if (args.cu_seqlens_q == nullptr) return {args.q_len, args.kv_len};
  longest_lengths longest;
  for (std::int64_t n = 0; n < args.batch; ++n) {
    const prim::sequence seq = prim::sequence_of(args, n);
    longest.q = seq.q_len > longest.q ? seq.q_len : longest.q;
    longest.k = seq.k_len > longest.k ? seq.k_len : longest.k;
  }
  return longest;
}

/// Work items of a decode launch and the shape of its split results.
template <class Row>
struct decode_plan {
  using shape = traits<Row>;
  std::int64_t row_blocks = 0;  ///< of the folded (query, head-in-group) axis
  std::int64_t splits = 0;
  std::int64_t heads = 0;  ///< batch * kv_heads
  int out_stride = 0;

  static decode_plan of(const flash_kernel_args& args, longest_lengths longest) {
    const std::int64_t rows = longest.q * group_of(args);
    return {(rows + shape::block_q - 1) / shape::block_q,
            longest.k == 0 ? 1 : (longest.k + split_keys - 1) / split_keys,
            args.batch * args.kv_heads, round_up(shape::v_head_dim(args), shape::width)};
  }
  std::int64_t items() const { return row_blocks * splits * heads; }
  std::size_t result_bytes() const {
    const auto rows = static_cast<std::size_t>(items() * shape::block_q);
    const std::size_t out = rows * static_cast<std::size_t>(out_stride) * sizeof(float);
    return out + (rows * sizeof(prim::softmax_state) + 63) / 64 * 64;
  }
  split_result result(std::byte* base, std::int64_t item) const {
    auto* out = reinterpret_cast<float*>(base);
    auto* state =
        reinterpret_cast<prim::softmax_state*>(out + items() * shape::block_q * out_stride);
    return {out + item * shape::block_q * out_stride, state + item * shape::block_q};
  }
};

/// Bytes of scratch memory for `launch`.
template <class Row>
std::size_t workspace_bytes(const flash_kernel_args& args, int threads) {
  using shape = traits<Row>;
  const auto workers = static_cast<std::size_t>(threads < 1 ? 1 : threads);
  if constexpr (shape::config.phase == flash_phase::decode) {
    const auto plan = decode_plan<Row>::of(args, longest_of<typename shape::isa_type>(args));
    return workers * decode_buffers<Row>::bytes + plan.result_bytes();
  } else {
    return workers * prefill_buffers<Row>::carve(nullptr, shape::head_dim(args),
                                                 shape::v_head_dim(args), nullptr);
  }
}

/// Blocks of rows, longest keys first: with a causal mask later rows see more.
template <class Row, class Hooks>
void run_prefill(const flash_kernel_args& args, const Hooks& hooks, const launch_context& context) {
  using shape = traits<Row>;
  const std::int64_t rows = longest_of<typename shape::isa_type>(args).q * group_of(args);
  const std::int64_t blocks = (rows + shape::block_q - 1) / shape::block_q;
  const std::int64_t heads = args.batch * args.kv_heads;
  const std::size_t slice =
      prefill_buffers<Row>::carve(nullptr, shape::head_dim(args), shape::v_head_dim(args), nullptr);
  prim::parallel_items<typename shape::isa_type>(
      blocks * heads, context.threads, [&](std::int64_t item, int thread) {
        prefill_buffers<Row> scratch;
        prefill_buffers<Row>::carve(context.workspace + static_cast<std::size_t>(thread) * slice,
                                    shape::head_dim(args), shape::v_head_dim(args), &scratch);
        const std::int64_t block = blocks - 1 - item / heads;
        const std::int64_t head = item % heads;
        prefill_item<Row, Hooks>(args, hooks, scratch, head / args.kv_heads,
                                 static_cast<int>(head % args.kv_heads), block * shape::block_q)
            .run();
      });
}

/// Splits first, then one merge per row.
template <class Row, class Hooks>
void run_decode(const flash_kernel_args& args, const Hooks& hooks, const launch_context& context) {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  const auto plan = decode_plan<Row>::of(args, longest_of<isa_type>(args));
  std::byte* results =
      context.workspace + static_cast<std::size_t>(context.threads) * decode_buffers<Row>::bytes;
  const auto scratch = [&](int thread) {
    return decode_buffers<Row>::at(context.workspace +
                                   static_cast<std::size_t>(thread) * decode_buffers<Row>::bytes);
  };
  // Heads change fastest: the heads of a token lie side by side, so that neighbouring items share
  // pages. Results are ordered (entry and head, block of rows, split).
  prim::parallel_items<isa_type>(plan.items(), context.threads, [&](std::int64_t item, int thread) {
    const std::int64_t head = item % args.kv_heads;
    const std::int64_t split = item / args.kv_heads % plan.splits;
    const std::int64_t block = item / args.kv_heads / plan.splits % plan.row_blocks;
    const std::int64_t entry = item / args.kv_heads / plan.splits / plan.row_blocks;
    const auto buffers = scratch(thread);
    const std::int64_t result =
        ((entry * args.kv_heads + head) * plan.row_blocks + block) * plan.splits + split;
    decode_item<Row, Hooks>(args, hooks, buffers, entry, static_cast<int>(head),
                            block * shape::block_q)
        .run(split, plan.result(results, result), plan.out_stride);
  });
  const std::int64_t blocks = plan.heads * plan.row_blocks;
  const int group = group_of(args);
  prim::parallel_items<isa_type>(blocks, context.threads, [&](std::int64_t item, int thread) {
    const std::int64_t head = item / plan.row_blocks;
    const prim::sequence seq = prim::sequence_of(args, head / args.kv_heads);
    const auto kv_head = static_cast<int>(head % args.kv_heads);
    const std::int64_t first = item % plan.row_blocks * shape::block_q;
    const std::int64_t all = (args.cu_seqlens_q != nullptr ? seq.q_len : args.q_len) * group;
    for (std::int64_t row = first; row < first + shape::block_q && row < all; ++row) {
      const std::int64_t query = row / group;
      const int query_head = kv_head * group + static_cast<int>(row % group);
      if (query >= seq.q_len) {
        store_row<Row>(args, seq, query, query_head, {}, nullptr);
        continue;
      }
      split_result part = plan.result(results, item * plan.splits);
      part.out += (row - first) * plan.out_stride;
      part.state += row - first;
      merge_splits<Row>(args, seq, query, query_head, part, plan.splits,
                        std::int64_t{shape::block_q} * plan.out_stride, shape::block_q,
                        plan.out_stride, scratch(thread).q);
    }
  });
}

/// Runs the row's kernel with user hooks. `args` come from `lower`, `context.workspace` has
/// `workspace_bytes<Row>(args, context.threads)` bytes.
template <class Row, class Hooks>
status launch_with(const flash_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  using shape = traits<Row>;
  const std::size_t needed = workspace_bytes<Row>(args, context.threads);
  if (context.workspace_bytes < needed) {
    return {status_code::workspace, "workspace has " + std::to_string(context.workspace_bytes) +
                                        " bytes, the launch needs " + std::to_string(needed)};
  }
  if constexpr (shape::config.phase == flash_phase::decode) {
    run_decode<Row>(args, hooks, context);
  } else {
    run_prefill<Row>(args, hooks, context);
  }
  return {};
}

/// Runs the row's kernel; see `flash_launch_function`.
template <class Row>
status launch(const flash_kernel_args& args, const launch_context& context) {
  return launch_with<Row>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::flash
