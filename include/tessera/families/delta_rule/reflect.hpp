// Reflection over the delta rule family, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/families/delta_rule/ragged_problem.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/families/delta_rule/rwkv7_problem.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(delta_rule_pass, forward, backward)
BOOST_DESCRIBE_ENUM(delta_rule_rule, none, cuda_rows_are_sm80, cuda_rows_cut_by_key_dim,
                    chunks_are_products_of_bf16, cuda_key_dim_is_known, cpu_rows_take_any_key_dim,
                    type_is_floating, forward_goes_token_by_token, chunk_in_range,
                    columns_are_a_few_vectors, bf16_instructions_take_bf16,
                    bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(delta_rule_op, gated_delta_rule, kernel_delta_attention,
                    gated_delta_rule_backward, kernel_delta_attention_backward)
BOOST_DESCRIBE_ENUM(rwkv7_op, rwkv7, rwkv7_mul, rwkv7_backward, rwkv7_mul_backward)

BOOST_DESCRIBE_STRUCT(delta_rule_config, (), (target, type, pass, chunk, columns, key_dim))
BOOST_DESCRIBE_STRUCT(delta_rule_options, (),
                      (scale, use_qk_l2norm, use_gate, gate_lower_bound, use_beta_sigmoid,
                       allow_neg_eigval))
BOOST_DESCRIBE_STRUCT(delta_rule_args, (),
                      (q, k, v, g, gk, beta, A_log, dt_bias, initial_state, cu_seqlens, seg_ids,
                       out, final_state, d_out, d_final_state, d_q, d_k, d_v, d_g, d_gk, d_beta,
                       d_A_log, d_dt_bias, d_initial_state, state_indices))

BOOST_DESCRIBE_STRUCT(rwkv7_options, (), (scale, reverse))
BOOST_DESCRIBE_STRUCT(rwkv7_args, (),
                      (r, w, k, v, a, b, kk, initial_state, cu_seqlens, out, final_state, d_out,
                       d_final_state, d_r, d_w, d_k, d_v, d_a, d_b, d_kk, d_initial_state,
                       state_indices))

BOOST_DESCRIBE_ENUM(ragged_delta_rule_op, ragged_gated_delta_rule, ragged_gated_delta_rule_backward)
BOOST_DESCRIBE_STRUCT(ragged_delta_rule_args, (),
                      (q, k, v, g, beta, A_log, dt_bias, state_pool, cu_seqlens, state_indices,
                       has_initial_state, out, d_out, d_q, d_k, d_v, d_g, d_beta, d_A_log,
                       d_dt_bias, d_state_pool))
BOOST_DESCRIBE_ENUM(ragged_delta_rule_v2_op, ragged_gated_delta_rule_v2,
                    ragged_gated_delta_rule_v2_backward)
BOOST_DESCRIBE_STRUCT(ragged_delta_rule_v2_options, (),
                      (num_qk_heads, head_dim_qk, scale, use_qk_l2norm, apply_silu))
BOOST_DESCRIBE_STRUCT(ragged_delta_rule_v2_args, (),
                      (mixed_qkv, a, b, A_log, dt_bias, state_pool, cu_seqlens, state_indices,
                       has_initial_state, out, d_out, d_mixed_qkv, d_a, d_b, d_A_log, d_dt_bias,
                       d_state_pool))

/// `delta_rule.<backend>.<dtype>.<pass>.c<chunk>.v<columns>`; of CUDA rows `.k<key_dim>` behind the
/// pass, of those of chunks `.c<chunk>.k<key_dim>`.
inline constexpr auto delta_rule_names = row_names<delta_rule_config>(
    "delta_rule", spelling::word{&delta_rule_config::target},
    spelling::word{&delta_rule_config::type}, spelling::word{&delta_rule_config::pass},
    spelling::where{[](const delta_rule_config& row) { return !is_cuda(row.target); },
                    spelling::number{".c", &delta_rule_config::chunk},
                    spelling::number{".v", &delta_rule_config::columns}},
    spelling::where{
        [](const delta_rule_config& row) { return is_cuda(row.target) && row.chunk != 0; },
        spelling::number{".c", &delta_rule_config::chunk}},
    spelling::where{[](const delta_rule_config& row) { return is_cuda(row.target); },
                    spelling::number{".k", &delta_rule_config::key_dim}});

/// The stable name of a row.
constexpr row_name name_of(const delta_rule_config& config) {
  return delta_rule_names.name_of(config);
}

}  // namespace tessera
