// Entry points of the mean pooling kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/kernels/mean_pooling/cpu/backward.hpp>
#include <tessera/kernels/mean_pooling/cpu/forward.hpp>
#include <tessera/kernels/mean_pooling/cpu/scratch.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::mean_pooling::cpu {

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Row>
std::size_t workspace_bytes(const mean_pooling_kernel_args& args, int) {
  return scratch<Row>::carve(args, nullptr, nullptr);
}

/// What follows from the contents of offsets and masks: where the chunks of a sequence begin among
/// the means, and the sum of the weights of an entry.
template <class Row>
void prepare(const mean_pooling_kernel_args& args, const scratch<Row>& memory, int threads) {
  std::int64_t chunks = 0;
  for (std::int64_t n = 0; memory.chunks_before != nullptr && n < args.sequences; ++n) {
    const std::int64_t length = std::int64_t{args.cu_seqlens[n + 1]} - args.cu_seqlens[n];
    memory.chunks_before[n] = chunks;
    chunks += (length + args.chunk - 1) / args.chunk;
  }
  if (memory.totals == nullptr) return;
  // A nanosecond or so for each weight: below 2^14 of them a second thread comes too late.
  const bool few = args.sequences * args.tokens < (1 << 14);
  prim::parallel_items<typename traits<Row>::isa_type>(
      args.sequences, few ? 1 : threads, [&](std::int64_t entry, int) {
        double total = 0;
        for (std::int64_t token = 0; token < args.tokens; ++token) {
          total += static_cast<double>(weight_of<Row>(args, entry, token));
        }
        memory.totals[entry] = total;
      });
}

/// Runs the row's kernel; see `mean_pooling_launch_function`. `args` come from `lower`.
template <class Row>
status launch(const mean_pooling_kernel_args& args, const launch_context& context) {
  const std::size_t needed = workspace_bytes<Row>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  scratch<Row> memory;
  scratch<Row>::carve(args, context.workspace, &memory);
  prepare<Row>(args, memory, context.threads);
  if constexpr (traits<Row>::config.pass == pooling_pass::forward) {
    forward_launch<Row>(args, memory).run(context.threads);
  } else {
    backward_launch<Row>(args, memory).run(context.threads);
  }
  return {};
}

}  // namespace tessera::kernels::mean_pooling::cpu
