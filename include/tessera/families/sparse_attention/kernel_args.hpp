// What sparse attention kernels receive: raw pointers, element strides and scalars of one launch.
// Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A tensor of rows for each (entry, head, token); a row's elements lie side by side. Null: absent.
struct sparse_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t entry = 0;
  std::int64_t head = 0;
  std::int64_t token = 0;
};

/// A float for each (entry, head, token). Null: absent.
struct sparse_statistics {
  float* data = nullptr;
  std::int64_t entry = 0;
  std::int64_t head = 0;
  std::int64_t token = 0;
};

/// A byte for each (entry, head, row, column), any stride of which may be 0. Null: absent.
struct sparse_mask {
  const std::uint8_t* data = nullptr;
  std::int64_t entry = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// A number for each (entry, token). Null: absent.
struct sparse_numbers {
  const std::int32_t* data = nullptr;
  std::int64_t entry = 0;
  std::int64_t token = 0;
};

/// Sinks of each head, or of all of them where the stride of heads is 0; and their gradients.
struct sparse_sinks {
  float* data = nullptr;
  std::int64_t head = 0;
  std::int64_t sink = 0;
};

/// Arguments of a blocksparse launch.
struct blocksparse_kernel_args {
  sparse_rows q{}, k{}, v{}, out{}, d_out{}, d_q{}, d_k{}, d_v{};
  sparse_statistics lse{}, d_lse{};
  sparse_numbers q_segments{}, kv_segments{}, q_positions{}, kv_positions{};
  sparse_mask mask{}, block_mask{};
  sparse_sinks sinks{}, d_sinks{};
  std::int64_t sink_count = 0;
  std::int64_t sink_rows = 0;  ///< of d_sinks: heads, or 1

  std::int64_t batch = 0;
  std::int64_t q_heads = 0, kv_heads = 0;
  std::int64_t q_len = 0, kv_len = 0;
  std::int64_t head_dim = 0, v_head_dim = 0;

  float softmax_scale = 1.0f;
  float soft_cap = 0.0f;  ///< 0: off
  bool causal = false;
  /// Position of row 0 where there are no positions.
  std::int64_t first_position = 0;
  /// Reach of a query; no more than `far`, which added to any position does not overflow.
  std::int64_t window_left = far, window_right = far;
  std::int64_t chunk_size = 0;  ///< 0: all positions are one chunk
  std::int64_t block_q = 1, block_k = 1;

  static constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
};

/// Block numbers for each (entry, head, token, slot); counts of them have no slots. Null: absent.
struct sparse_slots {
  std::int32_t* data = nullptr;
  std::int64_t entry = 0;
  std::int64_t head = 0;
  std::int64_t token = 0;
  std::int64_t slot = 0;
};

/// Which tokens make a sequence.
struct sparse_sequences {
  const std::int32_t* begin = nullptr;  ///< packed: [count + 1], contiguous
  std::int64_t count = 0;               ///< entries, or sequences when packed
  std::int64_t tokens = 0;              ///< of an entry; packed: in total
};

/// Arguments of a native sparse launch. Without `out` and gradients it is the selection alone.
struct native_sparse_kernel_args {
  sparse_rows q{}, k{}, v{}, out{}, d_out{}, d_q{}, d_k{}, d_v{};
  sparse_rows g_slc{}, g_cmp{}, g_swa{}, d_g_slc{}, d_g_cmp{}, d_g_swa{};  ///< rows of one number
  sparse_slots given{}, selected{}, block_counts{};
  sparse_sequences sequences{};

  std::int64_t q_heads = 0, kv_heads = 0;
  std::int64_t head_dim = 0, v_head_dim = 0;
  std::int64_t slots = 0;  ///< of `given`
  std::int64_t block_size = 1, block_count = 1;
  std::int64_t window_left = 0;
  float softmax_scale = 1.0f;
  /// Blocks selected whatever their weight: of a sequence, and up to the token's own.
  std::int64_t first_blocks = 0, last_blocks = 1;
};

/// Arguments of a launch: those of the row's pattern are filled.
struct sparse_attention_kernel_args {
  blocksparse_kernel_args blocksparse{};
  native_sparse_kernel_args native_sparse{};
};

}  // namespace tessera
