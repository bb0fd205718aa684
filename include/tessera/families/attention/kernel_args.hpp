// What a flash attention kernel receives: raw pointers, element strides and scalars of one launch.
// Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Strides, in elements, of a tensor indexed by (batch, row, head); the last axis is contiguous.
/// Packed tensors have batch stride 0; that of a pool of pages is the distance of pages.
struct row_strides {
  std::int64_t batch = 0;
  std::int64_t row = 0;
  std::int64_t head = 0;
};

/// A tensor indexed by (batch, head, row, column) where any stride may be 0.
struct score_tensor {
  const void* data = nullptr;  ///< null: absent
  dtype type = dtype::none;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// An f32 output indexed by (batch, head, row); packed: (head, row) with batch stride 0.
struct row_statistics {
  float* data = nullptr;  ///< null: not wanted
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
};

/// Per-token ids indexed by (batch, row).
struct token_ids {
  const std::int32_t* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t row = 0;
};

/// Which pages of a pool hold the keys and values of a sequence: its token j lies in slot
/// j % page_size of page numbers[sequence * row + j / page_size].
struct page_table {
  const std::int32_t* numbers = nullptr;  ///< null: keys and values are contiguous
  std::int64_t row = 0;
  std::int64_t page_size = 0;
  std::int64_t page_count = 0;  ///< pages of the pool
};

/// What is added to the logit of row i and key j of a sequence whose row 0 stands at key `context`:
/// slopes[head] * (j - context), and bias[i * row + j - context] where 0 <= j - context < extent
/// and i < extent.
struct position_bias {
  const float* slopes = nullptr;  ///< [q_heads], ALiBi; null: none
  const float* bias = nullptr;    ///< [extent, extent], among the new tokens; null: none
  std::int64_t row = 0;
  std::int64_t extent = 0;
};

/// Numbers of the slots of a pool, indexed by (page, slot, head): what elements of 8 bits of the
/// slot are multiplied by.
struct slot_scales {
  const float* data = nullptr;  ///< null: 1
  row_strides strides{};        ///< batch: the distance of pages
};

/// Keys and values of the tokens of q, indexed by (row, head), which a launch writes to the pool
/// before it attends: token t of a sequence of n takes the place of its key k_len - n + t.
struct new_tokens {
  const void* k = nullptr;  ///< null: nothing is written
  const void* v = nullptr;
  dtype type = dtype::none;  ///< that of q, or of the pool
  row_strides k_strides{}, v_strides{};
  std::int64_t columns = 0;  ///< of a head in the pool: those behind its own become 0
  std::int64_t heads = 0;    ///< that the pool has room for: those behind kv_heads become 0
};

/// Groups of sequences, one after the other, whose first pages are the same: those of sequences
/// [sequences[g], sequences[g + 1]) are so in [0, pages[g]). Results do not depend on it.
struct shared_prefixes {
  const std::int32_t* sequences = nullptr;  ///< [count + 1]; null: none
  const std::int32_t* pages = nullptr;      ///< [count]
  std::int64_t count = 0;
};

/// The last columns of keys where they are a tensor of their own, which heads may share.
struct key_tail {
  const void* data = nullptr;
  row_strides strides{};  ///< of heads: 0 if all have the same
  int columns = 0;        ///< those behind are zeros
};

inline constexpr std::int64_t unbounded = INT64_MAX;

/// Arguments of one forward launch.
struct attention_kernel_args {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  row_strides q_strides{}, k_strides{}, v_strides{}, out_strides{};
  key_tail k_tail{};  ///< rows that take keys in two parts: `k` has the others
  page_table pages{};
  shared_prefixes prefixes{};  ///< paged
  /// q of f8_e4m3: what its elements are multiplied by, a number for each head of k; null: 1.
  const float* q_scales = nullptr;
  /// Keys and values of 8 bits: the same of k and v.
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
  slot_scales k_token_scales{}, v_token_scales{};  ///< paged, beside those
  new_tokens written{};                            ///< paged
  row_statistics lse{}, row_max{};

  score_tensor bias_pre{}, bias_post{}, mask{};
  position_bias positions{};  ///< paged
  token_ids q_segments{}, kv_segments{};
  const float* sinks = nullptr;  ///< [q_heads or 1, sink_count]
  std::int64_t sink_head_stride = 0, sink_stride = 1;
  int sink_count = 0;

  const std::int32_t* cu_seqlens_q = nullptr;  ///< packed; contiguous
  const std::int32_t* cu_seqlens_k = nullptr;  ///< packed and not paged
  const std::int32_t* seqlens_q = nullptr;     ///< dense, optional; contiguous
  const std::int32_t* seqlens_k = nullptr;     ///< dense, optional; paged
  /// Packed, optional: one number, of sequences in use. Those behind have no rows.
  const std::int32_t* num_seqs = nullptr;

  /// Dense, optional, contiguous: entry n has keys [kv_start[n], kv_end[n]), and its last row
  /// stands at kv_end[n] - 1.
  const std::int32_t* kv_start = nullptr;
  const std::int32_t* kv_end = nullptr;

  void* weights = nullptr;  ///< [batch, q_heads, q_len, kv_len], last axis contiguous
  dtype weights_type = dtype::none;
  dtype out_type = dtype::none;   ///< of out, where q is f8_e4m3
  dtype pool_type = dtype::none;  ///< paged: of k and v, that of q or one of 8 bits
  std::int64_t weights_batch = 0, weights_head = 0, weights_row = 0;

  /// Packed: rows and keys of a sequence that biases and mask have room for. Lengths that the host
  /// has not looked at are cut to them.
  std::int64_t most_rows = unbounded, most_keys = unbounded;

  std::int64_t batch = 0;   ///< batch entries, or sequences when packed
  std::int64_t q_len = 0;   ///< rows per entry; packed: rows in total
  std::int64_t kv_len = 0;  ///< keys per entry; packed: keys in total; paged: room for keys
  int q_heads = 0, kv_heads = 0;
  int head_dim = 0, v_head_dim = 0;

  float softmax_scale = 1.0f;
  float q_divisor = 1.0f;   ///< paged: q is divided by it, and rounded to its type, before all else
  float out_factor = 1.0f;  ///< multiplies finished rows: 1 / (1 - p) of dropout, the scale of v
  bool q_as_codes = false;  ///< paged: q is rounded to the pool's type, of 8 bits
  bool causal = false;
  bool top_left = false;
  std::int64_t window_left = unbounded, window_right = unbounded;
  float soft_cap = 0.0f;  ///< 0: off

  /// Keys are split by the length of their sequence alone, whoever else is in the batch.
  bool batch_invariant = false;
  bool normalize = true;
  bool dropout = false;
  std::uint64_t dropout_threshold = 0;  ///< kept iff word >= threshold; at most 2^32
  float dropout_scale = 1.0f;           ///< 1 / (1 - p), of weights that are written
  std::uint64_t dropout_seed = 0;
};

/// Pages that sequences share are read once for all of them where every row of theirs sees all of
/// these keys, and in the same way: without windows and biases, and unless bits must not depend on
/// who else is there.
constexpr bool reads_prefixes_once(const attention_kernel_args& args) noexcept {
  return args.prefixes.count > 0 && !args.batch_invariant && args.window_left == unbounded &&
         args.positions.slopes == nullptr && args.positions.bias == nullptr;
}

/// One query of each sequence, the last token, which sees all keys that its window has.
TESSERA_HD constexpr bool has_last_tokens(const attention_kernel_args& args) noexcept {
  return args.q_len == 1 && args.cu_seqlens_q == nullptr && args.seqlens_q == nullptr &&
         args.seqlens_k != nullptr && args.kv_end == nullptr && !args.top_left &&
         args.window_right >= 0 && args.window_left >= 0;
}

}  // namespace tessera
