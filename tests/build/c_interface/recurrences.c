/* Recurrences and sparse attention from C, with tensors of one number: called, planned, refused. */
#include "number_calls.h"
#include "operations.h"

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
    tessera_state_space_v2_args args = {.size = sizeof args,
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
    tessera_state_space_v2_args args = {.size = sizeof args,
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

/* The only token selects its own block, which is the only one, in the first of `count` slots. */
static int is_own_block(int32_t* blocks, int count) {
  int right = blocks[0] == 0;
  for (int i = 1; i < count; ++i) right = right && blocks[i] == -1;
  for (int i = 0; i < count; ++i) blocks[i] = 7;
  return right;
}

static void check_block_selection(tessera_status* status) {
  static int32_t blocks[3] = {7, 7, 7};
  tensors[2] = TENSOR(TESSERA_I32, blocks, 1, 1, 1, 3);
  tessera_block_selection_args args = {
      .size = sizeof args, .q = input(0, 4), .k = input(1, 4), .selected_blocks = &tensors[2]};
  tessera_block_selection_options options = {.size = sizeof options,
                                             .block_size = 64,
                                             .block_count = 3,
                                             .first_blocks = 1,
                                             .last_blocks = 2};
  tessera_plan* plan = NULL;
  expect(tessera_block_selection(&args, &options, NULL, status) == TESSERA_OK &&
             is_own_block(blocks, 3),
         "block_selection", status);
  expect(tessera_plan_block_selection(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_block_selection(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             is_own_block(blocks, 3),
         "planned block_selection", status);
  tessera_plan_free(plan);
  expect_refusal(tessera_block_selection(&args, NULL, NULL, status),
                 "selected_blocks: block_count is 3, q has 16", status);
}

int check_recurrences(void) {
  tessera_status status = {.size = sizeof status};
  check_block_selection(&status);
  check_linear_attention(&status);
  check_delta_rules(&status);
  check_state_spaces(&status);
  check_sparse_attention(&status);
  return faults;
}
