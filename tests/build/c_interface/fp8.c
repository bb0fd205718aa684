/* Attention of tensors of 8 bits from C: a query of zeros takes the mean of two values, 1 and 2, of
 * half a unit each; called, planned, run, refused. */
#include <math.h>

#include "operations.h"
#include "support.h"

static uint8_t zeros[2] = {0, 0};
static uint8_t one_and_two[2] = {0x38, 0x40}; /* f8_e4m3 */
static float halves[2] = {0.5f, 0.5f};
static uint16_t out_bits;
static float lse_data;

/* Three quarters in bf16, and ln 2; they are overwritten. */
static int are_right(void) {
  const int right = out_bits == 0x3F40 && is_near(lse_data, log(2.0));
  out_bits = 0;
  lse_data = -1.0f;
  return right;
}

int check_fp8_attention(void) {
  tessera_status of_calls = {.size = sizeof of_calls};
  tessera_status* const status = &of_calls;
  const tessera_tensor q = TENSOR(TESSERA_F8_E4M3, zeros, 1, 1, 1, 1),
                       k = TENSOR(TESSERA_F8_E4M3, zeros, 1, 2, 1, 1),
                       v = TENSOR(TESSERA_F8_E4M3, one_and_two, 1, 2, 1, 1),
                       out = TENSOR(TESSERA_BF16, &out_bits, 1, 1, 1, 1),
                       lse = TENSOR(TESSERA_F32, &lse_data, 1, 1, 1);
  tessera_tensor v_scales = TENSOR(TESSERA_F32, halves, 1);
  const tessera_fp8_attention_args args = {.size = sizeof args,
                                           .q = &q,
                                           .k = &k,
                                           .v = &v,
                                           .v_scales = &v_scales,
                                           .out = &out,
                                           .lse = &lse};
  tessera_plan* plan = NULL;
  expect(tessera_fp8_attention(&args, NULL, NULL, status) == TESSERA_OK && are_right(),
         "fp8_attention", status);
  expect(tessera_plan_fp8_attention(&args, NULL, NULL, &plan, status) == TESSERA_OK &&
             tessera_run_fp8_attention(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             are_right(),
         "planned fp8_attention", status);
  tessera_plan_free(plan);
  v_scales.extent[0] = 2;
  expect_refusal(tessera_fp8_attention(&args, NULL, NULL, status), "v_scales: ", status);
  return faults;
}
