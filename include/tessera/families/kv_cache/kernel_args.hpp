// What the kernels of key and value caches receive: raw pointers, element strides and sizes of one
// launch. Plain data; operations of other families that write new tokens fill `kv_append_args` too.
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Strides, in elements, of a pool of pages: the row of head h of a token lies at
/// page * page + token * token + h / heads_per_group * group + h % heads_per_group * head; its
/// elements are contiguous.
struct pool_strides {
  std::int64_t page = 0;
  std::int64_t token = 0;
  std::int64_t group = 0;
  std::int64_t head = 0;
};

/// Rows of new tokens, indexed by (token, head); the last axis is contiguous.
struct new_token_strides {
  std::int64_t token = 0;
  std::int64_t head = 0;
};

/// Where scales of the tokens of a pool are written, indexed by (page, slot, head).
struct token_scales {
  float* data = nullptr;  ///< null: tokens have none
  std::int64_t page = 0;
  std::int64_t slot = 0;
  std::int64_t head = 0;
};

/// New keys and values, and where they go: token t of sequence n takes the place of its key
/// seqlens_k[n] - q_len + t, slot key % page_size of page table[n * table_row + key / page_size].
///
/// The values of lengths, offsets and page numbers may be wrong on a GPU, where no host has looked
/// at them: tokens that have no place are written nowhere.
struct kv_append_args {
  const void* k_new = nullptr;
  const void* v_new = nullptr;
  dtype new_type = dtype::none;  ///< f32, f16 or bf16
  new_token_strides k_new_strides{}, v_new_strides{};

  void* k = nullptr;
  /// Null: values lie in the pool of keys, `v_offset` elements behind them.
  void* v = nullptr;
  std::int64_t v_offset = 0;
  dtype pool_type = dtype::none;  ///< besides those: f8_e4m3, f8_e5m2 or i8
  pool_strides k_strides{}, v_strides{};
  std::int64_t page_size = 0;
  std::int64_t page_count = 0;

  std::int64_t heads = 0;
  /// Heads that a slot has room for: those behind `heads` become 0, where a slot is written.
  std::int64_t pool_heads = 0;
  std::int64_t heads_per_group = 1;
  std::int64_t k_columns = 0, v_columns = 0;  ///< of a head
  /// Columns of a head in the pool: those behind the others become 0.
  std::int64_t k_width = 0, v_width = 0;

  const std::int32_t* table = nullptr;
  std::int64_t table_row = 0;
  std::int64_t table_pages = 0;                ///< entries of a row
  const std::int32_t* seqlens_k = nullptr;     ///< with the new tokens
  const std::int32_t* cu_seqlens_q = nullptr;  ///< null: sequence n has token n
  const std::int32_t* num_seqs = nullptr;      ///< null: all
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;

  /// What is stored is x / scale, rounded to the type of the pool (prim/common/element_cast.hpp).
  float k_scale = 1.0f, v_scale = 1.0f;
  const float* k_scales = nullptr;  ///< of each head, beside k_scale; null: 1
  const float* v_scales = nullptr;
  /// Pools of 8 bits: of each row, beside those, what makes its largest element the largest code
  /// (prim/common/code_scale.hpp).
  token_scales k_token_scales{}, v_token_scales{};
};

/// The pages of a pool as bytes: each is extents[0] x extents[1] x extents[2] runs of `run` bytes.
struct page_runs {
  std::int64_t page = 0;  ///< distance of pages
  std::int64_t extents[3] = {0, 0, 0};
  std::int64_t strides[3] = {0, 0, 0};
  std::int64_t run = 0;
  /// Bytes of a page.
  constexpr std::int64_t bytes() const noexcept {
    return extents[0] * extents[1] * extents[2] * run;
  }
};

/// Pages of one or two pools, copied inside their pool.
struct kv_copy_args {
  void* k = nullptr;
  void* v = nullptr;  ///< null: one pool
  page_runs k_runs{}, v_runs{};
  std::int64_t page_count = 0;
  const std::int32_t* source_pages = nullptr;
  const std::int32_t* target_pages = nullptr;
  std::int64_t copies = 0;
};

/// Args of a launch of this family: of one of its operations.
struct kv_cache_kernel_args {
  kv_append_args append{};
  kv_copy_args copy{};
};

}  // namespace tessera
