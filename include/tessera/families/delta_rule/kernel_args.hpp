// What a delta rule kernel receives: raw pointers, element strides and sizes of one launch. Made
// from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Rows indexed by (entry, token, head); the last axis, if there is one more, is contiguous. All
/// strides are in elements.
template <class Data>
struct delta_rule_rows {
  Data* data = nullptr;  ///< null: absent
  dtype type = dtype::none;
  std::int64_t entry = 0, token = 0, head = 0;
};
using delta_rule_input = delta_rule_rows<const void>;
using delta_rule_output = delta_rule_rows<void>;

/// States [K,V] of sequences, or of slots of a pool, and value heads; values are contiguous.
template <class Data>
struct delta_rule_states {
  Data* data = nullptr;
  dtype type = dtype::none;
  std::int64_t sequence = 0, head = 0, channel = 0;
};

/// How tokens change a state S.
enum class delta_rule_update : std::uint8_t {
  /// S = diag(decay) S, then S += k (beta (v - S^T k))^T.
  delta,
  /// S = diag(decay) S + b (S^T a)^T + k v^T: what the undecayed state holds for `read` is written.
  low_rank,
  /// The same with a = -read and b = read write, element by element.
  multiplicative,
};

/// How raw gates become log decays.
struct delta_rule_gate {
  bool raw = false;
  bool bounded = false;
  float lower_bound = 0;
  const float* a_log = nullptr;  ///< [HV]
  const float* bias = nullptr;   ///< [HV] or [HV,K]; null: 0
  std::int64_t a_log_head = 0, bias_head = 0;
};

/// Arguments of one launch. Packed tensors have one entry.
struct delta_rule_kernel_args {
  delta_rule_update update = delta_rule_update::delta;
  delta_rule_input q{}, k{}, v{};
  delta_rule_input decay{};  ///< null: none
  delta_rule_input beta{};
  delta_rule_input read{}, write{};  ///< of the low-rank updates
  bool decay_has_channels = false;
  bool reverse = false;     ///< from the last token of a sequence to its first
  bool activates = false;   ///< q, k and v become silu of themselves
  bool normalizes = false;  ///< q and k to length 1
  bool beta_is_raw = false;
  float beta_most = 1;  ///< of a raw beta, where its sigmoid is 1
  float scale = 1;      ///< of q
  delta_rule_gate gate{};

  delta_rule_states<const void> initial{};
  delta_rule_states<void> last{};
  delta_rule_output out{};

  // Backward: `out` and `last` are not there.
  delta_rule_input d_out{};
  delta_rule_states<const void> d_last{};  ///< null: zeros
  delta_rule_output d_q{}, d_k{}, d_v{};
  delta_rule_output d_decay{}, d_beta{}, d_read{}, d_write{};  ///< null: not wanted
  delta_rule_states<void> d_initial{};
  float* d_a_log = nullptr;
  float* d_bias = nullptr;
  std::int64_t d_a_log_head = 0, d_bias_head = 0;

  /// Of a pool: the slot of a sequence's state; null: sequence n has state n. A sequence without
  /// tokens has none.
  const std::int32_t* slots = nullptr;
  const std::int32_t* has_initial = nullptr;  ///< 0: the state of the sequence starts from 0
  std::int64_t slot_stride = 0, has_initial_stride = 0;
  std::int64_t slot_count = 0;  ///< of the pool

  const std::int32_t* cu_seqlens = nullptr;  ///< packed; contiguous
  const std::int32_t* seg_ids = nullptr;
  std::int64_t seg_entry = 0, seg_token = 0;

  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of an entry
  std::int64_t key_heads = 0, value_heads = 0;
  std::int64_t key_dim = 0, value_dim = 0;
};

}  // namespace tessera
