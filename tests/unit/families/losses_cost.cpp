// Gradients that are given the sums of logits are a call of their own: one product fewer.
#include <gtest/gtest.h>

#include <tessera/families/losses/cost.hpp>
#include <tessera/families/losses/demand.hpp>

namespace {

using namespace tessera;

linear_cross_entropy_args call_of(bool has_sums) {
  linear_cross_entropy_args args{
      .hidden = {.type = dtype::bf16, .rank = 2, .extent = {512, 64}},
      .lm_head_weight = {.type = dtype::bf16, .rank = 2, .extent = {64, 1024}}};
  static float sums[512 * 2];
  if (has_sums) {
    args.logit_sums = {.data = sums, .type = dtype::f32, .rank = 2, .extent = {512, 2}};
  }
  return args;
}

double flops_of(backend target, bool has_sums) {
  const losses_config row{.target = target,
                          .loss = loss_kind::linear_cross_entropy,
                          .pass = loss_pass::backward,
                          .type = is_cuda(target) ? dtype::bf16 : dtype::none};
  const losses_demand demand = demand_of(
      linear_cross_entropy_op::fused_linear_cross_entropy_backward, call_of(has_sums), {}, false);
  return estimate_of(row, facts_of(demand), 8).flops;
}

TEST(losses_cost, counts_no_product_for_sums_that_are_given) {
  EXPECT_DOUBLE_EQ(flops_of(backend::cpu_avx512, true), 0.8 * flops_of(backend::cpu_avx512, false));
  EXPECT_DOUBLE_EQ(flops_of(backend::cuda_sm80, true), 0.75 * flops_of(backend::cuda_sm80, false));
  EXPECT_DOUBLE_EQ(flops_of(backend::cuda_sm90, true), 0.75 * flops_of(backend::cuda_sm90, false));
}

TEST(losses_cost, knows_sums_that_the_loss_leaves_from_those_that_are_given) {
  const auto demand = [](linear_cross_entropy_op op, bool has_sums) {
    return demand_of(op, call_of(has_sums), {}, false);
  };
  using enum linear_cross_entropy_op;
  EXPECT_EQ(demand(fused_linear_cross_entropy, true), demand(fused_linear_cross_entropy, false));
  EXPECT_NE(demand(fused_linear_cross_entropy_backward, true),
            demand(fused_linear_cross_entropy_backward, false));
}

}  // namespace
