// A call of page_attention as the attention call that it stands for: the keys and values of each
// sequence gathered from their pages into one tensor, its lengths, one query row.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/page_args.hpp>

#include "elements.hpp"
#include "pool_elements.hpp"

namespace tessera::reference {

/// Shapes of the dense call: no memory is looked at. q, out and lse have an axis more, of extent 1:
/// the rows of a sequence, or the sequences of a chunk.
inline flash_attention_args dense_shapes(page_op op, const page_attention_args& paged,
                                         const page_attention_options& options) {
  const bool chunk = op == page_op::prefill_page_attention;
  const auto& q = paged.q.extent;
  const std::int64_t entries = chunk ? 1 : q[0], rows = chunk ? q[0] : 1;
  const std::int64_t keys = paged.block_table.extent[1] * page_tokens(paged.k_pages, options);
  const auto width = [&](const tensor_view& pool) {
    return pool.extent[pool_axis(options.pool_layout, 'D')];
  };
  const auto tokens = [&](const tensor_view& pool) {
    return shaped(gathered_type(pool.type),
                  {entries, keys, pool.extent[pool_axis(options.pool_layout, 'H')], width(pool)});
  };
  flash_attention_args dense{.q = shaped(paged.q.type, {entries, rows, q[1], q[2]}),
                             .k = tokens(paged.k_pages),
                             .v = tokens(paged.v_pages),
                             .seqlens_k = paged.seqlens_k};
  dense.out = shaped(paged.q.type, {entries, rows, q[1], width(paged.v_pages)});
  if (paged.lse.present()) dense.lse = shaped(dtype::f32, {entries, q[1], rows});
  return dense;
}

inline flash_attention_options dense_options(page_op op, const page_attention_options& paged) {
  flash_attention_options dense;
  dense.softmax_scale = paged.softmax_scale;
  dense.causal = op == page_op::prefill_page_attention;
  dense.window_left = paged.window_left;
  dense.logits_soft_cap = paged.logits_soft_cap;
  return dense;
}

/// Attention on the keys and values of the sequences, all of them full, in one piece: those of
/// pools of 8 bits as the type of q.
inline flash_problem dense_problem(const page_problem& paged) {
  flash_problem dense{.tensors = dense_shapes(paged.op, paged.tensors, paged.options),
                      .options = dense_options(paged.op, paged.options)};
  dense.tensors.seqlens_k = {};
  for (tensor_view* const tokens : {&dense.tensors.k, &dense.tensors.v}) {
    if (tokens->type == dtype::f64) tokens->type = paged.tensors.q.type;
  }
  return dense;
}

/// The dense call of tensors in host memory; q, out and lse are those of the call itself.
class dense_pages {
 public:
  /// `as_stored`: products with the scales of tokens are rounded, as rows may do.
  dense_pages(page_op op, const page_attention_args& paged, const page_attention_options& options,
              bool as_stored = false)
      : args_(dense_shapes(op, paged, options)), options_(dense_options(op, options)) {
    const double root = std::sqrt(static_cast<double>(paged.q.extent[2]));
    if (options.k_scale) {
      options_.softmax_scale = options.softmax_scale.value_or(1.0 / root) * *options.k_scale;
    }
    gather(paged, options, paged.k_pages, {paged.k_scales, paged.k_token_scales, as_stored},
           args_.k, keys_);
    gather(paged, options, paged.v_pages, {paged.v_scales, paged.v_token_scales, as_stored},
           args_.v, values_);
    const auto with_axis = [](const tensor_view& view, tensor_view& to, std::size_t added) {
      to.data = view.data;
      for (std::size_t axis = 0, from = 0; axis < static_cast<std::size_t>(to.rank); ++axis) {
        to.stride[axis] = axis == added ? 0 : view.stride[from++];
      }
    };
    const bool chunk = op == page_op::prefill_page_attention;
    with_axis(paged.q, args_.q, chunk ? 0 : 1);
    with_axis(paged.out, args_.out, chunk ? 0 : 1);
    if (paged.lse.present()) with_axis(paged.lse, args_.lse, chunk ? 0 : 2);
  }
  dense_pages(const dense_pages&) = delete;
  dense_pages& operator=(const dense_pages&) = delete;

  const flash_attention_args& args() const noexcept { return args_; }
  const flash_attention_options& options() const noexcept { return options_; }

 private:
  struct scale_tensors {
    const tensor_view& of_heads;
    const tensor_view& of_tokens;
    bool as_stored;
  };
  static void gather(const page_attention_args& paged, const page_attention_options& options,
                     const tensor_view& pool, const scale_tensors& scales, tensor_view& tokens,
                     std::vector<std::byte>& memory) {
    const std::size_t bytes = size_of(tokens.type);
    memory.resize(static_cast<std::size_t>(tokens.elements()) * bytes);
    tokens.stride = contiguous_strides(tokens.extent, tokens.rank);
    tokens.data = memory.data();
    const auto stride_of = [&](char axis) {
      return pool.stride[pool_axis(options.pool_layout, axis)];
    };
    const std::int64_t page_size = page_tokens(pool, options);
    const auto entry = [](const tensor_view& view, std::int64_t at) {
      return static_cast<const std::int32_t*>(view.data)[at];
    };
    for (std::int64_t n = 0; n < tokens.extent[0]; ++n) {
      const std::int64_t length = entry(paged.seqlens_k, n * paged.seqlens_k.stride[0]);
      for (std::int64_t j = 0; j < length; ++j) {
        const auto& table = paged.block_table;
        const std::int64_t page =
            entry(table, n * table.stride[0] + j / page_size * table.stride[1]);
        for (std::int64_t h = 0; h < tokens.extent[2]; ++h) {
          const std::int64_t from = page * page_distance(pool, options) +
                                    j % page_size * stride_of('T') + h * stride_of('H');
          const std::int64_t to =
              n * tokens.stride[0] + j * tokens.stride[1] + h * tokens.stride[2];
          const code_scales scale{
              scale_of_head(scales.of_heads, h),
              scale_of_slot(scales.of_tokens, page_size, page, j % page_size, h),
              rounded_type(scales.as_stored, scales.of_tokens, paged.q.type)};
          gather_row(pool, from, scale, tokens, to, tokens.extent[3]);
        }
      }
    }
  }

  flash_attention_args args_;
  flash_attention_options options_;
  std::vector<std::byte> keys_, values_;
};

}  // namespace tessera::reference
