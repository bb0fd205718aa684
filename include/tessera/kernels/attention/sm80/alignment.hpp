// Whether tokens can be copied 16 bytes at a time.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention::sm80 {

/// True if every row of a tensor starts at a multiple of 16 bytes. Strides of axes with one element
/// do not count.
inline bool rows_are_aligned(const void* data, const row_strides& strides, std::int64_t batch,
                             std::int64_t rows, int heads, dtype type) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  const auto fits = [&](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || stride * size % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && fits(batch, strides.batch) &&
         fits(rows, strides.row) && fits(heads, strides.head);
}

/// True if every row of q, k and v starts and ends at a multiple of 16 bytes. Keys and values in
/// pages may have 8 bits.
inline bool tokens_are_aligned(const attention_kernel_args& args, dtype type) {
  const dtype kv_type = prim::cuda::is_code_type(args.pool_type) ? args.pool_type : type;
  const int chunk = 16 / static_cast<int>(size_of(kv_type));
  const bool paged = args.pages.numbers != nullptr;
  const std::int64_t blocks = paged ? args.pages.page_count : args.batch;  // that have a stride
  const std::int64_t tokens = paged ? args.pages.page_size : args.kv_len;
  return args.head_dim % chunk == 0 && args.v_head_dim % chunk == 0 &&
         rows_are_aligned(args.q, args.q_strides, args.batch, args.q_len, args.q_heads, type) &&
         rows_are_aligned(args.k, args.k_strides, blocks, tokens, args.kv_heads, kv_type) &&
         rows_are_aligned(args.v, args.v_strides, blocks, tokens, args.kv_heads, kv_type);
}

}  // namespace tessera::kernels::attention::sm80
