// What mean pooling problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<mean_pooling_op>
    : declared::operation_table_of<mean_pooling_problem, mean_pooling_kernel_args,
                                   mean_pooling_table::operations, mean_pooling_table::operations> {
};

}  // namespace tessera
