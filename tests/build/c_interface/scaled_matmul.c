/* Products of elements of 8 bits with scales from C: called, planned, run, refused. */
#include <string.h>

#include "operations.h"
#include "support.h"

enum { ROWS = 2, DEPTH = 2, COLUMNS = 2 };

static int8_t lhs[ROWS * DEPTH] = {1, 2, 3, 4};
static int8_t rhs[COLUMNS * DEPTH] = {1, 1, 2, -1}; /* a column of the product in a row */
static int32_t sizes[1] = {ROWS};
static float lhs_scale[ROWS] = {2, 1};
static float rhs_scale[COLUMNS] = {1, 0.5f};
static float out[ROWS * COLUMNS];

/* Whether the products times both scales were written; they are cleared for the next call. */
static int are_right(void) {
  static const float products[ROWS * COLUMNS] = {6, 0, 7, 1};
  const int same = memcmp(out, products, sizeof out) == 0;
  memset(out, 0, sizeof out);
  return same;
}

static void check_one_matrix(const tessera_tensor* of_lhs, const tessera_tensor* scale_of_lhs,
                             const tessera_tensor* of_out, tessera_status* status) {
  const tessera_tensor of_rhs = TENSOR(TESSERA_I8, rhs, COLUMNS, DEPTH),
                       scale_of_rhs = TENSOR(TESSERA_F32, rhs_scale, COLUMNS, 1);
  const tessera_scaled_grouped_matmul_args args = {.size = sizeof args,
                                                   .lhs = of_lhs,
                                                   .rhs = &of_rhs,
                                                   .lhs_scale = scale_of_lhs,
                                                   .rhs_scale = &scale_of_rhs,
                                                   .out = of_out};
  const tessera_scaled_grouped_matmul_options options = {.size = sizeof options,
                                                         .scales = TESSERA_SCALES_ROWS};
  tessera_plan* plan = NULL;
  expect(tessera_scaled_matmul(&args, &options, NULL, status) == TESSERA_OK && are_right(),
         "scaled_matmul", status);
  expect(tessera_plan_scaled_matmul(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_scaled_matmul(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_right(),
         "planned scaled_matmul", status);
  tessera_plan_free(plan);
}

int check_scaled_matmuls(void) {
  tessera_status of_calls = {.size = sizeof of_calls};
  tessera_status* const status = &of_calls;
  const tessera_tensor of_lhs = TENSOR(TESSERA_I8, lhs, ROWS, DEPTH),
                       of_rhs = TENSOR(TESSERA_I8, rhs, 1, COLUMNS, DEPTH),
                       of_sizes = TENSOR(TESSERA_I32, sizes, 1),
                       scale_of_lhs = TENSOR(TESSERA_F32, lhs_scale, ROWS, 1),
                       of_out = TENSOR(TESSERA_F32, out, ROWS, COLUMNS);
  tessera_tensor scale_of_rhs = TENSOR(TESSERA_F32, rhs_scale, 1, COLUMNS, 1);
  const tessera_scaled_grouped_matmul_args args = {.size = sizeof args,
                                                   .lhs = &of_lhs,
                                                   .rhs = &of_rhs,
                                                   .group_sizes = &of_sizes,
                                                   .lhs_scale = &scale_of_lhs,
                                                   .rhs_scale = &scale_of_rhs,
                                                   .out = &of_out};
  const tessera_scaled_grouped_matmul_options options = {.size = sizeof options,
                                                         .scales = TESSERA_SCALES_ROWS};
  tessera_plan* plan = NULL;
  expect(tessera_scaled_grouped_matmul(&args, &options, NULL, status) == TESSERA_OK && are_right(),
         "scaled_grouped_matmul", status);
  expect(tessera_plan_scaled_grouped_matmul(&args, &options, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_scaled_grouped_matmul(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_right(),
         "planned scaled_grouped_matmul", status);
  tessera_plan_free(plan);
  check_one_matrix(&of_lhs, &scale_of_lhs, &of_out, status);
  scale_of_rhs.extent[1] = 3;
  expect_refusal(tessera_scaled_grouped_matmul(&args, &options, NULL, status),
                 "rhs_scale: ", status);
  return faults;
}
