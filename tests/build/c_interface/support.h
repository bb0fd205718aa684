/* What the programs of this folder share: faults, and tensors of floats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/interop/c.h>

static int faults = 0;

static inline void expect(int holds, const char* what, const tessera_status* status) {
  if (holds) return;
  ++faults;
  printf("%s: code %d, message '%s'\n", what, (int)status->code, status->message);
}

static inline int says(const tessera_status* status, const char* part) {
  return strstr(status->message, part) != NULL;
}

/* Refused as invalid, with these words. */
static inline void expect_refusal(int32_t code, const char* words, const tessera_status* status) {
  expect(code == TESSERA_INVALID_ARGUMENT && says(status, words), words, status);
}

/* A row-major tensor; extents end with a zero. */
static inline tessera_tensor tensor_of(int32_t dtype, void* data, const int64_t* extent) {
  tessera_tensor tensor = {
      .size = sizeof tensor, .dtype = dtype, .data = data, .flags = TESSERA_CONTIGUOUS};
  for (; extent[tensor.rank] != 0; ++tensor.rank) tensor.extent[tensor.rank] = extent[tensor.rank];
  return tensor;
}
#define TENSOR(dtype, data, ...) tensor_of(dtype, data, (const int64_t[]){__VA_ARGS__, 0})

static inline int is_near(float value, double wanted) {
  return fabs((double)value - wanted) <= 1e-4 * (1.0 + fabs(wanted));
}

/* `count` numbers are what `wanted` says; they are overwritten. */
static inline int are_near(float* values, int count, double (*wanted)(int)) {
  for (int i = 0; i < count; ++i) {
    if (!is_near(values[i], wanted(i))) return 0;
    values[i] = -1.0f;
  }
  return 1;
}
