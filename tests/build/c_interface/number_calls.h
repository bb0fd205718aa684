/* Calls whose tensors have one number each: called, planned, run, refused. */
#include <math.h>
#include <string.h>

#include "support.h"

enum { MOST = 24 };

static float numbers[MOST];
static tessera_tensor tensors[MOST];
static int written[MOST];
static const float untouched = 7.0f;

static inline const tessera_tensor* number_at(int at, int rank, int is_output) {
  tessera_tensor tensor = TENSOR(TESSERA_F32, &numbers[at], 1);
  tensor.rank = rank;
  for (int axis = 0; axis < rank; ++axis) tensor.extent[axis] = 1;
  tensors[at] = tensor;
  written[at] = is_output;
  numbers[at] = is_output ? untouched : 0.5f;
  return &tensors[at];
}
static inline const tessera_tensor* input(int at, int rank) {
  return number_at(at, rank, 0);
}
static inline const tessera_tensor* output(int at, int rank) {
  return number_at(at, rank, 1);
}

/* Whether every output has a number; `first` gets them, or they are equal to it. */
static inline int outputs_are(float* first, int is_first) {
  int right = 1;
  for (int at = 0; at < MOST; ++at) {
    if (!written[at]) continue;
    if (is_first) first[at] = numbers[at];
    right = right && isfinite(numbers[at]) && numbers[at] != untouched && numbers[at] == first[at];
    numbers[at] = untouched;
  }
  return right;
}

/* A call, and a planned run to the same numbers; an extent of -1 is refused with its number. */
#define CHECK(name, call, plan_of, run)                                                            \
  do {                                                                                             \
    float first[MOST];                                                                             \
    tessera_plan* plan = NULL;                                                                     \
    expect(call(&args, NULL, NULL, status) == TESSERA_OK && outputs_are(first, 1), #name, status); \
    expect(plan_of(&args, NULL, NULL, &plan, status) == TESSERA_OK &&                              \
               run(plan, &args, NULL, 0, NULL, status) == TESSERA_OK && outputs_are(first, 0),     \
           "planned " #name, status);                                                              \
    tessera_plan_free(plan);                                                                       \
    tensors[0].extent[0] = -1;                                                                     \
    expect(call(&args, NULL, NULL, status) != TESSERA_OK && strstr(status->message, "-1"),         \
           "refused " #name, status);                                                              \
    memset(written, 0, sizeof written);                                                            \
  } while (0)
