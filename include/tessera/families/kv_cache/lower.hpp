// What problems of caches mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <tessera/families/kv_cache/declaration.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<kv_cache_op>
    : declared::operation_table_of<kv_cache_problem, kv_cache_kernel_args,
                                   kv_cache_table::operations, kv_cache_table::operations> {};

}  // namespace tessera
