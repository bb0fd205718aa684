// The operations on caches of keys and values, declared: tensors, dims, options, and where kernels
// find them. The layouts of a call are those of its pool.
#pragma once

#include <array>

#include <tessera/families/kv_cache/append_declaration.hpp>
#include <tessera/families/kv_cache/copy_declaration.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::kv_cache_table {

// Numbers are checked in this order: how many sequences count, where their tokens are, where those
// go.
inline constexpr std::array operations = declared::joined(
    std::array{declared::operation_of(
        "kv_cache_append", 0, form, lower,
        "k_new! v_new! k_pages! v_pages! kv_pages! seqlens_k! num_seqs cu_seqlens_q block_table! "
        "k_scales v_scales k_token_scales v_token_scales")},
    std::array{declared::operation_of("kv_cache_copy", 1, copy_form, lower_copy,
                                      "k_pages! v_pages! kv_pages! source_pages! target_pages!",
                                      "k_scale v_scale")});

}  // namespace tessera::kv_cache_table

namespace tessera {

/// What its problems are to the engines.
template <>
struct operation_table<kv_cache_op>
    : declared::operation_table_of<kv_cache_problem, kv_cache_kernel_args,
                                   kv_cache_table::operations, kv_cache_table::operations> {};

}  // namespace tessera
