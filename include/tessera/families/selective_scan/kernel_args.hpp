// What the kernels of elementwise recurrences receive: raw pointers, element strides and sizes of
// one launch. Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A tensor with an element for each of these, as far as it has them: entry (or sequence, of
/// states), token, head, and column of a head. Null: absent.
struct scan_tensor {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t entry = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t column = 0;
  std::int64_t state = 0;
};

/// Which tokens make a sequence.
struct scan_sequences {
  const std::int32_t* cu_seqlens = nullptr;  ///< packed; contiguous
  std::int64_t count = 0;                    ///< entries, or sequences when packed
  std::int64_t tokens = 0;                   ///< of an entry; packed: in total
  /// Packed, with states in a pool: where those of each sequence lie.
  const std::int32_t* slots = nullptr;
  std::int64_t slot_stride = 0, slot_count = 0;
};

/// Arguments of a selective state-space launch. The channels of state_space_v1 are columns of as
/// many heads as there are groups.
struct state_space_kernel_args {
  scan_tensor x{}, dt{}, A{}, B{}, C{}, D{}, z{}, dt_bias{}, norm_weight{};
  scan_tensor initial_state{}, out{}, final_state{};
  scan_tensor d_out{}, d_final_state{}, d_x{}, d_dt{}, d_A{}, d_B{}, d_C{}, d_D{}, d_z{};
  scan_tensor d_dt_bias{}, d_initial_state{}, d_norm_weight{};
  scan_sequences sequences{};

  std::int64_t heads = 1;
  std::int64_t columns = 0;          ///< of a head
  std::int64_t states = 0;           ///< of a column
  std::int64_t groups = 1;           ///< of B and C
  std::int64_t heads_per_group = 1;  ///< that read the same B and C

  bool dt_softplus = false;
  float dt_min = -std::numeric_limits<float>::infinity();
  float dt_max = std::numeric_limits<float>::infinity();

  bool norm = false;
  bool norm_before_gate = false;
  std::int64_t norm_group_size = 0;
  float norm_eps = 0;
};

/// A tensor of rows of channels: entry (or sequence, of states), row (token, or sum of a state),
/// and channel, whose stride is 1 in tensors of tokens. Null: absent.
struct channel_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t entry = 0;
  std::int64_t row = 0;
  std::int64_t channel = 0;
};

/// Arguments of an rwkv4 launch.
struct rwkv4_kernel_args {
  channel_rows k{}, v{}, w{}, u{}, initial_state{}, out{}, final_state{};
  channel_rows d_out{}, d_final_state{}, d_k{}, d_v{}, d_w{}, d_u{}, d_initial_state{};
  scan_sequences sequences{};
  std::int64_t channels = 0;
};

/// Arguments of a launch: those of the row's recurrence are filled.
struct selective_scan_kernel_args {
  state_space_kernel_args state_space{};
  rwkv4_kernel_args rwkv4{};
};

}  // namespace tessera
