// Gradients of recurrences by their definition, beside differences of it.
#include <gtest/gtest.h>

#include "tests/support/definition_differences.hpp"

namespace tessera::support {
namespace {

INSTANTIATE_TEST_SUITE_P(
    recurrences, gradients_by_definition,
    testing::Values(
        "recurrent q=[2,5,4,3]f32 k=[2,5,2,3] v=[2,5,2,2] scale=0.4",
        "gla q=[1,6,2,3]f32 k=[1,6,2,3] v=[1,6,2,2] reverse=true",
        "lightning_attn q=[1,6,2,3]f32 k=[1,6,2,3] v=[1,6,2,2]", "rwkv6 r=[2,5,2,3]f32 v=[2,5,2,2]",
        "rwkv6 r=[1,5,2,3]f32 v=[1,5,2,2] raw_w=true",
        "gated_delta_rule q=[2,5,1,3]f32 v=[2,5,2,2] g=[2,5,2]f32 beta=[2,5,2]f32 "
        "use_qk_l2norm=true",
        "gated_delta_rule q=[1,5,1,3]f32 v=[1,5,2,2] g=[1,5,2]f32 beta=[1,5,2]f32 A_log=[2]f32 "
        "dt_bias=[2]f32 use_gate=true use_beta_sigmoid=true allow_neg_eigval=true",
        "kernel_delta_attention q=[2,5,1,3]f32 v=[2,5,2,2] gk=[2,5,2,3]f32 beta=[2,5,2]f32",
        "kernel_delta_attention q=[1,5,1,3]f32 v=[1,5,2,2] gk=[1,5,2,3]f32 beta=[1,5,2]f32 "
        "A_log=[2]f32 dt_bias=[2,3]f32 use_gate=true gate_lower_bound=-5 use_qk_l2norm=true",
        "rwkv7 r=[2,5,2,3]f32 w=[2,5,2,3]f32 v=[2,5,2,2]",
        "rwkv7_mul r=[2,5,2,3]f32 w=[2,5,2,3]f32 v=[2,5,2,2] reverse=true", "rwkv4 k=[2,6,3]f32",
        "state_space_v1 x=[2,5,4]f32 A=[4,3]f32 B=[2,5,2,3]",
        "state_space_v1 x=[1,5,4]f32 A=[4,3]f32 B=[1,5,3] dt_softplus=true",
        "state_space_v2 x=[2,5,4,2]f32 A=[4]f32 B=[2,5,2,3]",
        "state_space_v2 x=[1,5,4,2]f32 A=[4]f32 B=[1,5,2,3] dt_softplus=true norm=true "
        "norm_before_gate=true",
        "state_space_v2 x=[1,5,4,2]f32 A=[4]f32 B=[1,5,2,3] dt_softplus=true norm=true "
        "norm_group_size=4",
        "state_space_v2 x=[2,5,4,3]f32 A=[4]f32 B=[2,5,2,3] D=[4,3]f32",
        "state_space_v2 x=[1,6,2,3]f32 A=[2]f32 B=[1,6,2,3] D=[2,3]f32 cu_seqlens=[3]i32 "
        "dt_softplus=true norm=true"));

}  // namespace
}  // namespace tessera::support
