// Reflection over the family of the gradients of attention, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(attention_backward_rule, none, type_is_floating, head_dim_in_range,
                    block_q_is_whole_tiles_and_vectors, block_kv_is_whole_register_tiles,
                    tile_fits_in_cache, bf16_dot_takes_bf16, cuda_head_dim_is_any_64_96_or_128,
                    cuda_type_of_head_dim_has_16_bits, cuda_blocks_are_fixed, cuda_rows_are_sm80)

BOOST_DESCRIBE_STRUCT(attention_backward_config, (), (target, type, head_dim, block_q, block_kv))

/// `attention_backward.<backend>.<dtype>.d<D>.<block_q>x<block_kv>`; `dany` stands for head dims
/// known at run time.
template <>
inline constexpr auto spelling_of<attention_backward_config> = row_names<attention_backward_config>(
    "attention_backward", spelling::word{&attention_backward_config::target},
    spelling::word{&attention_backward_config::type},
    spelling::number{".d", &attention_backward_config::head_dim, "any"},
    spelling::number{".", &attention_backward_config::block_q},
    spelling::number{"x", &attention_backward_config::block_kv});

}  // namespace tessera
