/* Latent attention from C: keys and values made of latents, and latents in pages. */
#include "operations.h"
#include "support.h"

enum { TOKENS = 2, LATENT = 2, ROPE = 1, WIDTH = 256, SLOTS = 4 };

/* Keys are 0, so that a row sees the mean of the values, which are the latents. */
static float latents[TOKENS * LATENT] = {1.0f, 2.0f, 3.0f, 4.0f};
static float zeros[LATENT * LATENT], unit[LATENT * LATENT] = {1.0f, 0.0f, 0.0f, 1.0f};
static float q_data[TOKENS * LATENT] = {0.5f, 1.0f, -1.0f, 2.0f}, out_data[TOKENS * LATENT];

static double mean_of_latents(int i) {
  return i % LATENT == 0 ? 2.0 : 3.0;
}
static double first_latent(int i) {
  return i % LATENT == 0 ? 1.0 : 2.0;
}

static void check_expanded(tessera_status* status) {
  tessera_tensor ckv = TENSOR(TESSERA_F32, latents, 1, TOKENS, LATENT),
                 w_kc = TENSOR(TESSERA_F32, zeros, LATENT, 1, LATENT),
                 w_vc = TENSOR(TESSERA_F32, unit, LATENT, 1, LATENT),
                 q = TENSOR(TESSERA_F32, q_data, 1, TOKENS, 1, LATENT),
                 out = TENSOR(TESSERA_F32, out_data, 1, TOKENS, 1, LATENT);
  tessera_flash_mla_args args = {
      .size = sizeof args, .ckv = &ckv, .w_kc = &w_kc, .w_vc = &w_vc, .q = &q, .out = &out};
  tessera_plan* plan = NULL;
  expect(tessera_flash_mla(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, TOKENS * LATENT, mean_of_latents),
         "flash_mla", status);
  tessera_flash_mla_options options = {.size = sizeof options, .causal = 1};
  expect(tessera_plan_flash_mla(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_flash_mla(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, LATENT, first_latent),
         "planned flash_mla, causal", status);
  tessera_plan_free(plan);
  expect(tessera_multi_head_latent_attention(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, TOKENS * LATENT, mean_of_latents) &&
             TESSERA_OPERATION_MULTI_HEAD_LATENT_ATTENTION == TESSERA_OPERATION_FLASH_MLA,
         "multi_head_latent_attention", status);
  q.extent[3] = 3;
  q.stride[2] = q.stride[1] = 3;
  expect_refusal(tessera_flash_mla(&args, NULL, NULL, status), "q: head_dim is 3, w_kc has 2",
                 status);
}

static double half_of_d_out(int i) {
  (void)i;
  return 1.0;
}

/* Each token has half of what both rows give back, for keys that are 0 move no weight to it. */
static void check_gradient(tessera_status* status) {
  static float lse_data[TOKENS] = {0.6931472f, 0.6931472f}, mean[TOKENS * LATENT],
               ones[TOKENS * LATENT];
  static float d_ckv_data[TOKENS * LATENT], d_q_data[TOKENS * LATENT];
  static float d_w_kc_data[LATENT * LATENT], d_w_vc_data[LATENT * LATENT];
  for (int i = 0; i < TOKENS * LATENT; ++i) {
    mean[i] = (float)mean_of_latents(i);
    ones[i] = 1.0f;
  }
  tessera_tensor ckv = TENSOR(TESSERA_F32, latents, 1, TOKENS, LATENT),
                 w_kc = TENSOR(TESSERA_F32, zeros, LATENT, 1, LATENT),
                 w_vc = TENSOR(TESSERA_F32, unit, LATENT, 1, LATENT),
                 q = TENSOR(TESSERA_F32, q_data, 1, TOKENS, 1, LATENT),
                 out = TENSOR(TESSERA_F32, mean, 1, TOKENS, 1, LATENT),
                 lse = TENSOR(TESSERA_F32, lse_data, 1, 1, TOKENS),
                 d_out = TENSOR(TESSERA_F32, ones, 1, TOKENS, 1, LATENT),
                 d_ckv = TENSOR(TESSERA_F32, d_ckv_data, 1, TOKENS, LATENT),
                 d_w_kc = TENSOR(TESSERA_F32, d_w_kc_data, LATENT, 1, LATENT),
                 d_w_vc = TENSOR(TESSERA_F32, d_w_vc_data, LATENT, 1, LATENT),
                 d_q = TENSOR(TESSERA_F32, d_q_data, 1, TOKENS, 1, LATENT);
  tessera_flash_mla_backward_args args = {.size = sizeof args,
                                          .ckv = &ckv,
                                          .w_kc = &w_kc,
                                          .w_vc = &w_vc,
                                          .q = &q,
                                          .out = &out,
                                          .lse = &lse,
                                          .d_out = &d_out,
                                          .d_ckv = &d_ckv,
                                          .d_w_kc = &d_w_kc,
                                          .d_w_vc = &d_w_vc,
                                          .d_q = &d_q};
  tessera_plan* plan = NULL;
  expect(tessera_flash_mla_backward(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(d_ckv_data, TOKENS * LATENT, half_of_d_out),
         "flash_mla_backward", status);
  d_ckv_data[0] = 0;
  expect(tessera_plan_flash_mla_backward(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_flash_mla_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(d_ckv_data, TOKENS * LATENT, half_of_d_out),
         "planned flash_mla_backward", status);
  tessera_plan_free(plan);
  args.lse = NULL;
  expect_refusal(tessera_flash_mla_backward(&args, NULL, NULL, status), "lse: is absent", status);
}

static void check_decode(tessera_status* status) {
  static int32_t table_data[1] = {0}, length[1] = {TOKENS};
  static float row[LATENT + ROPE], cache_data[SLOTS * (LATENT + ROPE)];
  for (int i = 0; i < TOKENS * LATENT; ++i) {
    cache_data[i / LATENT * (LATENT + ROPE) + i % LATENT] = latents[i];
  }
  tessera_tensor q = TENSOR(TESSERA_F32, row, 1, 1, 1, LATENT + ROPE),
                 cache = TENSOR(TESSERA_F32, cache_data, 1, SLOTS, 1, LATENT + ROPE),
                 table = TENSOR(TESSERA_I32, table_data, 1, 1),
                 lengths = TENSOR(TESSERA_I32, length, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, 1, LATENT);
  tessera_flash_mla_decode_args args = {.size = sizeof args,
                                        .q = &q,
                                        .kv_cache = &cache,
                                        .block_table = &table,
                                        .seqlens_k = &lengths,
                                        .out = &out};
  tessera_flash_mla_decode_options options = {
      .size = sizeof options, .softmax_scale = 0.5, .v_dim = LATENT};
  tessera_plan* plan = NULL;
  expect(tessera_flash_mla_decode(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out_data, LATENT, mean_of_latents),
         "flash_mla_decode", status);
  out_data[0] = 0;
  expect(tessera_plan_flash_mla_decode(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_flash_mla_decode(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, LATENT, mean_of_latents),
         "planned flash_mla_decode", status);
  tessera_plan_free(plan);
  expect_refusal(tessera_flash_mla_decode(&args, NULL, NULL, status), "softmax_scale: is not set",
                 status);
}

/* Both tokens are new: they are written, and the second row sees both. */
static void check_ragged(tessera_status* status) {
  static int32_t table_data[1] = {0}, length[1] = {TOKENS}, offsets[2] = {0, TOKENS};
  static float cache_data[SLOTS * WIDTH], queries[TOKENS * LATENT], ropes[TOKENS * ROPE];
  tessera_tensor q_nope = TENSOR(TESSERA_F32, queries, TOKENS, 1, LATENT),
                 q_pe = TENSOR(TESSERA_F32, ropes, TOKENS, 1, ROPE),
                 ckv = TENSOR(TESSERA_F32, latents, TOKENS, LATENT),
                 k_pe = TENSOR(TESSERA_F32, ropes, TOKENS, ROPE),
                 cache = TENSOR(TESSERA_F32, cache_data, 1, SLOTS, 1, WIDTH),
                 table = TENSOR(TESSERA_I32, table_data, 1, 1),
                 lengths = TENSOR(TESSERA_I32, length, 1), rows = TENSOR(TESSERA_I32, offsets, 2),
                 out = TENSOR(TESSERA_F32, out_data, TOKENS, 1, LATENT);
  tessera_multi_latent_ragged_page_attention_args args = {.size = sizeof args,
                                                          .q_nope = &q_nope,
                                                          .q_pe = &q_pe,
                                                          .ckv = &ckv,
                                                          .k_pe = &k_pe,
                                                          .kv_cache = &cache,
                                                          .block_tables = &table,
                                                          .kv_lens = &lengths,
                                                          .cu_seqlens_q = &rows,
                                                          .out = &out};
  tessera_multi_latent_ragged_page_attention_options options = {.size = sizeof options,
                                                                .softmax_scale = 0.5};
  tessera_plan* plan = NULL;
  expect(tessera_multi_latent_ragged_page_attention(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out_data, LATENT, first_latent) &&
             are_near(out_data + LATENT, LATENT, mean_of_latents) &&
             are_near(cache_data, LATENT, first_latent),
         "multi_latent_ragged_page_attention", status);
  cache_data[WIDTH] = 0;
  expect(tessera_plan_multi_latent_ragged_page_attention(&args, &options, NULL, &plan, status) ==
                 TESSERA_OK &&
             tessera_run_multi_latent_ragged_page_attention(plan, &args, NULL, 0, NULL, status) ==
                 TESSERA_OK &&
             are_near(out_data + LATENT, LATENT, mean_of_latents),
         "planned multi_latent_ragged_page_attention", status);
  tessera_plan_free(plan);
  length[0] = SLOTS + 1;
  expect_refusal(tessera_multi_latent_ragged_page_attention(&args, &options, NULL, status),
                 "kv_lens: entry 0 is 5, must be 0 to 4", status);
}

/* The first token sees nothing but the second, whose latent is its value. */
static double second_latent(int i) {
  return i % LATENT == 0 ? 3.0 : 4.0;
}

static void check_selected(tessera_status* status) {
  static float scores[TOKENS] = {0.5f, 2.0f}, ones[TOKENS] = {1.0f, 1.0f};
  static int32_t kept[TOKENS] = {-7, -7};
  tessera_tensor ckv = TENSOR(TESSERA_F32, latents, 1, TOKENS, LATENT),
                 w_kc = TENSOR(TESSERA_F32, zeros, LATENT, 1, LATENT),
                 w_vc = TENSOR(TESSERA_F32, unit, LATENT, 1, LATENT),
                 q = TENSOR(TESSERA_F32, q_data, 1, TOKENS, 1, LATENT),
                 q_index = TENSOR(TESSERA_F32, ones, 1, TOKENS, 1, 1),
                 k_index = TENSOR(TESSERA_F32, scores, 1, TOKENS, 1),
                 weights = TENSOR(TESSERA_F32, ones, 1, TOKENS, 1),
                 selected = TENSOR(TESSERA_I32, kept, 1, TOKENS, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, TOKENS, 1, LATENT);
  tessera_deepseek_attn_args args = {.size = sizeof args,
                                     .ckv = &ckv,
                                     .w_kc = &w_kc,
                                     .w_vc = &w_vc,
                                     .q = &q,
                                     .q_index = &q_index,
                                     .k_index = &k_index,
                                     .index_weights = &weights,
                                     .out = &out,
                                     .selected_indices = &selected};
  tessera_deepseek_attn_options options = {.size = sizeof options, .index_topk = 1};
  tessera_plan* plan = NULL;
  expect(tessera_deepseek_attn(&args, &options, NULL, status) == TESSERA_OK && kept[0] == 1 &&
             kept[1] == 1 && are_near(out_data, TOKENS * LATENT, second_latent),
         "deepseek_attn", status);
  out_data[0] = 0;
  expect(tessera_plan_deepseek_attn(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_deepseek_attn(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, TOKENS * LATENT, second_latent),
         "planned deepseek_attn", status);
  tessera_plan_free(plan);
  uint8_t codes[TOKENS] = {0x38, 0x38}; /* ones of f8_e4m3 */
  float scales_data[TOKENS] = {0.5f, 2.0f};
  tessera_tensor q_codes = TENSOR(TESSERA_F8_E4M3, codes, 1, TOKENS, 1, 1),
                 k_codes = TENSOR(TESSERA_F8_E4M3, codes, 1, TOKENS, 1),
                 scales = TENSOR(TESSERA_F32, scales_data, 1, TOKENS);
  args.q_index = &q_codes;
  args.k_index = &k_codes;
  args.k_index_scale = &scales;
  kept[0] = kept[1] = -7;
  expect(tessera_deepseek_attn(&args, &options, NULL, status) == TESSERA_OK && kept[0] == 1 &&
             kept[1] == 1 && are_near(out_data, TOKENS * LATENT, second_latent),
         "deepseek_attn by codes", status);
  args.indices = &selected;
  expect_refusal(tessera_deepseek_attn(&args, &options, NULL, status),
                 "q_index: is given with indices, which say what is selected", status);
}

/* Both rows have all of their weight at the second token. */
static double all_of_d_out(int i) {
  return i < LATENT ? 0.0 : 2.0;
}

static void check_gradient_of_selected(tessera_status* status) {
  static int32_t kept[TOKENS] = {1, 1};
  static float lse_data[TOKENS], seconds[TOKENS * LATENT], ones[TOKENS * LATENT];
  static float d_ckv_data[TOKENS * LATENT], d_q_data[TOKENS * LATENT];
  static float d_w_kc_data[LATENT * LATENT], d_w_vc_data[LATENT * LATENT];
  for (int i = 0; i < TOKENS * LATENT; ++i) {
    seconds[i] = (float)second_latent(i);
    ones[i] = 1.0f;
  }
  tessera_tensor ckv = TENSOR(TESSERA_F32, latents, 1, TOKENS, LATENT),
                 w_kc = TENSOR(TESSERA_F32, zeros, LATENT, 1, LATENT),
                 w_vc = TENSOR(TESSERA_F32, unit, LATENT, 1, LATENT),
                 q = TENSOR(TESSERA_F32, q_data, 1, TOKENS, 1, LATENT),
                 indices = TENSOR(TESSERA_I32, kept, 1, TOKENS, 1),
                 out = TENSOR(TESSERA_F32, seconds, 1, TOKENS, 1, LATENT),
                 lse = TENSOR(TESSERA_F32, lse_data, 1, 1, TOKENS),
                 d_out = TENSOR(TESSERA_F32, ones, 1, TOKENS, 1, LATENT),
                 d_ckv = TENSOR(TESSERA_F32, d_ckv_data, 1, TOKENS, LATENT),
                 d_w_kc = TENSOR(TESSERA_F32, d_w_kc_data, LATENT, 1, LATENT),
                 d_w_vc = TENSOR(TESSERA_F32, d_w_vc_data, LATENT, 1, LATENT),
                 d_q = TENSOR(TESSERA_F32, d_q_data, 1, TOKENS, 1, LATENT);
  tessera_deepseek_attn_backward_args args = {.size = sizeof args,
                                              .ckv = &ckv,
                                              .w_kc = &w_kc,
                                              .w_vc = &w_vc,
                                              .q = &q,
                                              .indices = &indices,
                                              .out = &out,
                                              .lse = &lse,
                                              .d_out = &d_out,
                                              .d_ckv = &d_ckv,
                                              .d_w_kc = &d_w_kc,
                                              .d_w_vc = &d_w_vc,
                                              .d_q = &d_q};
  tessera_plan* plan = NULL;
  expect(tessera_deepseek_attn_backward(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(d_ckv_data, TOKENS * LATENT, all_of_d_out),
         "deepseek_attn_backward", status);
  d_ckv_data[0] = 7;
  expect(tessera_plan_deepseek_attn_backward(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_deepseek_attn_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(d_ckv_data, TOKENS * LATENT, all_of_d_out),
         "planned deepseek_attn_backward", status);
  tessera_plan_free(plan);
  kept[1] = TOKENS;
  expect_refusal(tessera_deepseek_attn_backward(&args, NULL, NULL, status),
                 "indices: entry 0,1,0 is 2, must be -1 or one of the 2 rows of ckv", status);
}

int check_latents(void) {
  tessera_status status = {.size = sizeof status};
  check_expanded(&status);
  check_gradient(&status);
  check_decode(&status);
  check_ragged(&status);
  check_selected(&status);
  check_gradient_of_selected(&status);
  return faults;
}
