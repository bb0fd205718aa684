/* Operations over pages and ranges of keys, and on caches, through their inline functions. */
#include "operations.h"
#include "support.h"

enum { DIM = 4, PAGES = 3, PAGE_SIZE = 2 };

static float q_data[DIM], out_data[DIM];

static float k_pages_data[PAGES * PAGE_SIZE * DIM], v_pages_data[PAGES * PAGE_SIZE * DIM];

static double third_key(int i) {
  (void)i;
  return 2.0;
}
static double mean_of_three(int i) {
  (void)i;
  return 1.0;
}

/* One sequence of three keys in pages 2 and 0: key j has value j, page 1 is nobody's. */
static int32_t table_data[] = {2, 0, -1}, page_length;
static const int32_t page_offsets[] = {0, 1};

static void check_pages(tessera_status* status) {
  page_length = 3;
  const float values[] = {2.0f, NAN, NAN, NAN, 0.0f, 1.0f};
  for (int i = 0; i < PAGES * PAGE_SIZE * DIM; ++i) v_pages_data[i] = values[i / DIM];
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_pages_data, PAGES, 1, PAGE_SIZE, DIM),
                 v = TENSOR(TESSERA_F32, v_pages_data, PAGES, 1, PAGE_SIZE, DIM),
                 table = TENSOR(TESSERA_I32, table_data, 1, 3),
                 lengths = TENSOR(TESSERA_I32, &page_length, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_page_attention_args args = {.size = sizeof args,
                                      .q = &q,
                                      .k_pages = &k,
                                      .v_pages = &v,
                                      .block_table = &table,
                                      .seqlens_k = &lengths,
                                      .out = &out};
  expect(tessera_page_attention(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "page_attention", status);
  tessera_page_attention_options options = {.size = sizeof options,
                                            .given = TESSERA_PAGE_ATTENTION_WINDOW_LEFT};
  tessera_plan* plan = NULL;
  expect(tessera_plan_page_attention(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_page_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, third_key),
         "planned page_attention with a window of one key", status);
  tessera_plan_free(plan);
  options.pool_layout = TESSERA_POOL_LAYOUT_PTHD;
  expect_refusal(tessera_page_attention(&args, &options, NULL, status),
                 "q: heads is 1, not a multiple of the 2 of k_pages", status);
  page_length = 7;
  expect_refusal(tessera_page_attention(&args, NULL, NULL, status),
                 "seqlens_k: entry 0 is 7, must be 0 to 6", status);
}

/* The same keys as whole numbers of 8 bits, twice as large. */
static void check_codes(tessera_status* status) {
  static int8_t k_codes[PAGES * PAGE_SIZE * DIM], v_codes[PAGES * PAGE_SIZE * DIM];
  static float scales_data[] = {8.0f};
  const int8_t values[] = {4, 99, 99, 99, 0, 2};
  for (int i = 0; i < PAGES * PAGE_SIZE * DIM; ++i) v_codes[i] = values[i / DIM];
  page_length = 3;
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 k = TENSOR(TESSERA_I8, k_codes, PAGES, 1, PAGE_SIZE, DIM),
                 v = TENSOR(TESSERA_I8, v_codes, PAGES, 1, PAGE_SIZE, DIM),
                 table = TENSOR(TESSERA_I32, table_data, 1, 3),
                 lengths = TENSOR(TESSERA_I32, &page_length, 1),
                 scales = TENSOR(TESSERA_F32, scales_data, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_page_attention_args args = {.size = sizeof args,
                                      .q = &q,
                                      .k_pages = &k,
                                      .v_pages = &v,
                                      .block_table = &table,
                                      .seqlens_k = &lengths,
                                      .v_scales = &scales,
                                      .out = &out};
  tessera_page_attention_options options = {
      .size = sizeof options, .given = TESSERA_PAGE_ATTENTION_V_SCALE, .v_scale = 0.0625};
  expect(tessera_page_attention(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "page_attention over whole numbers", status);
  v.dtype = TESSERA_F32;
  expect_refusal(tessera_page_attention(&args, &options, NULL, status),
                 "v_pages: dtype is f32, k_pages has i8", status);
}

/* The same keys in a pool of slots, and as the chunk of one token. */
static void check_slots(tessera_status* status) {
  page_length = 3;
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_pages_data, PAGES * PAGE_SIZE, 1, DIM),
                 v = TENSOR(TESSERA_F32, v_pages_data, PAGES * PAGE_SIZE, 1, DIM),
                 table = TENSOR(TESSERA_I32, table_data, 1, 3),
                 lengths = TENSOR(TESSERA_I32, &page_length, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_page_attention_args args = {.size = sizeof args,
                                      .q = &q,
                                      .k_pages = &k,
                                      .v_pages = &v,
                                      .block_table = &table,
                                      .seqlens_k = &lengths,
                                      .out = &out};
  tessera_page_attention_options options = {
      .size = sizeof options, .pool_layout = TESSERA_POOL_LAYOUT_PT_HD, .page_size = PAGE_SIZE};
  tessera_plan* plan = NULL;
  expect(tessera_decode_attention(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "decode_attention", status);
  expect(tessera_plan_decode_attention(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_decode_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "planned decode_attention", status);
  tessera_plan_free(plan);
  tessera_prefill_page_attention_args chunk = {.size = sizeof chunk,
                                               .q = &q,
                                               .k_pages = &k,
                                               .v_pages = &v,
                                               .block_table = &table,
                                               .seqlens_k = &lengths,
                                               .out = &out};
  tessera_prefill_page_attention_options last = {
      .size = sizeof last,
      .given = TESSERA_PREFILL_PAGE_ATTENTION_WINDOW_LEFT,
      .pool_layout = TESSERA_POOL_LAYOUT_PT_HD,
      .page_size = PAGE_SIZE};
  expect(tessera_prefill_page_attention(&chunk, &last, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, third_key),
         "prefill_page_attention with a window of one key", status);
  expect(
      tessera_plan_prefill_page_attention(&chunk, &last, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_prefill_page_attention(plan, &chunk, NULL, 0, NULL, status) == TESSERA_OK &&
          are_near(out_data, DIM, third_key),
      "planned prefill_page_attention", status);
  tessera_plan_free(plan);
}

static double mean_with_new(int i) {
  (void)i;
  return (0.0 + 1.0 + 8.0) / 3.0;
}

/* The same keys as a batch of one row; then with the third of them written by the call. */
static void check_batch(tessera_status* status) {
  page_length = 3;
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_pages_data, PAGES, PAGE_SIZE, 1, DIM),
                 v = TENSOR(TESSERA_F32, v_pages_data, PAGES, PAGE_SIZE, 1, DIM),
                 table = TENSOR(TESSERA_I32, table_data, 1, 3),
                 lengths = TENSOR(TESSERA_I32, &page_length, 1),
                 offsets = TENSOR(TESSERA_I32, (void*)page_offsets, 2),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_unified_attention_args args = {.size = sizeof args,
                                         .q = &q,
                                         .k_pages = &k,
                                         .v_pages = &v,
                                         .block_table = &table,
                                         .seqlens_k = &lengths,
                                         .cu_seqlens_q = &offsets,
                                         .out = &out};
  tessera_plan* plan = NULL;
  expect(tessera_unified_attention(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "unified_attention", status);
  expect(tessera_plan_unified_attention(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_unified_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "planned unified_attention", status);
  tessera_plan_free(plan);
  float new_keys[DIM] = {0}, new_values[DIM];
  for (int d = 0; d < DIM; ++d) new_values[d] = 8.0f;
  tessera_tensor k_new = TENSOR(TESSERA_F32, new_keys, 1, 1, DIM),
                 v_new = TENSOR(TESSERA_F32, new_values, 1, 1, DIM);
  tessera_chunked_prefill_paged_decode_args writing = {.size = sizeof writing,
                                                       .q = &q,
                                                       .k_pages = &k,
                                                       .v_pages = &v,
                                                       .block_table = &table,
                                                       .seqlens_k = &lengths,
                                                       .cu_seqlens_q = &offsets,
                                                       .k_new = &k_new,
                                                       .v_new = &v_new,
                                                       .out = &out};
  memset(q_data, 0, sizeof(float) * DIM); /* every key counts the same */
  expect(tessera_chunked_prefill_paged_decode(&writing, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_with_new) && is_near(v_pages_data[0], 8.0),
         "chunked_prefill_paged_decode", status);
  expect(tessera_plan_chunked_prefill_paged_decode(&writing, NULL, NULL, &plan, status) ==
                 TESSERA_OK &&
             tessera_run_chunked_prefill_paged_decode(plan, &writing, NULL, 0, NULL, status) ==
                 TESSERA_OK &&
             are_near(out_data, DIM, mean_with_new),
         "planned chunked_prefill_paged_decode", status);
  tessera_plan_free(plan);
  page_length = 0;
  expect_refusal(tessera_chunked_prefill_paged_decode(&writing, NULL, NULL, status),
                 "seqlens_k: entry 0 is 0, cu_seqlens_q gives the sequence 1 row", status);
}

/* Keys and values as channels of one pool, of which the call writes the last. */
static void check_channels(tessera_status* status) {
  static float pool[PAGES * PAGE_SIZE * 2 * DIM];
  page_length = 3;
  for (int slot = 0; slot < PAGES * PAGE_SIZE; ++slot) {
    for (int d = 0; d < DIM; ++d) {
      pool[(2 * slot) * DIM + d] = 0.0f;
      pool[(2 * slot + 1) * DIM + d] = v_pages_data[slot * DIM + d];
    }
  }
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 kv = TENSOR(TESSERA_F32, pool, PAGES, PAGE_SIZE, 2, DIM),
                 table = TENSOR(TESSERA_I32, table_data, 1, 3),
                 lengths = TENSOR(TESSERA_I32, &page_length, 1),
                 offsets = TENSOR(TESSERA_I32, (void*)page_offsets, 2),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_ragged_page_attention_v2_args args = {.size = sizeof args,
                                                .q = &q,
                                                .kv_pages = &kv,
                                                .block_table = &table,
                                                .seqlens_k = &lengths,
                                                .cu_seqlens_q = &offsets,
                                                .out = &out};
  tessera_plan* plan = NULL;
  expect(tessera_ragged_page_attention_v2(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_with_new),
         "ragged_page_attention_v2", status);
  expect(
      tessera_plan_ragged_page_attention_v2(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_ragged_page_attention_v2(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
          are_near(out_data, DIM, mean_with_new),
      "planned ragged_page_attention_v2", status);
  tessera_plan_free(plan);
  float new_keys[DIM] = {0}, new_values[DIM];
  for (int d = 0; d < DIM; ++d) new_values[d] = 4.0f;
  tessera_tensor k_new = TENSOR(TESSERA_F32, new_keys, 1, 1, DIM),
                 v_new = TENSOR(TESSERA_F32, new_values, 1, 1, DIM);
  tessera_ragged_page_attention_v3_args writing = {.size = sizeof writing,
                                                   .q = &q,
                                                   .kv_pages = &kv,
                                                   .block_table = &table,
                                                   .seqlens_k = &lengths,
                                                   .cu_seqlens_q = &offsets,
                                                   .k_new = &k_new,
                                                   .v_new = &v_new,
                                                   .out = &out};
  tessera_ragged_page_attention_v3_options scaled = {
      .size = sizeof scaled, .given = TESSERA_RAGGED_PAGE_ATTENTION_V3_V_SCALE, .v_scale = 3.0};
  expect(tessera_ragged_page_attention_v3(&writing, &scaled, NULL, status) == TESSERA_OK &&
             is_near(out_data[0], 5.0) && is_near(pool[DIM], 4.0),
         "ragged_page_attention_v3", status);
  expect(
      tessera_plan_ragged_page_attention_v3(&writing, &scaled, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_ragged_page_attention_v3(plan, &writing, NULL, 0, NULL, status) ==
              TESSERA_OK &&
          is_near(out_data[DIM - 1], 5.0),
      "planned ragged_page_attention_v3", status);
  tessera_plan_free(plan);
}

/* Three keys in the middle of a batch entry: NaN lies before and behind them. */
static void check_ranges(tessera_status* status) {
  int32_t start = 1, end = 4;
  const float values[] = {NAN, 0.0f, 1.0f, 2.0f, NAN, NAN};
  for (int i = 0; i < PAGES * PAGE_SIZE * DIM; ++i) v_pages_data[i] = values[i / DIM];
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_pages_data, 1, PAGES * PAGE_SIZE, 1, DIM),
                 v = TENSOR(TESSERA_F32, v_pages_data, 1, PAGES * PAGE_SIZE, 1, DIM),
                 starts = TENSOR(TESSERA_I32, &start, 1), ends = TENSOR(TESSERA_I32, &end, 1),
                 out = TENSOR(TESSERA_F32, out_data, 1, 1, DIM);
  tessera_ragged_decode_attention_args args = {.size = sizeof args,
                                               .q = &q,
                                               .k = &k,
                                               .v = &v,
                                               .kv_start = &starts,
                                               .kv_end = &ends,
                                               .out = &out};
  expect(tessera_ragged_decode_attention(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, mean_of_three),
         "ragged_decode_attention", status);
  tessera_plan* plan = NULL;
  expect(tessera_plan_ragged_decode_attention(&args, NULL, NULL, &plan, status) == TESSERA_OK,
         "a plan for ragged_decode_attention", status);
  start = 3;
  expect(tessera_run_ragged_decode_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out_data, DIM, third_key),
         "planned ragged_decode_attention with another range", status);
  tessera_plan_free(plan);
}

/* A token of two keys goes to slot 0 of page 2 and slot 1 of page 0; then page 0 onto page 1. */
static void check_caches(tessera_status* status) {
  static float pool[PAGES * PAGE_SIZE * DIM], values[PAGES * PAGE_SIZE * DIM];
  float tokens[2 * DIM];
  int32_t table[] = {2, 0}, lengths[] = {1, 2}, source = 0, target = 1;
  for (int i = 0; i < 2 * DIM; ++i) tokens[i] = 1.0f + (float)(i / DIM);
  tessera_tensor fresh = TENSOR(TESSERA_F32, tokens, 2, 1, DIM),
                 k = TENSOR(TESSERA_F32, pool, PAGES, 1, PAGE_SIZE, DIM),
                 v = TENSOR(TESSERA_F32, values, PAGES, 1, PAGE_SIZE, DIM),
                 pages = TENSOR(TESSERA_I32, table, 2, 1), keys = TENSOR(TESSERA_I32, lengths, 2),
                 sources = TENSOR(TESSERA_I32, &source, 1),
                 targets = TENSOR(TESSERA_I32, &target, 1);
  tessera_kv_cache_append_args args = {.size = sizeof args,
                                       .k_new = &fresh,
                                       .v_new = &fresh,
                                       .k_pages = &k,
                                       .v_pages = &v,
                                       .block_table = &pages,
                                       .seqlens_k = &keys};
  tessera_plan* plan = NULL;
  expect(tessera_kv_cache_append(&args, NULL, NULL, status) == TESSERA_OK &&
             is_near(pool[2 * PAGE_SIZE * DIM], 1.0) && is_near(values[DIM], 2.0),
         "kv_cache_append", status);
  tokens[DIM] = 5.0f;
  expect(tessera_plan_kv_cache_append(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_kv_cache_append(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             is_near(pool[DIM], 5.0),
         "planned kv_cache_append", status);
  tessera_plan_free(plan);
  lengths[1] = 3;
  expect_refusal(tessera_kv_cache_append(&args, NULL, NULL, status),
                 "seqlens_k: entry 1 is 3, must be 0 to 2", status);
  tessera_kv_cache_copy_args copies = {.size = sizeof copies,
                                       .k_pages = &k,
                                       .v_pages = &v,
                                       .source_pages = &sources,
                                       .target_pages = &targets};
  expect(tessera_kv_cache_copy(&copies, NULL, NULL, status) == TESSERA_OK &&
             is_near(pool[(PAGE_SIZE + 1) * DIM], 5.0),
         "kv_cache_copy", status);
  pool[DIM] = 6.0f;
  expect(tessera_plan_kv_cache_copy(&copies, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_kv_cache_copy(plan, &copies, NULL, 0, NULL, status) == TESSERA_OK &&
             is_near(pool[(PAGE_SIZE + 1) * DIM], 6.0),
         "planned kv_cache_copy", status);
  tessera_plan_free(plan);
  target = 0;
  expect_refusal(tessera_kv_cache_copy(&copies, NULL, NULL, status),
                 "target_pages: entry 0 is 0, as is entry 0 of source_pages", status);
}

int check_pages_and_caches(void) {
  tessera_status status = {.size = sizeof status};
  for (int i = 0; i < DIM; ++i) q_data[i] = sinf((float)i);
  check_pages(&status);
  check_slots(&status);
  check_codes(&status);
  check_batch(&status);
  check_channels(&status);
  check_ranges(&status);
  check_caches(&status);
  return faults;
}
