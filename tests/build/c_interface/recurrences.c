/* Recurrences and sparse attention from C, with tensors of one number: called, planned, refused. */
#include <math.h>
#include <string.h>

#include "operations.h"
#include "support.h"

enum { MOST = 24 };

static float numbers[MOST];
static tessera_tensor tensors[MOST];
static int written[MOST];
static const float untouched = 7.0f;

static const tessera_tensor* number_at(int at, int rank, int is_output) {
  tessera_tensor tensor = TENSOR(TESSERA_F32, &numbers[at], 1);
  tensor.rank = rank;
  for (int axis = 0; axis < rank; ++axis) tensor.extent[axis] = 1;
  tensors[at] = tensor;
  written[at] = is_output;
  numbers[at] = is_output ? untouched : 0.5f;
  return &tensors[at];
}
static const tessera_tensor* input(int at, int rank) {
  return number_at(at, rank, 0);
}
static const tessera_tensor* output(int at, int rank) {
  return number_at(at, rank, 1);
}

/* A row of three numbers from `at` on. */
static const tessera_tensor* three_columns(int at) {
  for (int i = 2; i >= 0; --i) number_at(at + i, 2, 0);
  tensors[at].extent[1] = 3;
  return &tensors[at];
}

/* Whether every output has a number; `first` gets them, or they are equal to it. */
static int outputs_are(float* first, int is_first) {
  int right = 1;
  for (int at = 0; at < MOST; ++at) {
    if (!written[at]) continue;
    if (is_first) first[at] = numbers[at];
    right = right && isfinite(numbers[at]) && numbers[at] != untouched && numbers[at] == first[at];
    numbers[at] = untouched;
  }
  return right;
}

/* A call, and a planned run to the same numbers; an extent of -1 is refused with its number. */
#define CHECK(name, call, plan_of, run)                                                            \
  do {                                                                                             \
    float first[MOST];                                                                             \
    tessera_plan* plan = NULL;                                                                     \
    expect(call(&args, NULL, NULL, status) == TESSERA_OK && outputs_are(first, 1), #name, status); \
    expect(plan_of(&args, NULL, NULL, &plan, status) == TESSERA_OK &&                              \
               run(plan, &args, NULL, 0, NULL, status) == TESSERA_OK && outputs_are(first, 0),     \
           "planned " #name, status);                                                              \
    tessera_plan_free(plan);                                                                       \
    tensors[0].extent[0] = -1;                                                                     \
    expect(call(&args, NULL, NULL, status) != TESSERA_OK && strstr(status->message, "-1"),         \
           "refused " #name, status);                                                              \
    memset(written, 0, sizeof written);                                                            \
  } while (0)

static void check_linear_attention(tessera_status* status) {
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .out = output(3, 4)};
    CHECK(recurrent, tessera_recurrent, tessera_plan_recurrent, tessera_run_recurrent);
  }
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .out = output(3, 4)};
    CHECK(gla, tessera_gla, tessera_plan_gla, tessera_run_gla);
  }
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .g_gamma = input(3, 1),
                                   .out = output(4, 4)};
    CHECK(lightning_attn, tessera_lightning_attn, tessera_plan_lightning_attn,
          tessera_run_lightning_attn);
  }
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .d_out = input(3, 4),
                                   .d_q = output(4, 4),
                                   .d_k = output(5, 4),
                                   .d_v = output(6, 4)};
    CHECK(recurrent_backward, tessera_recurrent_backward, tessera_plan_recurrent_backward,
          tessera_run_recurrent_backward);
  }
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .d_out = input(3, 4),
                                   .d_q = output(4, 4),
                                   .d_k = output(5, 4),
                                   .d_v = output(6, 4)};
    CHECK(gla_backward, tessera_gla_backward, tessera_plan_gla_backward, tessera_run_gla_backward);
  }
  {
    tessera_recurrent_args args = {.size = sizeof args,
                                   .q = input(0, 4),
                                   .k = input(1, 4),
                                   .v = input(2, 4),
                                   .g_gamma = input(3, 1),
                                   .d_out = input(4, 4),
                                   .d_q = output(5, 4),
                                   .d_k = output(6, 4),
                                   .d_v = output(7, 4)};
    CHECK(lightning_attn_backward, tessera_lightning_attn_backward,
          tessera_plan_lightning_attn_backward, tessera_run_lightning_attn_backward);
  }
  {
    tessera_rwkv6_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .k = input(1, 4),
                               .v = input(2, 4),
                               .w = input(3, 4),
                               .u = input(4, 2),
                               .out = output(5, 4)};
    CHECK(rwkv6, tessera_rwkv6, tessera_plan_rwkv6, tessera_run_rwkv6);
  }
  {
    tessera_rwkv6_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .k = input(1, 4),
                               .v = input(2, 4),
                               .w = input(3, 4),
                               .u = input(4, 2),
                               .d_out = input(5, 4),
                               .d_r = output(6, 4),
                               .d_k = output(7, 4),
                               .d_v = output(8, 4)};
    CHECK(rwkv6_backward, tessera_rwkv6_backward, tessera_plan_rwkv6_backward,
          tessera_run_rwkv6_backward);
  }
}

/* A sequence of one token that starts from 0, so that a call leaves the pool as a call before. */
static int32_t offsets[] = {0, 1}, none[] = {0};

static void check_pools_of_states(tessera_status* status) {
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

static void check_delta_rules(tessera_status* status) {
  {
    tessera_gated_delta_rule_args args = {.size = sizeof args,
                                          .q = input(0, 4),
                                          .k = input(1, 4),
                                          .v = input(2, 4),
                                          .beta = input(3, 3),
                                          .out = output(4, 4)};
    CHECK(gated_delta_rule, tessera_gated_delta_rule, tessera_plan_gated_delta_rule,
          tessera_run_gated_delta_rule);
  }
  {
    tessera_gated_delta_rule_args args = {.size = sizeof args,
                                          .q = input(0, 4),
                                          .k = input(1, 4),
                                          .v = input(2, 4),
                                          .beta = input(3, 3),
                                          .d_out = input(4, 4),
                                          .d_q = output(5, 4),
                                          .d_k = output(6, 4),
                                          .d_v = output(7, 4),
                                          .d_beta = output(8, 3)};
    CHECK(gated_delta_rule_backward, tessera_gated_delta_rule_backward,
          tessera_plan_gated_delta_rule_backward, tessera_run_gated_delta_rule_backward);
  }
  {
    tessera_gated_delta_rule_args args = {.size = sizeof args,
                                          .q = input(0, 4),
                                          .k = input(1, 4),
                                          .v = input(2, 4),
                                          .beta = input(3, 3),
                                          .out = output(4, 4)};
    CHECK(kernel_delta_attention, tessera_kernel_delta_attention,
          tessera_plan_kernel_delta_attention, tessera_run_kernel_delta_attention);
  }
  {
    tessera_gated_delta_rule_args args = {.size = sizeof args,
                                          .q = input(0, 4),
                                          .k = input(1, 4),
                                          .v = input(2, 4),
                                          .beta = input(3, 3),
                                          .d_out = input(4, 4),
                                          .d_q = output(5, 4),
                                          .d_k = output(6, 4),
                                          .d_v = output(7, 4),
                                          .d_beta = output(8, 3)};
    CHECK(kernel_delta_attention_backward, tessera_kernel_delta_attention_backward,
          tessera_plan_kernel_delta_attention_backward,
          tessera_run_kernel_delta_attention_backward);
  }
  {
    tessera_rwkv7_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .w = input(1, 4),
                               .k = input(2, 4),
                               .v = input(3, 4),
                               .a = input(4, 4),
                               .b = input(5, 4),
                               .out = output(6, 4)};
    CHECK(rwkv7, tessera_rwkv7, tessera_plan_rwkv7, tessera_run_rwkv7);
  }
  {
    tessera_rwkv7_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .w = input(1, 4),
                               .k = input(2, 4),
                               .v = input(3, 4),
                               .kk = input(4, 4),
                               .a = input(5, 4),
                               .out = output(6, 4)};
    CHECK(rwkv7_mul, tessera_rwkv7_mul, tessera_plan_rwkv7_mul, tessera_run_rwkv7_mul);
  }
  {
    tessera_rwkv7_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .w = input(1, 4),
                               .k = input(2, 4),
                               .v = input(3, 4),
                               .a = input(4, 4),
                               .b = input(5, 4),
                               .d_out = input(6, 4),
                               .d_r = output(7, 4),
                               .d_w = output(8, 4),
                               .d_k = output(9, 4),
                               .d_v = output(10, 4),
                               .d_a = output(11, 4),
                               .d_b = output(12, 4)};
    CHECK(rwkv7_backward, tessera_rwkv7_backward, tessera_plan_rwkv7_backward,
          tessera_run_rwkv7_backward);
  }
  {
    tessera_rwkv7_args args = {.size = sizeof args,
                               .r = input(0, 4),
                               .w = input(1, 4),
                               .k = input(2, 4),
                               .v = input(3, 4),
                               .kk = input(4, 4),
                               .a = input(5, 4),
                               .d_out = input(6, 4),
                               .d_r = output(7, 4),
                               .d_w = output(8, 4),
                               .d_k = output(9, 4),
                               .d_v = output(10, 4),
                               .d_kk = output(11, 4),
                               .d_a = output(12, 4)};
    CHECK(rwkv7_mul_backward, tessera_rwkv7_mul_backward, tessera_plan_rwkv7_mul_backward,
          tessera_run_rwkv7_mul_backward);
  }
}

static void check_state_spaces(tessera_status* status) {
  {
    tessera_state_space_v1_args args = {.size = sizeof args,
                                        .x = input(0, 3),
                                        .dt = input(1, 3),
                                        .A = input(2, 2),
                                        .B = input(3, 3),
                                        .C = input(4, 3),
                                        .out = output(5, 3)};
    CHECK(state_space_v1, tessera_state_space_v1, tessera_plan_state_space_v1,
          tessera_run_state_space_v1);
  }
  {
    tessera_state_space_v1_args args = {.size = sizeof args,
                                        .x = input(0, 3),
                                        .dt = input(1, 3),
                                        .A = input(2, 2),
                                        .B = input(3, 3),
                                        .C = input(4, 3),
                                        .d_out = input(5, 3),
                                        .d_x = output(6, 3),
                                        .d_dt = output(7, 3),
                                        .d_A = output(8, 2),
                                        .d_B = output(9, 3),
                                        .d_C = output(10, 3)};
    CHECK(state_space_v1_backward, tessera_state_space_v1_backward,
          tessera_plan_state_space_v1_backward, tessera_run_state_space_v1_backward);
  }
  {
    tessera_state_space_v1_args args = {.size = sizeof args,
                                        .x = input(0, 4),
                                        .dt = input(1, 3),
                                        .A = input(2, 1),
                                        .B = input(3, 4),
                                        .C = input(4, 4),
                                        .out = output(5, 4)};
    CHECK(state_space_v2, tessera_state_space_v2, tessera_plan_state_space_v2,
          tessera_run_state_space_v2);
  }
  {
    tessera_state_space_v1_args args = {.size = sizeof args,
                                        .x = input(0, 4),
                                        .dt = input(1, 3),
                                        .A = input(2, 1),
                                        .B = input(3, 4),
                                        .C = input(4, 4),
                                        .d_out = input(5, 4),
                                        .d_x = output(6, 4),
                                        .d_dt = output(7, 3),
                                        .d_A = output(8, 1),
                                        .d_B = output(9, 4),
                                        .d_C = output(10, 4)};
    CHECK(state_space_v2_backward, tessera_state_space_v2_backward,
          tessera_plan_state_space_v2_backward, tessera_run_state_space_v2_backward);
  }
  {
    tessera_rwkv4_args args = {.size = sizeof args,
                               .k = input(0, 3),
                               .v = input(1, 3),
                               .w = input(2, 1),
                               .u = input(3, 1),
                               .out = output(4, 3)};
    CHECK(rwkv4, tessera_rwkv4, tessera_plan_rwkv4, tessera_run_rwkv4);
  }
  {
    tessera_rwkv4_args args = {.size = sizeof args,
                               .k = input(0, 3),
                               .v = input(1, 3),
                               .w = input(2, 1),
                               .u = input(3, 1),
                               .d_out = input(4, 3),
                               .d_k = output(5, 3),
                               .d_v = output(6, 3),
                               .d_w = output(7, 1),
                               .d_u = output(8, 1)};
    CHECK(rwkv4_backward, tessera_rwkv4_backward, tessera_plan_rwkv4_backward,
          tessera_run_rwkv4_backward);
  }
}

static int32_t block = 0;
static const tessera_tensor* block_number(int at) {
  tensors[at] = TENSOR(TESSERA_I32, &block, 1, 1, 1, 1);
  return &tensors[at];
}

static void check_sparse_attention(tessera_status* status) {
  {
    tessera_blocksparse_attention_args args = {.size = sizeof args,
                                               .q = input(0, 4),
                                               .k = input(1, 4),
                                               .v = input(2, 4),
                                               .out = output(3, 4)};
    CHECK(blocksparse_attention, tessera_blocksparse_attention, tessera_plan_blocksparse_attention,
          tessera_run_blocksparse_attention);
  }
  {
    tessera_blocksparse_attention_backward_args args = {.size = sizeof args,
                                                        .q = input(0, 4),
                                                        .k = input(1, 4),
                                                        .v = input(2, 4),
                                                        .out = input(3, 4),
                                                        .lse = input(4, 3),
                                                        .d_out = input(5, 4),
                                                        .d_q = output(6, 4),
                                                        .d_k = output(7, 4),
                                                        .d_v = output(8, 4)};
    CHECK(blocksparse_attention_backward, tessera_blocksparse_attention_backward,
          tessera_plan_blocksparse_attention_backward, tessera_run_blocksparse_attention_backward);
  }
  {
    tessera_native_sparse_attention_args args = {.size = sizeof args,
                                                 .q = input(0, 4),
                                                 .k = input(1, 4),
                                                 .v = input(2, 4),
                                                 .out = output(3, 4)};
    CHECK(native_sparse_attention, tessera_native_sparse_attention,
          tessera_plan_native_sparse_attention, tessera_run_native_sparse_attention);
  }
  {
    tessera_native_sparse_attention_backward_args args = {.size = sizeof args,
                                                          .q = input(0, 4),
                                                          .k = input(1, 4),
                                                          .v = input(2, 4),
                                                          .selected_blocks = block_number(3),
                                                          .d_out = input(4, 4),
                                                          .d_q = output(5, 4),
                                                          .d_k = output(6, 4),
                                                          .d_v = output(7, 4)};
    CHECK(native_sparse_attention_backward, tessera_native_sparse_attention_backward,
          tessera_plan_native_sparse_attention_backward,
          tessera_run_native_sparse_attention_backward);
  }
}

int check_recurrences(void) {
  tessera_status status = {.size = sizeof status};
  check_linear_attention(&status);
  check_delta_rules(&status);
  check_pools_of_states(&status);
  check_state_spaces(&status);
  check_sparse_attention(&status);
  return faults;
}
