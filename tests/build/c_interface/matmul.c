/* Matrix products from C: called, planned, run, refused. */
#include <string.h>

#include "operations.h"
#include "support.h"

enum { ROWS = 3, DEPTH = 2, COLUMNS = 2, GROUPS = 2 };

static float lhs[ROWS * DEPTH] = {1, 2, 3, 4, 5, 6};
static float rhs[GROUPS * DEPTH * COLUMNS] = {1, 0, 0, 1, 2, 1, 1, 2};
static int32_t sizes[GROUPS] = {1, 2};
static float out[ROWS * COLUMNS];
static float d_lhs[ROWS * DEPTH];

static tessera_tensor matrix_of(float* data, int32_t rows, int32_t columns) {
  tessera_tensor tensor = TENSOR(TESSERA_F32, data, rows, columns);
  return tensor;
}

/* Whether these numbers were written; they are cleared for the next call. */
static int are(float* numbers, const float* expected, size_t bytes) {
  const int same = memcmp(numbers, expected, bytes) == 0;
  memset(numbers, 0, bytes);
  return same;
}

/* Of one matrix for all rows. */
static void check_matmul(tessera_status* status) {
  static const float products[ROWS * COLUMNS] = {4, 5, 10, 11, 16, 17};
  tessera_tensor of_lhs = matrix_of(lhs, ROWS, DEPTH), of_out = matrix_of(out, ROWS, COLUMNS);
  tessera_tensor of_rhs = matrix_of(rhs + DEPTH * COLUMNS, DEPTH, COLUMNS);
  tessera_tensor of_d_lhs = matrix_of(d_lhs, ROWS, DEPTH);
  tessera_plan* plan = NULL;
  tessera_grouped_matmul_args args = {
      .size = sizeof args, .lhs = &of_lhs, .rhs = &of_rhs, .out = &of_out};
  expect(tessera_matmul(&args, NULL, NULL, status) == TESSERA_OK && are(out, products, sizeof out),
         "matmul", status);
  expect(tessera_plan_matmul(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_matmul(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are(out, products, sizeof out),
         "planned matmul", status);
  tessera_plan_free(plan);
  args.out = NULL;
  args.d_out = &of_lhs;
  args.d_lhs = &of_d_lhs;
  args.lhs = &of_out;
  plan = NULL;
  expect(tessera_matmul_backward(&args, NULL, NULL, status) == TESSERA_OK &&
             are(d_lhs, products, sizeof d_lhs),
         "matmul_backward", status);
  expect(tessera_plan_matmul_backward(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_matmul_backward(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are(d_lhs, products, sizeof d_lhs),
         "planned matmul_backward", status);
  tessera_plan_free(plan);
}

/* A result of whole numbers of 8 bits, divided by the scale of its row. */
static void check_codes(tessera_status* status) {
  static int8_t codes[ROWS * COLUMNS];
  static float code_scales[ROWS] = {1, 0.5f, 0.1f};
  /* 16 and 17 by 0.1 are beyond what 8 bits hold. */
  static const int8_t expected[ROWS * COLUMNS] = {4, 5, 20, 22, 127, 127};
  tessera_tensor of_lhs = matrix_of(lhs, ROWS, DEPTH);
  tessera_tensor of_rhs = matrix_of(rhs + DEPTH * COLUMNS, DEPTH, COLUMNS);
  tessera_tensor of_out = TENSOR(TESSERA_I8, codes, ROWS, COLUMNS);
  tessera_tensor of_scales = matrix_of(code_scales, ROWS, 1);
  tessera_grouped_matmul_args args = {.size = sizeof args,
                                      .lhs = &of_lhs,
                                      .rhs = &of_rhs,
                                      .out = &of_out,
                                      .out_code_scale = &of_scales};
  expect(tessera_matmul(&args, NULL, NULL, status) == TESSERA_OK &&
             memcmp(codes, expected, sizeof codes) == 0,
         "matmul to codes", status);
}

int check_matmuls(void) {
  static const float products[ROWS * COLUMNS] = {1, 2, 10, 11, 16, 17};
  static const float gradients[ROWS * DEPTH] = {1, 2, 10, 11, 16, 17};
  tessera_status status = {.size = sizeof status};
  tessera_tensor of_lhs = matrix_of(lhs, ROWS, DEPTH), of_out = matrix_of(out, ROWS, COLUMNS);
  tessera_tensor of_rhs = TENSOR(TESSERA_F32, rhs, GROUPS, DEPTH, COLUMNS);
  tessera_tensor of_sizes = TENSOR(TESSERA_I32, sizes, GROUPS);
  tessera_tensor of_d_lhs = matrix_of(d_lhs, ROWS, DEPTH);
  tessera_plan* plan = NULL;

  tessera_grouped_matmul_args args = {.size = sizeof args,
                                      .lhs = &of_lhs,
                                      .rhs = &of_rhs,
                                      .group_sizes = &of_sizes,
                                      .out = &of_out};
  expect(tessera_grouped_matmul(&args, NULL, NULL, &status) == TESSERA_OK &&
             are(out, products, sizeof out),
         "grouped_matmul", &status);
  expect(tessera_plan_grouped_matmul(&args, NULL, NULL, &plan, &status) == TESSERA_OK &&
             tessera_run_grouped_matmul(plan, &args, NULL, 0, NULL, &status) == TESSERA_OK &&
             are(out, products, sizeof out),
         "planned grouped_matmul", &status);
  tessera_plan_free(plan);

  /* The weights are symmetric: the same numbers come back as gradients. */
  args.out = NULL;
  args.d_out = &of_lhs;
  args.d_lhs = &of_d_lhs;
  args.lhs = &of_out;
  expect(tessera_grouped_matmul_backward(&args, NULL, NULL, &status) == TESSERA_OK &&
             are(d_lhs, gradients, sizeof d_lhs),
         "grouped_matmul_backward", &status);
  plan = NULL;
  expect(
      tessera_plan_grouped_matmul_backward(&args, NULL, NULL, &plan, &status) == TESSERA_OK &&
          tessera_run_grouped_matmul_backward(plan, &args, NULL, 0, NULL, &status) == TESSERA_OK &&
          are(d_lhs, gradients, sizeof d_lhs),
      "planned grouped_matmul_backward", &status);
  tessera_plan_free(plan);
  check_matmul(&status);
  check_codes(&status);
  of_sizes.extent[0] = -1;
  expect(tessera_grouped_matmul_backward(&args, NULL, NULL, &status) != TESSERA_OK &&
             strstr(status.message, "-1") != NULL,
         "refused grouped_matmul_backward", &status);
  return faults;
}
