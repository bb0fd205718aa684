// Reflection over the sparse attention family, and the names of its rows.
#pragma once

#include <string_view>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(sparse_pattern, blocksparse, native_sparse)
BOOST_DESCRIBE_ENUM(sparse_pass, forward, backward)
BOOST_DESCRIBE_ENUM(sparse_attention_rule, none, cuda_rows_are_sm80, cpu_rows_take_any_type,
                    matrix_unit_takes_16_bits, matrix_unit_head_dim_is_64_or_128,
                    matrix_unit_goes_forward, bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(blocksparse_op, blocksparse_attention)
BOOST_DESCRIBE_ENUM(blocksparse_backward_op, blocksparse_attention_backward)

BOOST_DESCRIBE_ENUM(native_sparse_op, native_sparse_attention)
BOOST_DESCRIBE_ENUM(native_sparse_backward_op, native_sparse_attention_backward)

BOOST_DESCRIBE_STRUCT(sparse_attention_config, (), (target, pattern, pass, type, head_dim))
BOOST_DESCRIBE_STRUCT(blocksparse_attention_options, (),
                      (softmax_scale, causal, causal_alignment, window_left, window_right,
                       logits_soft_cap, chunk_size, block_q, block_k))
BOOST_DESCRIBE_STRUCT(blocksparse_attention_args, (),
                      (q, k, v, q_segment_ids, kv_segment_ids, q_positions, kv_positions, mask,
                       block_mask, sinks, out, lse))
BOOST_DESCRIBE_STRUCT(blocksparse_attention_backward_args, (),
                      (q, k, v, q_segment_ids, kv_segment_ids, q_positions, kv_positions, mask,
                       block_mask, sinks, out, lse, d_out, d_lse, d_q, d_k, d_v, d_sinks))

BOOST_DESCRIBE_STRUCT(native_sparse_attention_options, (),
                      (softmax_scale, block_size, block_count, window_left))
BOOST_DESCRIBE_STRUCT(native_sparse_attention_args, (),
                      (q, k, v, g_slc, g_cmp, g_swa, block_indices, block_counts, cu_seqlens, out,
                       selected_blocks))
BOOST_DESCRIBE_STRUCT(native_sparse_attention_backward_args, (),
                      (q, k, v, g_slc, g_cmp, g_swa, selected_blocks, block_counts, cu_seqlens,
                       d_out, d_q, d_k, d_v, d_g_slc, d_g_cmp, d_g_swa))

/// ".bf16.d128": operands of the matrix unit, of rows that have such.
struct spelled_sparse_operands {
  static constexpr spelling::word type{&sparse_attention_config::type};
  static constexpr spelling::number head_dim{".d", &sparse_attention_config::head_dim};

  constexpr void write(row_name& name, const sparse_attention_config& row) const {
    if (row.type == dtype::none && row.head_dim == 0) return;
    type.write(name, row);
    head_dim.write(name, row);
  }
  constexpr bool read(std::string_view& rest, sparse_attention_config& row) const {
    return rest.empty() || (type.read(rest, row) && head_dim.read(rest, row));
  }
};

/// `sparse_attention.<backend>.<pattern>.<pass>`, of rows for the matrix unit with
/// `.<dtype>.d<head_dim>` behind it.
inline constexpr auto sparse_attention_names = row_names<sparse_attention_config>(
    "sparse_attention", spelling::word{&sparse_attention_config::target},
    spelling::word{&sparse_attention_config::pattern},
    spelling::word{&sparse_attention_config::pass}, spelled_sparse_operands{});

/// The stable name of a row.
constexpr row_name name_of(const sparse_attention_config& config) {
  return sparse_attention_names.name_of(config);
}

}  // namespace tessera
