// What problems of the gradients of attention mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<attention_backward_op>
    : declared::operation_table_of<attention_backward_problem, attention_backward_kernel_args,
                                   attention_backward_table::operations,
                                   attention_backward_table::operations> {};

}  // namespace tessera
