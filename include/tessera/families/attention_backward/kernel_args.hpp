// What a kernel of the gradients of attention receives: the arguments of the forward launch, the
// incoming gradients, and where gradients go.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A gradient indexed by (batch, head, row, column); an axis of extent 1 is summed over.
struct score_gradient {
  void* data = nullptr;  ///< null: not wanted
  dtype type = dtype::none;
  std::int64_t batch = 0, head = 0, row = 0, column = 0;       ///< strides
  std::int64_t batches = 0, heads = 0, rows = 0, columns = 0;  ///< extents
};

/// Arguments of one launch. `forward.out`, `lse` and `row_max` are read; `forward.weights` are
/// their gradient.
struct attention_backward_kernel_args {
  attention_kernel_args forward{};

  const void* d_out = nullptr;
  row_strides d_out_strides{};
  row_statistics d_lse{};

  void* d_q = nullptr;
  void* d_k = nullptr;
  void* d_v = nullptr;
  row_strides d_q_strides{}, d_k_strides{}, d_v_strides{};
  score_gradient d_bias_pre{}, d_bias_post{};
  float* d_sinks = nullptr;
  std::int64_t d_sink_head_stride = 0, d_sink_stride = 0;
  std::int64_t d_sink_heads = 0;  ///< rows of d_sinks: one for all heads, or one for each
};

static_assert(offsetof(attention_backward_kernel_args, forward) == 0,
              "offsets of the forward arguments serve here too");

}  // namespace tessera
