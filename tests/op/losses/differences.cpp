// Gradients of losses by their definition, beside differences of it.
#include <gtest/gtest.h>

#include "tests/support/definition_differences.hpp"

namespace tessera::support {
namespace {

INSTANTIATE_TEST_SUITE_P(
    losses, gradients_by_definition,
    testing::Values(
        "fused_cross_entropy logits=[5,7]f32 targets=[5]i32",
        "fused_cross_entropy logits=[5,7]f32 targets=[5]i32 reduction=sum label_smoothing=0.1 "
        "z_loss=0.01",
        "fused_cross_entropy logits=[2,3,6]f32 targets=[2,3]i32 reduction=none z_loss=0.01 "
        "world_size=2",
        "fused_cross_entropy logits=[5,7]f32 soft_targets=[5,7]f32",
        "fused_cross_entropy logits=[5,6]f32 soft_targets=[5,6]f32 reduction=none z_loss=0.01 "
        "world_size=3",
        "fused_kl_divergence student_logits=[5,7]f32 teacher_logits=[5,7]f32",
        "fused_kl_divergence student_logits=[5,7]f32 teacher_logits=[5,7]f32 direction=reverse "
        "temperature=2 reduction=sum",
        "fused_kl_divergence student_logits=[2,3,6]f32 teacher_logits=[2,3,6]f32 direction=jsd "
        "beta=0.3 reduction=none temperature=0.5 world_size=2",
        "fused_linear_cross_entropy hidden=[5,4]f32 lm_head_weight=[4,7]f32",
        "fused_linear_cross_entropy hidden=[2,3,4]f32 lm_head_weight=[4,6]f32 "
        "label_smoothing=0.2 z_loss=0.01 logits_soft_cap=3 reduction=none world_size=2"));

}  // namespace
}  // namespace tessera::support
