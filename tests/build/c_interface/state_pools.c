/* Recurrences over pools of states from C, each with tensors of one number. */
#include "number_calls.h"
#include "operations.h"

/* A row of three numbers from `at` on. */
static const tessera_tensor* three_columns(int at) {
  for (int i = 2; i >= 0; --i) number_at(at + i, 2, 0);
  tensors[at].extent[1] = 3;
  return &tensors[at];
}

/* A sequence of one token that starts from 0, so that a call leaves the pool as a call before. */
static int32_t offsets[] = {0, 1}, none[] = {0};

static void check_delta_rules(tessera_status* status) {
  const tessera_tensor ends = TENSOR(TESSERA_I32, offsets, 2), zero = TENSOR(TESSERA_I32, none, 1);
  {
    tessera_ragged_gated_delta_rule_args args = {.size = sizeof args,
                                                 .q = input(0, 3),
                                                 .k = input(1, 3),
                                                 .v = input(2, 3),
                                                 .beta = input(3, 2),
                                                 .state_pool = output(4, 4),
                                                 .cu_seqlens = &ends,
                                                 .state_indices = &zero,
                                                 .has_initial_state = &zero,
                                                 .out = output(5, 3)};
    CHECK(ragged_gated_delta_rule, tessera_ragged_gated_delta_rule,
          tessera_plan_ragged_gated_delta_rule, tessera_run_ragged_gated_delta_rule);
  }
  {
    tessera_ragged_gated_delta_rule_backward_args args = {.size = sizeof args,
                                                          .q = input(0, 3),
                                                          .k = input(1, 3),
                                                          .v = input(2, 3),
                                                          .beta = input(3, 2),
                                                          .state_pool = input(4, 4),
                                                          .cu_seqlens = &ends,
                                                          .state_indices = &zero,
                                                          .d_out = input(5, 3),
                                                          .d_q = output(6, 3),
                                                          .d_k = output(7, 3),
                                                          .d_v = output(8, 3),
                                                          .d_beta = output(9, 2)};
    CHECK(ragged_gated_delta_rule_backward, tessera_ragged_gated_delta_rule_backward,
          tessera_plan_ragged_gated_delta_rule_backward,
          tessera_run_ragged_gated_delta_rule_backward);
  }
  {
    tessera_ragged_gated_delta_rule_v2_args args = {.size = sizeof args,
                                                    .mixed_qkv = three_columns(0),
                                                    .a = input(3, 2),
                                                    .b = input(4, 2),
                                                    .A_log = input(5, 1),
                                                    .dt_bias = input(6, 1),
                                                    .state_pool = output(7, 4),
                                                    .cu_seqlens = &ends,
                                                    .state_indices = &zero,
                                                    .has_initial_state = &zero,
                                                    .out = output(8, 3)};
    CHECK(ragged_gated_delta_rule_v2, tessera_ragged_gated_delta_rule_v2,
          tessera_plan_ragged_gated_delta_rule_v2, tessera_run_ragged_gated_delta_rule_v2);
  }
  {
    tessera_ragged_gated_delta_rule_v2_backward_args args = {.size = sizeof args,
                                                             .mixed_qkv = three_columns(0),
                                                             .a = input(3, 2),
                                                             .b = input(4, 2),
                                                             .A_log = input(5, 1),
                                                             .dt_bias = input(6, 1),
                                                             .state_pool = input(7, 4),
                                                             .cu_seqlens = &ends,
                                                             .state_indices = &zero,
                                                             .d_out = input(8, 3),
                                                             .d_mixed_qkv = three_columns(9),
                                                             .d_a = output(12, 2),
                                                             .d_b = output(13, 2)};
    for (int at = 9; at < 12; ++at) written[at] = 1;
    CHECK(ragged_gated_delta_rule_v2_backward, tessera_ragged_gated_delta_rule_v2_backward,
          tessera_plan_ragged_gated_delta_rule_v2_backward,
          tessera_run_ragged_gated_delta_rule_v2_backward);
  }
}

int check_state_pools(void) {
  tessera_status status = {.size = sizeof status};
  check_delta_rules(&status);
  return faults;
}
