/* A build with rows of mean pooling only: other operations are refused by name. */
#include "support.h"

int main(void) {
  float x_data[] = {1.0f, 3.0f, 5.0f, 7.0f}, mean[2];
  tessera_tensor x = TENSOR(TESSERA_F32, x_data, 1, 2, 2), out = TENSOR(TESSERA_F32, mean, 1, 2);
  const tessera_mean_pooling_args pooling = {.size = sizeof pooling, .x = &x, .out = &out};
  const tessera_flash_attention_args attention = {.size = sizeof attention};
  tessera_status status = {.size = sizeof status};
  tessera_plan* plan = NULL;
  expect(tessera_mean_pooling(&pooling, NULL, NULL, &status) == TESSERA_OK &&
             is_near(mean[0], 3.0) && is_near(mean[1], 5.0),
         "mean_pooling", &status);
  expect(tessera_attention(&attention, NULL, NULL, &status) == TESSERA_NO_ROW &&
             says(&status, "attention: this build has no rows of the family attention"),
         "a call without its family", &status);
  expect(tessera_plan_flash_attention(&attention, NULL, NULL, &plan, &status) == TESSERA_NO_ROW &&
             says(&status, "flash_attention: this build has no rows of the family attention") &&
             plan == NULL,
         "a plan without its family", &status);
  printf("a build of one family from C: %d faults\n", faults);
  return faults == 0 ? 0 : 1;
}
