// Every operation of the family of latent attention, whatever its tensors.
#pragma once

#include <tessera/families/latent_attention/deepseek_attn_declaration.hpp>
#include <tessera/families/latent_attention/flash_mla_declaration.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/latent_decode_declaration.hpp>
#include <tessera/families/latent_attention/latent_ragged_declaration.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto latent_attention_operations =
    declared::joined(flash_mla_table::operations, latent_decode_table::operations,
                     latent_ragged_table::operations, deepseek_attn_table::operations);

/// What its problems are to the engines.
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
