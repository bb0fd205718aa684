// Gradients of products by their definition, beside differences of it.
#include <gtest/gtest.h>

#include "tests/support/definition_differences.hpp"

namespace tessera::support {
namespace {

INSTANTIATE_TEST_SUITE_P(
    products, gradients_by_definition,
    testing::Values(
        "grouped_matmul lhs=[9,4]f32 rhs=[3,4,5]f32 group_sizes=[3]i32",
        "grouped_matmul lhs=[9,4]f32 rhs=[2,5,4]f32 group_sizes=[4]i32 transpose_rhs=true "
        "group_offset=1 lhs_rows=local rhs_scale=[2,2,5]f32",
        "matmul lhs=[4,6]f32 rhs=[6,5]f32 rhs_scale=[3,5]f32",
        "matmul lhs=[2,4,6]f32 rhs=[2,5,6]f32 transpose_rhs=true"));

}  // namespace
}  // namespace tessera::support
