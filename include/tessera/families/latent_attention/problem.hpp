// What is asked of latent attention at run time: dtypes, sizes and options, no pointers. Plain
// data.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/deepseek_attn_args.hpp>
#include <tessera/families/latent_attention/deepseek_attn_options.hpp>
#include <tessera/families/latent_attention/flash_mla_args.hpp>
#include <tessera/families/latent_attention/flash_mla_options.hpp>
#include <tessera/families/latent_attention/latent_decode_args.hpp>
#include <tessera/families/latent_attention/latent_ragged_args.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations whose keys and values are made of the latents of a sequence.
enum class flash_mla_op : std::uint8_t { flash_mla, flash_mla_backward };

/// A call of one of them without its memory.
using flash_mla_problem = basic_problem<flash_mla_op, flash_mla_args, flash_mla_options>;

/// Operations over latents in pages: of batches of equal rows, and of any.
enum class flash_mla_decode_op : std::uint8_t { flash_mla_decode };
enum class latent_ragged_op : std::uint8_t { multi_latent_ragged_page_attention };

/// Operations on keys that are selected for each token.
enum class deepseek_attn_op : std::uint8_t { deepseek_attn, deepseek_attn_backward };

/// A call of one of them without its memory.
using flash_mla_decode_problem =
    basic_problem<flash_mla_decode_op, flash_mla_decode_args, flash_mla_decode_options>;
using latent_ragged_problem =
    basic_problem<latent_ragged_op, latent_ragged_args, latent_ragged_options>;
using deepseek_attn_problem =
    basic_problem<deepseek_attn_op, deepseek_attn_args, deepseek_attn_options>;

/// See spec/problem_of.hpp.
flash_mla_problem problem_type(const flash_mla_args&);
flash_mla_decode_problem problem_type(const flash_mla_decode_args&);
latent_ragged_problem problem_type(const latent_ragged_args&);
deepseek_attn_problem problem_type(const deepseek_attn_args&);

}  // namespace tessera
