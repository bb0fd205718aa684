/* Losses from C, of one token and two classes whose logits are equal: called, planned, run,
 * refused. */
#include <math.h>
#include <string.h>

#include "operations.h"
#include "support.h"

static float zeros[2] = {0.0f, 0.0f};
static float ones[2] = {1.0f, 1.0f};
static int32_t target[1] = {0};
static float results[4];
static const float untouched = 7.0f;
static float sum_of_zeros[2] = {0.0f, 2.0f};

/* The first results are what they should be; they are overwritten. */
static int are(int count, const double* wanted) {
  int right = 1;
  for (int i = 0; i < count; ++i) right = right && is_near(results[i], wanted[i]);
  for (int i = 0; i < 4; ++i) results[i] = untouched;
  return right;
}
#define ARE(...) \
  are((int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

/* A call and a planned run give the same; a weight of no token is refused. */
#define CHECK(name, ...)                                                                       \
  do {                                                                                         \
    tessera_plan* plan = NULL;                                                                 \
    expect(tessera_##name(&args, NULL, NULL, status) == TESSERA_OK && ARE(__VA_ARGS__), #name, \
           status);                                                                            \
    expect(tessera_plan_##name(&args, NULL, NULL, &plan, status) == TESSERA_OK &&              \
               tessera_run_##name(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&         \
               ARE(__VA_ARGS__),                                                               \
           "planned " #name, status);                                                          \
    tessera_plan_free(plan);                                                                   \
    weight.extent[0] = 2;                                                                      \
    expect_refusal(tessera_##name(&args, NULL, NULL, status), "weights: length is 2", status); \
    weight.extent[0] = 1;                                                                      \
  } while (0)

int check_losses(void) {
  tessera_status of_calls = {.size = sizeof of_calls};
  tessera_status* const status = &of_calls;
  const tessera_tensor logits = TENSOR(TESSERA_F32, zeros, 1, 2);
  const tessera_tensor targets = TENSOR(TESSERA_I32, target, 1);
  const tessera_tensor hidden = TENSOR(TESSERA_F32, ones, 1, 1);
  const tessera_tensor upstream = TENSOR(TESSERA_F32, ones, 1);
  const tessera_tensor number = TENSOR(TESSERA_F32, results, 1);
  const tessera_tensor row = TENSOR(TESSERA_F32, results, 1, 2);
  const tessera_tensor d_hidden = TENSOR(TESSERA_F32, results + 2, 1, 1);
  const tessera_tensor sums = TENSOR(TESSERA_F32, sum_of_zeros, 1, 2);
  tessera_tensor weight = TENSOR(TESSERA_F32, ones + 1, 1);
  const double ln_2 = log(2.0);
  {
    tessera_fused_cross_entropy_args args = {.size = sizeof args,
                                             .logits = &logits,
                                             .targets = &targets,
                                             .weights = &weight,
                                             .loss = &number};
    CHECK(fused_cross_entropy, ln_2);
    args.loss = NULL;
    args.d_loss = &upstream;
    args.d_logits = &row;
    CHECK(fused_cross_entropy_backward, -0.5, 0.5);
  }
  {
    tessera_fused_kl_divergence_args args = {.size = sizeof args,
                                             .student_logits = &logits,
                                             .teacher_logits = &logits,
                                             .weights = &weight,
                                             .loss = &number};
    CHECK(fused_kl_divergence, 0.0);
    args.loss = NULL;
    args.d_loss = &upstream;
    args.d_student_logits = &row;
    CHECK(fused_kl_divergence_backward, 0.0, 0.0);
  }
  {
    tessera_fused_linear_cross_entropy_args args = {.size = sizeof args,
                                                    .hidden = &hidden,
                                                    .lm_head_weight = &logits,
                                                    .targets = &targets,
                                                    .weights = &weight,
                                                    .loss = &number};
    CHECK(fused_linear_cross_entropy, ln_2);
  }
  {
    tessera_fused_linear_cross_entropy_backward_args args = {.size = sizeof args,
                                                             .hidden = &hidden,
                                                             .lm_head_weight = &logits,
                                                             .targets = &targets,
                                                             .weights = &weight,
                                                             .d_loss = &upstream,
                                                             .d_hidden = &d_hidden,
                                                             .d_lm_head_weight = &row};
    CHECK(fused_linear_cross_entropy_backward, -0.5, 0.5, 0.0);
    args.logit_sums = &sums;
    CHECK(fused_linear_cross_entropy_backward, -0.5, 0.5, 0.0);
  }
  return faults;
}
