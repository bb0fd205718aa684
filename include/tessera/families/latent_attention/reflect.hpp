// Reflection over the family of latent attention, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(latent_form, expanded, absorbed, selected)
BOOST_DESCRIBE_ENUM(latent_pass, forward, backward)
BOOST_DESCRIBE_ENUM(latent_attention_rule, none, sm90_rows_are_prompts_of_a_type,
                    type_is_of_matrix_units, gradients_are_of_expanded_latents,
                    bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(flash_mla_op, flash_mla, flash_mla_backward)
BOOST_DESCRIBE_ENUM(flash_mla_decode_op, flash_mla_decode)
BOOST_DESCRIBE_ENUM(latent_ragged_op, multi_latent_ragged_page_attention)
BOOST_DESCRIBE_ENUM(deepseek_attn_op, deepseek_attn, deepseek_attn_backward)

BOOST_DESCRIBE_STRUCT(latent_attention_config, (), (target, form, pass, type))
BOOST_DESCRIBE_STRUCT(flash_mla_options, (),
                      (softmax_scale, causal, window_left, window_right, logits_soft_cap))
BOOST_DESCRIBE_STRUCT(flash_mla_args, (),
                      (ckv, w_kc, w_vc, k_pe, q_pe, q, bias_post, mask, sinks, out, lse, d_out,
                       d_lse, d_ckv, d_w_kc, d_w_vc, d_k_pe, d_q_pe, d_q, d_bias_post, d_sinks))

BOOST_DESCRIBE_STRUCT(flash_mla_decode_options, (), (softmax_scale, causal, v_dim))
BOOST_DESCRIBE_STRUCT(flash_mla_decode_args, (),
                      (q, kv_cache, block_table, seqlens_k, sinks, out, lse))
BOOST_DESCRIBE_STRUCT(latent_ragged_options, (),
                      (softmax_scale, window_left, logits_soft_cap, q_scale, k_scale, v_scale))
BOOST_DESCRIBE_STRUCT(latent_ragged_args, (),
                      (q_nope, q_pe, ckv, k_pe, kv_cache, block_tables, kv_lens, cu_seqlens_q,
                       distribution, out, lse))

BOOST_DESCRIBE_STRUCT(deepseek_attn_options, (),
                      (softmax_scale, causal, index_topk, index_scale, force_self))
BOOST_DESCRIBE_STRUCT(deepseek_attn_args, (),
                      (ckv, w_kc, w_vc, k_pe, q_pe, q, q_index, k_index, index_weights, indices,
                       out, lse, selected_indices, d_out, d_lse, d_ckv, d_w_kc, d_w_vc, d_k_pe,
                       d_q_pe, d_q))

/// `latent_attention.<backend>.<form>.<pass>`, of rows of a type with `.<dtype>` behind it.
inline constexpr auto latent_attention_names = row_names<latent_attention_config>(
    "latent_attention", spelling::word{&latent_attention_config::target},
    spelling::word{&latent_attention_config::form}, spelling::word{&latent_attention_config::pass},
    spelling::mark{".f16", &latent_attention_config::type, dtype::f16},
    spelling::mark{".bf16", &latent_attention_config::type, dtype::bf16});

/// The stable name of a row.
constexpr row_name name_of(const latent_attention_config& config) {
  return latent_attention_names.name_of(config);
}

}  // namespace tessera
