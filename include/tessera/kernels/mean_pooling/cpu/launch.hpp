// Launches of the mean pooling kernels on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/mean_pooling/cpu/backward.hpp>
#include <tessera/kernels/mean_pooling/cpu/forward.hpp>
#include <tessera/kernels/mean_pooling/cpu/scratch.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::mean_pooling::cpu {

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

/// A launch of a row's direction.
template <class Row>
struct launcher {
  using args_type = mean_pooling_kernel_args;

  static launcher of(const args_type& call) { return {call}; }

  std::size_t workspace_bytes(int /*threads*/) const {
    return scratch<Row>::carve(args, nullptr, nullptr);
  }
  void run(std::byte* workspace, int threads) const {
    scratch<Row> memory;
    scratch<Row>::carve(args, workspace, &memory);
    prepare<Row>(args, memory, threads);
    if constexpr (traits<Row>::config.pass == pooling_pass::forward) {
      forward_launch<Row>(args, memory).run(threads);
    } else {
      backward_launch<Row>(args, memory).run(threads);
    }
  }

  const args_type& args;
};

}  // namespace tessera::kernels::mean_pooling::cpu
