/* What every operation computes and refuses through its inline functions, called and planned. */
#include "operations.h"

#include "support.h"

enum { ROWS = 3, KEYS = 8, DIM = 4, SCORES = ROWS * KEYS };

static float q_data[ROWS * DIM], k_data[KEYS * DIM], v_data[KEYS * DIM], out_data[ROWS * DIM],
    weights_data[SCORES], lse_data[ROWS], max_data[ROWS];

/* Each key has its number in v: what comes out says which keys were seen. */
static void fill(void) {
  for (int i = 0; i < ROWS * DIM; ++i) q_data[i] = sinf((float)i);
  for (int i = 0; i < KEYS * DIM; ++i) {
    k_data[i] = cosf((float)i);
    v_data[i] = (float)(i / DIM);
  }
}

static double last_keys(int i) {
  return i / DIM + KEYS - ROWS;
}
static double first_keys(int i) {
  return i / DIM;
}
static double every_key(int i) {
  (void)i;
  return (KEYS - 1) / 2.0;
}

typedef int32_t (*attention_function)(const tessera_flash_attention_args*,
                                      const tessera_flash_attention_options*,
                                      const tessera_context*, tessera_status*);

/* Zeros that count, choices and flags. */
static void check_options(attention_function call, const tessera_flash_attention_args* args,
                          tessera_status* status) {
  tessera_flash_attention_options options = {
      .size = sizeof options,
      .given = TESSERA_FLASH_ATTENTION_WINDOW_LEFT | TESSERA_FLASH_ATTENTION_WINDOW_RIGHT};
  expect(
      call(args, &options, NULL, status) == TESSERA_OK && are_near(out_data, ROWS * DIM, last_keys),
      "a window of one key", status);
  options.causal_alignment = TESSERA_CAUSAL_ALIGNMENT_TOP_LEFT;
  expect(call(args, &options, NULL, status) == TESSERA_OK &&
             are_near(out_data, ROWS * DIM, first_keys),
         "a window of one key from the top", status);
  options.causal_alignment = 2;
  expect_refusal(call(args, &options, NULL, status), "causal_alignment: is 2, must be 0 to 1",
                 status);
  options.causal_alignment = 0;
  options.given = TESSERA_FLASH_ATTENTION_SOFTMAX_SCALE;
  expect(
      call(args, &options, NULL, status) == TESSERA_OK && are_near(out_data, ROWS * DIM, every_key),
      "a scale of zero, and no window", status);
  options.given = 512;
  expect_refusal(call(args, &options, NULL, status), "given is 512, known bits are 511", status);
  options.given = 0;
  options.causal = -1;
  expect_refusal(call(args, &options, NULL, status), "causal: is -1, must be 0 to 1", status);
  options.causal = 0;
  options.window_left = -1;
  expect_refusal(call(args, &options, NULL, status), "window_left: is -1, must be at least 0",
                 status);
}

/* Not divided by the denominator: every value 1 gives the denominator. */
static void check_denominator(attention_function call, tessera_flash_attention_args args,
                              tessera_status* status) {
  tessera_tensor row_max = TENSOR(TESSERA_F32, max_data, 1, 1, ROWS);
  tessera_tensor lse = TENSOR(TESSERA_F32, lse_data, 1, 1, ROWS);
  float ones[KEYS * DIM];
  tessera_tensor v = *args.v;
  v.data = ones;
  for (int i = 0; i < KEYS * DIM; ++i) ones[i] = 1.0f;
  args.v = &v;
  args.lse = &lse;
  tessera_flash_attention_options options = {.size = sizeof options};
  expect(call(&args, &options, NULL, status) == TESSERA_OK && is_near(out_data[0], 1.0),
         "a normalized output", status);
  options.given = TESSERA_FLASH_ATTENTION_NORMALIZE;
  args.row_max = &row_max;
  expect(call(&args, &options, NULL, status) == TESSERA_OK && out_data[0] > 1.01f &&
             is_near(lse_data[0], (double)max_data[0] + log((double)out_data[0])),
         "an output that is not normalized", status);
  options.normalize = 1;
  expect_refusal(call(&args, &options, NULL, status), "row_max: is given, normalize is true",
                 status);
}

/* Half of the weights, others with another seed. */
static void check_dropout(const tessera_flash_attention_args* args, tessera_status* status) {
  uint8_t kept[2][SCORES] = {{0}};
  int differing = 0, count = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    tessera_tensor mask = TENSOR(TESSERA_U8, kept[seed], 1, 1, ROWS, KEYS);
    tessera_flash_attention_args with_mask = *args;
    with_mask.dropout_mask = &mask;
    const tessera_flash_attention_options options = {
        .size = sizeof options, .dropout_probability = 0.5, .dropout_seed = seed};
    expect(tessera_flash_attention(&with_mask, &options, NULL, status) == TESSERA_OK, "dropout",
           status);
  }
  for (int i = 0; i < SCORES; ++i) {
    differing += kept[0][i] != kept[1][i];
    count += kept[0][i];
  }
  expect(differing > 0 && count > 0 && count < SCORES, "masks of dropout", status);
}

static void check_attention(tessera_status* status) {
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, ROWS, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_data, 1, KEYS, 1, DIM),
                 v = TENSOR(TESSERA_F32, v_data, 1, KEYS, 1, DIM),
                 out = TENSOR(TESSERA_F32, out_data, 1, ROWS, 1, DIM),
                 weights = TENSOR(TESSERA_F32, weights_data, 1, 1, ROWS, KEYS);
  tessera_flash_attention_args args = {.size = sizeof args, .q = &q, .k = &k, .v = &v, .out = &out};
  fill();
  check_options(tessera_flash_attention, &args, status);
  check_options(tessera_attention, &args, status);
  check_options(tessera_scaled_dot_product_attention, &args, status);
  check_denominator(tessera_flash_attention, args, status);
  check_denominator(tessera_attention, args, status);
  check_dropout(&args, status);
  const tessera_flash_attention_options capped = {.size = sizeof capped, .logits_soft_cap = 2.0};
  expect_refusal(tessera_scaled_dot_product_attention(&args, &capped, NULL, status),
                 "logits_soft_cap: is 2, scaled_dot_product_attention has no such option", status);
  tessera_plan* plan = NULL;
  expect(
      tessera_plan_scaled_dot_product_attention(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_scaled_dot_product_attention(plan, &args, NULL, 0, NULL, status) ==
              TESSERA_OK,
      "planned scaled_dot_product_attention", status);
  tessera_plan_free(plan);
  args.weights = &weights;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status), "weights", status);
  expect(tessera_plan_attention(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK,
         "planned attention", status);
  for (int row = 0; row < ROWS; ++row) {
    double sum = 0, value = 0;
    for (int key = 0; key < KEYS; ++key) {
      sum += (double)weights_data[row * KEYS + key];
      value += (double)weights_data[row * KEYS + key] * key;
    }
    expect(is_near((float)sum, 1.0) && is_near(out_data[row * DIM], value), "weights", status);
  }
  tessera_plan_free(plan);
}

enum { TOKENS = 6, COLUMNS = 3 };

static float x_data[TOKENS * COLUMNS], means[2 * COLUMNS];

static double column(int i) {
  return i % COLUMNS;
}
static double parts_of_six(int i) {
  return i % COLUMNS / 6.0;
}
static double parts_of_chunks(int i) {
  return i % COLUMNS / (i < 4 * COLUMNS ? 4.0 : 2.0);
}

/* Tokens that all hold the number of their column, over the sequence and over chunks of 4 and 2. */
static void check_pooling(tessera_status* status) {
  for (int i = 0; i < TOKENS * COLUMNS; ++i) x_data[i] = (float)(i % COLUMNS);
  tessera_tensor x = TENSOR(TESSERA_F32, x_data, 1, TOKENS, COLUMNS),
                 out = TENSOR(TESSERA_F32, means, 1, COLUMNS);
  tessera_mean_pooling_args args = {.size = sizeof args, .x = &x, .out = &out};
  x.flags |= TESSERA_READ_ONLY;
  expect(tessera_mean_pooling(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(means, COLUMNS, column),
         "mean_pooling", status);
  tessera_plan* plan = NULL;
  expect(tessera_plan_mean_pooling(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_mean_pooling(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(means, COLUMNS, column),
         "planned mean_pooling", status);
  tessera_plan_free(plan);
  const tessera_mean_pooling_options options = {.size = sizeof options, .chunk_size = 4};
  expect_refusal(tessera_mean_pooling(&args, &options, NULL, status),
                 "chunk_size: is 4, mean_pooling has no such option", status);
  x = TENSOR(TESSERA_F32, x_data, 1, TOKENS, 1, COLUMNS);
  out = TENSOR(TESSERA_F32, means, 1, 2, 1, COLUMNS);
  expect(tessera_mean_pooling_chunks(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(means, 2 * COLUMNS, column),
         "mean_pooling_chunks", status);
  expect(tessera_plan_mean_pooling_chunks(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_mean_pooling_chunks(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(means, 2 * COLUMNS, column),
         "planned mean_pooling_chunks", status);
  tessera_plan_free(plan);
  const tessera_mean_pooling_options zero = {.size = sizeof zero,
                                             .given = TESSERA_MEAN_POOLING_CHUNK_SIZE};
  expect_refusal(tessera_mean_pooling_chunks(&args, &zero, NULL, status),
                 "chunk_size: is 0, must be at least 1", status);
  const tessera_mean_pooling_options unset = {.size = sizeof unset}; /* chunks of 32 */
  expect_refusal(tessera_mean_pooling_chunks(&args, &unset, NULL, status),
                 "out: number of chunks is 2, x has 1", status);
}

/* The gradients of means whose columns hold their numbers. */
static void check_pooling_backward(tessera_status* status) {
  for (int i = 0; i < 2 * COLUMNS; ++i) means[i] = (float)(i % COLUMNS);
  tessera_tensor d_x = TENSOR(TESSERA_F32, x_data, 1, TOKENS, COLUMNS),
                 d_out = TENSOR(TESSERA_F32, means, 1, COLUMNS);
  const tessera_mean_pooling_args args = {.size = sizeof args, .d_out = &d_out, .d_x = &d_x};
  expect(tessera_mean_pooling_backward(&args, NULL, NULL, status) == TESSERA_OK &&
             are_near(x_data, TOKENS * COLUMNS, parts_of_six),
         "mean_pooling_backward", status);
  tessera_plan* plan = NULL;
  expect(tessera_plan_mean_pooling_backward(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_mean_pooling_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(x_data, TOKENS * COLUMNS, parts_of_six),
         "planned mean_pooling_backward", status);
  tessera_plan_free(plan);
  const tessera_mean_pooling_options options = {.size = sizeof options, .chunk_size = 4};
  d_x = TENSOR(TESSERA_F32, x_data, 1, TOKENS, 1, COLUMNS);
  d_out = TENSOR(TESSERA_F32, means, 1, 2, 1, COLUMNS);
  expect(tessera_mean_pooling_chunks_backward(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(x_data, TOKENS * COLUMNS, parts_of_chunks),
         "mean_pooling_chunks_backward", status);
  expect(tessera_plan_mean_pooling_chunks_backward(&args, &options, NULL, &plan, status) ==
                 TESSERA_OK &&
             tessera_run_mean_pooling_chunks_backward(plan, &args, NULL, 0, NULL, status) ==
                 TESSERA_OK &&
             are_near(x_data, TOKENS * COLUMNS, parts_of_chunks),
         "planned mean_pooling_chunks_backward", status);
  tessera_plan_free(plan);
}

static float d_out_data[ROWS * DIM], d_q_data[ROWS * DIM], d_k_data[KEYS * DIM],
    d_v_data[KEYS * DIM];

/* The weights of a row are 1 together: of gradients that are all 1, d_v has a row's share of each.
 */
static void expect_gradients(const char* what, tessera_status* status) {
  double sum = 0.0;
  for (int i = 0; i < KEYS * DIM; ++i) sum += d_v_data[i];
  expect(is_near((float)sum, (double)ROWS * DIM), what, status);
  for (int i = 0; i < KEYS * DIM; ++i) d_v_data[i] = -1.0f;
}

static void check_attention_backward(tessera_status* status) {
  fill();
  for (int i = 0; i < ROWS * DIM; ++i) d_out_data[i] = 1.0f;
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, ROWS, 1, DIM),
                 k = TENSOR(TESSERA_F32, k_data, 1, KEYS, 1, DIM),
                 v = TENSOR(TESSERA_F32, v_data, 1, KEYS, 1, DIM),
                 out = TENSOR(TESSERA_F32, out_data, 1, ROWS, 1, DIM),
                 lse = TENSOR(TESSERA_F32, lse_data, 1, 1, ROWS),
                 d_out = TENSOR(TESSERA_F32, d_out_data, 1, ROWS, 1, DIM),
                 d_q = TENSOR(TESSERA_F32, d_q_data, 1, ROWS, 1, DIM),
                 d_k = TENSOR(TESSERA_F32, d_k_data, 1, KEYS, 1, DIM),
                 d_v = TENSOR(TESSERA_F32, d_v_data, 1, KEYS, 1, DIM);
  tessera_flash_attention_args forward = {
      .size = sizeof forward, .q = &q, .k = &k, .v = &v, .out = &out, .lse = &lse};
  expect(tessera_flash_attention(&forward, NULL, NULL, status) == TESSERA_OK, "forward", status);
  tessera_flash_attention_backward_args args = {.size = sizeof args,
                                                .q = &q,
                                                .k = &k,
                                                .v = &v,
                                                .out = &out,
                                                .lse = &lse,
                                                .d_out = &d_out,
                                                .d_q = &d_q,
                                                .d_k = &d_k,
                                                .d_v = &d_v};
  expect(tessera_flash_attention_backward(&args, NULL, NULL, status) == TESSERA_OK,
         "flash_attention_backward", status);
  expect_gradients("d_v of flash_attention_backward", status);
  expect(tessera_attention_backward(&args, NULL, NULL, status) == TESSERA_OK, "attention_backward",
         status);
  expect_gradients("d_v of attention_backward", status);
  expect(tessera_scaled_dot_product_attention_backward(&args, NULL, NULL, status) == TESSERA_OK,
         "scaled_dot_product_attention_backward", status);
  expect_gradients("d_v of scaled_dot_product_attention_backward", status);
  tessera_plan* plan = NULL;
  expect(tessera_plan_attention_backward(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_attention_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK,
         "planned attention_backward", status);
  expect_gradients("d_v of a planned attention_backward", status);
  tessera_plan_free(plan);
  expect(tessera_plan_scaled_dot_product_attention_backward(&args, NULL, NULL, &plan, status) ==
                 TESSERA_OK &&
             tessera_run_scaled_dot_product_attention_backward(plan, &args, NULL, 0, NULL,
                                                               status) == TESSERA_OK,
         "planned scaled_dot_product_attention_backward", status);
  expect_gradients("d_v of a planned scaled_dot_product_attention_backward", status);
  tessera_plan_free(plan);
  args.lse = NULL;
  expect_refusal(tessera_flash_attention_backward(&args, NULL, NULL, status), "lse: is absent",
                 status);
}

int check_operations(void) {
  tessera_status status = {.size = sizeof status};
  check_attention(&status);
  check_pooling(&status);
  check_pooling_backward(&status);
  check_attention_backward(&status);
  return faults;
}
