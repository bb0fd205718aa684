// What a launch that writes new keys and values before it attends asks of the kernels of caches
// (kernels/kv_cache).
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention {

/// The writes of a launch whose args.written has tokens. A head of its pools is a group of its own.
/// No scale of the call divides what is written, but those that slots have are found and written.
inline kv_append_args append_args_of(const attention_kernel_args& args) noexcept {
  const new_tokens& written = args.written;
  const auto pool = [](const row_strides& strides) {
    return pool_strides{.page = strides.batch, .token = strides.row, .group = strides.head};
  };
  // The declaration says that pools and the scales of their slots are input and output.
  const auto scales = [](const slot_scales& slots) {
    return token_scales{.data = const_cast<float*>(slots.data),
                        .page = slots.strides.batch,
                        .slot = slots.strides.row,
                        .head = slots.strides.head};
  };
  const auto width = [&](int columns) {
    return written.columns > columns ? written.columns : std::int64_t{columns};
  };
  return {.k_new = written.k,
          .v_new = written.v,
          .new_type = written.type,
          .k_new_strides = {written.k_strides.row, written.k_strides.head},
          .v_new_strides = {written.v_strides.row, written.v_strides.head},
          .k = const_cast<void*>(args.k),
          .v = const_cast<void*>(args.v),
          .pool_type = args.pool_type,
          .k_strides = pool(args.k_strides),
          .v_strides = pool(args.v_strides),
          .page_size = args.pages.page_size,
          .page_count = args.pages.page_count,
          .heads = args.kv_heads,
          .pool_heads = written.heads > args.kv_heads ? written.heads : args.kv_heads,
          .k_columns = args.head_dim,
          .v_columns = args.v_head_dim,
          .k_width = width(args.head_dim),
          .v_width = width(args.v_head_dim),
          .table = args.pages.numbers,
          .table_row = args.pages.row,
          .table_pages = args.kv_len / args.pages.page_size,
          .seqlens_k = args.seqlens_k,
          .cu_seqlens_q = args.cu_seqlens_q,
          .num_seqs = args.num_seqs,
          .sequences = args.batch,
          .tokens = args.q_len,
          .k_token_scales = scales(args.k_token_scales),
          .v_token_scales = scales(args.v_token_scales)};
}

}  // namespace tessera::kernels::attention
