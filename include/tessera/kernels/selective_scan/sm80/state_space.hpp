// Launches of state spaces: workspace, and which kernels run in which order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/selective_scan/sm80/queue.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_backward.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_forward.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_norm.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_products.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_step.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_sums.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// A launch of state_space_v1 or, where heads share their steps, v2.
template <bool SharesSteps, bool Backward>
class state_space_row {
 public:
  static constexpr int shared_bytes = static_cast<int>(sizeof(backward_rows));
  static constexpr int states_bytes = static_cast<int>(sizeof(states_memory));
  static constexpr int outputs_bytes = static_cast<int>(sizeof(outputs_memory));

  explicit state_space_row(const state_space_kernel_args& args, std::byte* workspace)
      : parts_(workspace) {
    all_.call = args;
    all_.cut = state_space_cut::of(args);
    const state_space_cut& cut = all_.cut;
    products_ = SharesSteps && products_take(args, cut);
    rows_ = entries_of(args.sequences) * args.sequences.tokens;
    owners_ = SharesSteps ? args.heads : cut.blocks;
    parameters_ = SharesSteps ? args.heads : cut.channels_of_call;
    state_space_memory& memory = all_.memory;
    const std::int64_t states = cut.slots * cut.channels_of_call * cut.state_stride;
    if (cut.carried) {
      parts_.take(memory.states, states);
      parts_.take(memory.step_sums, cut.slots * parameters_);
    }
    if (args.norm || cut.tiles > 1) parts_.take(memory.columns, rows_ * cut.channels_of_call);
    if constexpr (!Backward) {
      // Not before: where a call's states will lie is not known when memory is asked for.
      steps_ = step_takes(args);
      if (steps_) all_.cut.carried = false;
      return;
    }
    if (cut.carried || !SharesSteps) parts_.take(memory.gradients, states);
    if (cut.tiles > 1) parts_.take(memory.sums, 3 * rows_ * cut.channels_of_call);
    parts_.take(memory.groups, rows_ * owners_ * 2 * args.states);
    parts_.take(memory.parameters, cut.slots * 3 * parameters_);
    // Whatever D is: a planned run may have another one.
    if constexpr (SharesSteps) parts_.take(memory.skips, cut.slots * cut.channels_of_call);
    if (args.norm) parts_.take(memory.weights, segments() * cut.channels_of_call);
  }

  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    const std::array both{cuda::entry_of(&walk_chunks<SharesSteps, false>),
                          cuda::entry_of(&walk_chunks<SharesSteps, true>),
                          cuda::entry_of(&carry_states<SharesSteps, false>),
                          cuda::entry_of(&clear_unused<scan_tensor>)};
    const auto with_products = [](const auto&... entries) {
      if constexpr (SharesSteps) {
        return std::array{entries..., cuda::entry_of(&chunk_states<bf16>, states_bytes),
                          cuda::entry_of(&chunk_outputs<bf16>, outputs_bytes)};
      } else {
        return std::array{entries...};
      }
    };
    if constexpr (!Backward) {
      return with_products(both[0], both[1], both[2], both[3],
                           cuda::entry_of(&normalise_columns<SharesSteps>),
                           cuda::entry_of(&step_states<SharesSteps, false>),
                           cuda::entry_of(&step_states<SharesSteps, true>));
    } else {
      return with_products(both[0], both[1], both[2], both[3],
                           cuda::entry_of(&carry_states<SharesSteps, true>),
                           cuda::entry_of(&gather_gradients<SharesSteps>),
                           cuda::entry_of(&step_chunks_back<SharesSteps>, shared_bytes),
                           cuda::entry_of(&normalise_columns_back<SharesSteps>),
                           cuda::entry_of(&add_norm_weights<SharesSteps>),
                           cuda::entry_of(&add_group_shares<SharesSteps>),
                           cuda::entry_of(&add_rate_shares<SharesSteps>),
                           cuda::entry_of(&add_skip_shares<SharesSteps>),
                           cuda::entry_of(&add_parameter_shares<SharesSteps>));
    }
  }

  cudaError_t launch(cudaStream_t stream) const {
    kernel_queue queue(stream);
    if constexpr (Backward) {
      queue_backward(queue);
    } else {
      queue_carries(queue);
      queue_outputs(queue);
      if (all_.call.norm) {
        queue.run(&normalise_columns<SharesSteps>, rows_ * norm_groups(), norm_threads(), 0, all_);
      }
      queue_clearing(queue, all_.call.sequences, all_.call.out, all_.call.heads, all_.call.columns);
    }
    return queue.code();
  }

 private:
  std::int64_t segments() const { return (rows_ + norm_segment - 1) / norm_segment; }
  std::int64_t norm_groups() const {
    return all_.cut.channels_of_call / std::max<std::int64_t>(all_.call.norm_group_size, 1);
  }
  int norm_threads() const {
    const std::int64_t warps = (all_.call.norm_group_size + 31) / 32;
    return 32 * static_cast<int>(std::clamp<std::int64_t>(warps, 1, block_warps));
  }
  /// A block for each chunk of each block of channels; no sequences have none.
  std::int64_t chunk_blocks() const {
    return all_.call.sequences.count > 0 ? all_.cut.slots * all_.cut.blocks : 0;
  }
  std::int64_t product_blocks_of_head() const {
    return (all_.call.columns + product_columns - 1) / product_columns;
  }
  std::int64_t product_blocks() const {
    return all_.call.sequences.count > 0
               ? all_.cut.slots * all_.call.heads * product_blocks_of_head()
               : 0;
  }
  std::int64_t state_elements() const {
    return all_.call.sequences.count * all_.cut.channels_of_call * all_.cut.state_stride;
  }

  /// States in front of chunks.
  void queue_carries(kernel_queue& queue) const {
    if (!all_.cut.carried) return;
    if constexpr (SharesSteps) {
      if (products_) {
        queue.run(&chunk_states<bf16>, product_blocks(), block_threads, states_bytes, all_,
                  product_blocks_of_head());
      }
    }
    if (!products_) {
      queue.run(&walk_chunks<SharesSteps, false>, chunk_blocks(), block_threads, 0, all_);
    }
    queue.run_over(&carry_states<SharesSteps, false>, state_elements(), all_, state_elements());
  }
  void queue_outputs(kernel_queue& queue) const {
    if constexpr (!Backward) {
      const state_space_kernel_args& args = all_.call;
      if (steps_) {
        const std::int64_t channels = step_channels<SharesSteps>(all_.cut);
        const std::int64_t parts = (args.columns + channels - 1) / channels;
        const bool packed = args.sequences.cu_seqlens != nullptr;
        return queue.run(
            packed ? &step_states<SharesSteps, true> : &step_states<SharesSteps, false>,
            args.sequences.count * args.heads * parts, block_threads, 0, all_,
            static_cast<unsigned>(parts));
      }
    }
    if constexpr (SharesSteps) {
      if (products_) {
        return queue.run(&chunk_outputs<bf16>, product_blocks(), block_threads, outputs_bytes, all_,
                         product_blocks_of_head());
      }
    }
    queue.run(&walk_chunks<SharesSteps, true>, chunk_blocks(), block_threads, 0, all_);
  }

  void queue_backward(kernel_queue& queue) const {
    const state_space_kernel_args& args = all_.call;
    const bool any = args.sequences.count > 0;
    queue_carries(queue);
    if (args.norm) queue_norm(queue);
    if (all_.cut.carried) {
      queue.run(&gather_gradients<SharesSteps>, chunk_blocks(), block_threads, 0, all_);
      queue.run_over(&carry_states<SharesSteps, true>, state_elements(), all_, state_elements());
    }
    queue.run(&step_chunks_back<SharesSteps>, any ? all_.cut.slots * owners_ : 0, block_threads,
              shared_bytes, all_);
    const std::int64_t shares = rows_ * args.groups * args.states;
    queue.run_over(&add_group_shares<SharesSteps>, shares, all_, owners_, shares);
    queue.run_over(&add_parameter_shares<SharesSteps>, parameters_, all_);
    if constexpr (SharesSteps) {
      if (args.d_D.data != nullptr && args.d_D.column != 0) {
        const std::int64_t channels = all_.cut.channels_of_call;
        queue.run_over(&add_skip_shares<SharesSteps>, channels, all_, channels);
      }
    } else {
      const std::int64_t rates = all_.cut.channels_of_call * args.states;
      queue.run_over(&add_rate_shares<SharesSteps>, rates, all_, rates);
    }
    for (const scan_tensor* rows : {&args.d_x, &args.d_z}) {
      queue_clearing(queue, args.sequences, *rows, args.heads, args.columns);
    }
    queue_clearing(queue, args.sequences, args.d_dt, args.heads, SharesSteps ? 1 : args.columns);
  }

  /// Columns, then their gradients in their place.
  void queue_norm(kernel_queue& queue) const {
    queue_outputs(queue);
    queue.run(&normalise_columns_back<SharesSteps>, segments() * norm_groups(), norm_threads(), 0,
              all_, rows_);
    if (all_.call.d_norm_weight.data == nullptr) return;
    queue.run_over(&add_norm_weights<SharesSteps>, all_.cut.channels_of_call, all_, segments());
  }

  cuda::workspace_parts parts_;
  state_space_launch all_{};
  std::int64_t rows_ = 0, owners_ = 0, parameters_ = 0;
  bool products_ = false;  ///< on the matrix unit
  bool steps_ = false;     ///< a token of each sequence
};

}  // namespace tessera::kernels::selective_scan::sm80
