// What problems of latent attention mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<flash_mla_op>
    : declared::operation_table_of<flash_mla_problem, latent_attention_kernel_args,
                                   latent_attention_operations, flash_mla_table::operations> {};
template <>
struct operation_table<flash_mla_decode_op>
    : declared::operation_table_of<flash_mla_decode_problem, latent_attention_kernel_args,
                                   latent_attention_operations, latent_decode_table::operations> {};
template <>
struct operation_table<latent_ragged_op>
    : declared::operation_table_of<latent_ragged_problem, latent_attention_kernel_args,
                                   latent_attention_operations, latent_ragged_table::operations> {};
template <>
struct operation_table<deepseek_attn_op>
    : declared::operation_table_of<deepseek_attn_problem, latent_attention_kernel_args,
                                   latent_attention_operations, deepseek_attn_table::operations> {};

}  // namespace tessera
