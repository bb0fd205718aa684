/* Weights in few bits from C: packed, unpacked, multiplied, planned, refused. */
#include <string.h>

#include "operations.h"
#include "support.h"

enum { ROWS = 2, COLUMNS = 16, BATCH = 3 };

static float weights[ROWS * COLUMNS], decoded[ROWS * COLUMNS], scales[ROWS], zeros[ROWS];
static uint32_t words[ROWS * COLUMNS / 8];
static float x[BATCH * COLUMNS], out[BATCH * ROWS], d_x[BATCH * COLUMNS];
static float d_scales[ROWS], d_zeros[ROWS];

/* Row 0 is 0, 1, ..., row 1 twice that: affine codes of 4 bits hold them without an error. */
static double weight(int i) {
  return (double)(i / COLUMNS + 1) * (double)(i % COLUMNS);
}
/* x is m + 1 everywhere: sums of 0 to 15 are 120. */
static double product(int i) {
  return (i / ROWS + 1) * (i % ROWS + 1) * 120.0;
}
/* d_out is 1 everywhere. */
static double gradient_of_x(int i) {
  return 3.0 * (double)(i % COLUMNS);
}
/* Sums of the codes, and of the negative scales, with 1 + 2 + 3 rows of x. */
static double gradient_of_scale(int i) {
  return 6.0 * 120.0 + 0 * i;
}
static double gradient_of_zero(int i) {
  return -(i + 1) * 6.0 * COLUMNS;
}

static void check_packing(const tessera_tensor* w, const tessera_tensor* codes,
                          const tessera_tensor* scale, const tessera_tensor* zero,
                          tessera_status* status) {
  tessera_quantize_options options = {.size = sizeof options, .group_size = COLUMNS};
  tessera_quantize_args args = {
      .size = sizeof args, .w = w, .w_q = codes, .scales = scale, .zeros = zero};
  tessera_plan* plan = NULL;
  uint32_t first[ROWS * COLUMNS / 8];
  expect(tessera_quantize(&args, &options, NULL, status) == TESSERA_OK && scales[1] == 2.0f,
         "quantize", status);
  memcpy(first, words, sizeof words);
  memset(words, 0, sizeof words);
  expect(tessera_plan_quantize(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_quantize(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             memcmp(first, words, sizeof words) == 0,
         "planned quantize", status);
  tessera_plan_free(plan);
  memset(words, 0, sizeof words);
  expect(tessera_prepack_quantized_weights(&args, &options, NULL, status) == TESSERA_OK &&
             memcmp(first, words, sizeof words) == 0,
         "prepack_quantized_weights", status);
  memset(words, 0, sizeof words);
  expect(
      tessera_plan_prepack_quantized_weights(&args, &options, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_prepack_quantized_weights(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
          memcmp(first, words, sizeof words) == 0,
      "planned prepack_quantized_weights", status);
  tessera_plan_free(plan);
  options.bits = 9;
  expect_refusal(tessera_quantize(&args, &options, NULL, status), "bits: is 9, must be 1 to 8",
                 status);
}

static void check_unpacking(const tessera_tensor* codes, const tessera_tensor* scale,
                            const tessera_tensor* zero, tessera_status* status) {
  tessera_tensor w = TENSOR(TESSERA_F32, decoded, ROWS, COLUMNS);
  tessera_dequantize_options options = {.size = sizeof options, .group_size = COLUMNS};
  tessera_dequantize_args args = {
      .size = sizeof args, .w = &w, .w_q = codes, .scales = scale, .zeros = zero};
  tessera_plan* plan = NULL;
  expect(tessera_dequantize(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(decoded, ROWS * COLUMNS, weight),
         "dequantize", status);
  expect(tessera_plan_dequantize(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_dequantize(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(decoded, ROWS * COLUMNS, weight),
         "planned dequantize", status);
  tessera_plan_free(plan);
  args.zeros = NULL;
  expect_refusal(tessera_dequantize(&args, &options, NULL, status),
                 "zeros: is absent, affine weights have it", status);
}

/* Words of an output below each other; decoded weights lie as they did. */
static void check_k_major(const tessera_tensor* w, tessera_status* status) {
  static uint32_t columns[ROWS * COLUMNS / 8];
  tessera_tensor codes = TENSOR(TESSERA_U32, columns, COLUMNS / 8, ROWS);
  tessera_tensor scale = TENSOR(TESSERA_F32, scales, 1, ROWS);
  tessera_tensor zero = TENSOR(TESSERA_F32, zeros, 1, ROWS);
  tessera_tensor back = TENSOR(TESSERA_F32, decoded, ROWS, COLUMNS);
  tessera_quantize_options packing = {
      .size = sizeof packing, .group_size = COLUMNS, .axis = TESSERA_AXIS_K_MAJOR};
  tessera_dequantize_options options = {
      .size = sizeof options, .group_size = COLUMNS, .axis = TESSERA_AXIS_K_MAJOR};
  tessera_quantize_args to = {
      .size = sizeof to, .w = w, .w_q = &codes, .scales = &scale, .zeros = &zero};
  tessera_dequantize_args from = {
      .size = sizeof from, .w = &back, .w_q = &codes, .scales = &scale, .zeros = &zero};
  memset(decoded, 0, sizeof decoded);
  expect(tessera_quantize(&to, &packing, NULL, status) == TESSERA_OK && columns[0] == words[0] &&
             columns[1] == words[2] && columns[2] == words[1] && columns[3] == words[3],
         "quantize to columns", status);
  expect(tessera_dequantize(&from, &options, NULL, status) == TESSERA_OK &&
             are_near(decoded, ROWS * COLUMNS, weight),
         "dequantize from columns", status);
}

static int are_gradients(void) {
  return are_near(d_x, BATCH * COLUMNS, gradient_of_x) &&
         are_near(d_scales, ROWS, gradient_of_scale) && are_near(d_zeros, ROWS, gradient_of_zero);
}

static void check_products(const tessera_tensor* codes, const tessera_tensor* scale,
                           const tessera_tensor* zero, tessera_status* status) {
  tessera_tensor of_x = TENSOR(TESSERA_F32, x, BATCH, COLUMNS);
  tessera_tensor of_out = TENSOR(TESSERA_F32, out, BATCH, ROWS);
  tessera_quantized_matmul_options options = {.size = sizeof options, .group_size = COLUMNS};
  tessera_quantized_matmul_args args = {.size = sizeof args,
                                        .x = &of_x,
                                        .w_q = codes,
                                        .scales = scale,
                                        .zeros = zero,
                                        .out = &of_out};
  tessera_plan* plan = NULL;
  expect(tessera_quantized_matmul(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out, BATCH * ROWS, product),
         "quantized_matmul", status);
  expect(tessera_plan_quantized_matmul(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_quantized_matmul(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_near(out, BATCH * ROWS, product),
         "planned quantized_matmul", status);
  tessera_plan_free(plan);
  for (int i = 0; i < BATCH * ROWS; ++i) out[i] = 1.0f;
  tessera_tensor of_d_x = TENSOR(TESSERA_F32, d_x, BATCH, COLUMNS);
  tessera_tensor of_d_scales = TENSOR(TESSERA_F32, d_scales, ROWS, 1);
  tessera_tensor of_d_zeros = TENSOR(TESSERA_F32, d_zeros, ROWS, 1);
  args.out = NULL;
  args.d_out = &of_out;
  args.d_x = &of_d_x;
  args.d_scales = &of_d_scales;
  args.d_zeros = &of_d_zeros;
  expect(tessera_quantized_matmul_backward(&args, &options, NULL, status) == TESSERA_OK &&
             are_gradients(),
         "quantized_matmul_backward", status);
  expect(
      tessera_plan_quantized_matmul_backward(&args, &options, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_quantized_matmul_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
          are_gradients(),
      "planned quantized_matmul_backward", status);
  tessera_plan_free(plan);
  of_x.extent[1] = COLUMNS - 1;
  expect_refusal(tessera_quantized_matmul_backward(&args, &options, NULL, status),
                 "x: inputs is 15, not a multiple of group_size, which is 16", status);
}

/* Each row of x times a matrix of its own that has one output: 120 and 2 * 240. */
static double product_of_expert(int i) {
  return (i + 1) * (i + 1) * 120.0;
}
/* d_out is 1 everywhere: row i gets the weights of matrix i. */
static double gradient_of_expert(int i) {
  return weight(i);
}
static void check_gradients_of_experts(tessera_quantized_matmul_args args,
                                       const tessera_quantized_matmul_options* options,
                                       tessera_status* status) {
  tessera_tensor of_d_out = TENSOR(TESSERA_F32, out, ROWS, 1);
  tessera_tensor of_d_x = TENSOR(TESSERA_F32, d_x, ROWS, COLUMNS);
  tessera_plan* plan = NULL;
  for (int i = 0; i < ROWS; ++i) out[i] = 1.0f;
  args.out = NULL;
  args.d_out = &of_d_out;
  args.d_x = &of_d_x;
  expect(tessera_quantized_grouped_matmul_backward(&args, options, NULL, status) == TESSERA_OK &&
             are_near(d_x, ROWS * COLUMNS, gradient_of_expert),
         "quantized_grouped_matmul_backward", status);
  memset(d_x, 0, sizeof d_x);
  expect(tessera_plan_quantized_grouped_matmul_backward(&args, options, NULL, &plan, status) ==
                 TESSERA_OK &&
             tessera_run_quantized_grouped_matmul_backward(plan, &args, NULL, 0, NULL, status) ==
                 TESSERA_OK &&
             are_near(d_x, ROWS * COLUMNS, gradient_of_expert),
         "planned quantized_grouped_matmul_backward", status);
  tessera_plan_free(plan);
}
static void check_experts(tessera_status* status) {
  static int32_t sizes[ROWS] = {1, 1};
  tessera_tensor of_x = TENSOR(TESSERA_F32, x, ROWS, COLUMNS);
  tessera_tensor codes = TENSOR(TESSERA_U32, words, ROWS, 1, COLUMNS / 8);
  tessera_tensor scale = TENSOR(TESSERA_F32, scales, ROWS, 1, 1);
  tessera_tensor zero = TENSOR(TESSERA_F32, zeros, ROWS, 1, 1);
  tessera_tensor of_out = TENSOR(TESSERA_F32, out, ROWS, 1);
  tessera_tensor of_sizes = TENSOR(TESSERA_I32, sizes, ROWS);
  tessera_quantized_matmul_options options = {.size = sizeof options, .group_size = COLUMNS};
  tessera_quantized_matmul_args args = {.size = sizeof args,
                                        .x = &of_x,
                                        .w_q = &codes,
                                        .scales = &scale,
                                        .zeros = &zero,
                                        .out = &of_out,
                                        .group_sizes = &of_sizes};
  tessera_plan* plan = NULL;
  expect(tessera_quantized_grouped_matmul(&args, &options, NULL, status) == TESSERA_OK &&
             are_near(out, ROWS, product_of_expert),
         "quantized_grouped_matmul", status);
  memset(out, 0, sizeof out);
  expect(
      tessera_plan_quantized_grouped_matmul(&args, &options, NULL, &plan, status) == TESSERA_OK &&
          tessera_run_quantized_grouped_matmul(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
          are_near(out, ROWS, product_of_expert),
      "planned quantized_grouped_matmul", status);
  tessera_plan_free(plan);
  check_gradients_of_experts(args, &options, status);
}

int check_weights(void) {
  tessera_status status = {.size = sizeof status};
  for (int i = 0; i < ROWS * COLUMNS; ++i) weights[i] = (float)weight(i);
  for (int i = 0; i < BATCH * COLUMNS; ++i) x[i] = (float)(i / COLUMNS + 1);
  tessera_tensor w = TENSOR(TESSERA_F32, weights, ROWS, COLUMNS);
  tessera_tensor codes = TENSOR(TESSERA_U32, words, ROWS, COLUMNS / 8);
  tessera_tensor scale = TENSOR(TESSERA_F32, scales, ROWS, 1);
  tessera_tensor zero = TENSOR(TESSERA_F32, zeros, ROWS, 1);
  check_packing(&w, &codes, &scale, &zero, &status);
  check_unpacking(&codes, &scale, &zero, &status);
  check_k_major(&w, &status);
  check_products(&codes, &scale, &zero, &status);
  check_experts(&status);
  return faults;
}
