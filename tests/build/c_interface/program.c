/* The C interface as a C program uses it: calls, plans, refusals, versioned structs. Prints each
 * fault on a line and ends with status 1 if there are any. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/interop/c.h>

enum { ROWS = 5, KEYS = 70, HEADS = 4, KV_HEADS = 2, DIM = 40 };

static int faults = 0;

static void expect(int holds, const char* what, const tessera_status* status) {
  if (holds) return;
  ++faults;
  printf("%s: code %d, message '%s'\n", what, (int)status->code, status->message);
}

static int says(const tessera_status* status, const char* part) {
  return strstr(status->message, part) != NULL;
}

static tessera_tensor tensor(float* data, int64_t rows, int64_t heads) {
  tessera_tensor made = {.size = sizeof made,
                         .dtype = TESSERA_F32,
                         .data = data,
                         .extent = {1, rows, heads, DIM},
                         .rank = 4,
                         .flags = TESSERA_CONTIGUOUS};
  return made;
}

static float q_data[ROWS * HEADS * DIM], k_data[KEYS * KV_HEADS * DIM],
    v_data[KEYS * KV_HEADS * DIM], out_data[ROWS * HEADS * DIM], lse_data[HEADS * ROWS];

/* Each column of v holds its own number: that is what comes out, whatever the weights are. */
static void fill(void) {
  for (int i = 0; i < ROWS * HEADS * DIM; ++i) q_data[i] = sinf((float)i);
  for (int i = 0; i < KEYS * KV_HEADS * DIM; ++i) {
    k_data[i] = cosf((float)i);
    v_data[i] = (float)(i % DIM);
  }
}

static int is_right(void) {
  for (int i = 0; i < ROWS * HEADS * DIM; ++i) {
    const float wanted = (float)(i % DIM);
    if (!(fabsf(out_data[i] - wanted) <= 1e-4f * (1.0f + wanted))) return 0;
    out_data[i] = -1.0f;
  }
  return 1;
}

static void check_plan(const tessera_flash_attention_args* args,
                       const tessera_flash_attention_options* options, tessera_status* status) {
  tessera_plan* plan = NULL;
  expect(tessera_plan_flash_attention(args, options, NULL, &plan, status) == TESSERA_OK && plan,
         "plan", status);
  expect(strncmp(tessera_plan_row(plan), "attention.", 10) == 0, "row of the plan", status);
  expect(strlen(tessera_plan_tier(plan)) > 0 && strlen(tessera_plan_reason(plan)) > 0,
         "tier and reason of the plan", status);
  for (int run = 0; run < 3; ++run) {
    expect(
        tessera_run_flash_attention(plan, args, NULL, 0, NULL, status) == TESSERA_OK && is_right(),
        "planned run", status);
  }
  const size_t bytes = tessera_plan_workspace_bytes(plan);
  void* workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
  expect(tessera_run_flash_attention(plan, args, workspace, bytes, NULL, status) == TESSERA_OK &&
             is_right(),
         "planned run in the caller's memory", status);
  if (bytes > 0) {
    expect(tessera_run_flash_attention(plan, args, workspace, bytes - 1, NULL, status) ==
               TESSERA_WORKSPACE,
           "short workspace", status);
  }
  free(workspace);
  expect(
      tessera_run_flash_attention(NULL, args, NULL, 0, NULL, status) == TESSERA_INVALID_ARGUMENT &&
          says(status, "plan: is NULL"),
      "no plan", status);
  tessera_plan_free(plan);
  tessera_plan_free(NULL);
}

static void check_refusals(tessera_flash_attention_args args, tessera_status* status) {
  tessera_tensor narrow = *args.k;
  narrow.extent[3] = DIM - 1;
  args.k = &narrow;
  expect(tessera_flash_attention(&args, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "k: head_dim is 39, q has 40"),
         "head dims that differ", status);
  narrow.size = 0;
  expect(tessera_flash_attention(&args, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "k: size is 0"),
         "a struct without its size", status);
  narrow = *args.q;
  narrow.dtype = 77;
  expect(tessera_flash_attention(&args, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "k: dtype is 77, must be 1 to 9"),
         "an unknown dtype", status);
  narrow = *args.q;
  narrow.rank = 6;
  expect(tessera_flash_attention(&args, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "k: rank is 6, must be 1 to 5"),
         "a rank beyond the library's", status);
  narrow = *args.q;
  narrow.flags |= 64;
  expect(tessera_flash_attention(&args, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "k: flags"),
         "an unknown flag", status);
  expect(tessera_flash_attention(NULL, NULL, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "args: is NULL"),
         "no arguments", status);
}

static void check_context(const tessera_flash_attention_args* args, tessera_status* status) {
  tessera_context context = {
      .size = sizeof context, .threads = 1, .row = "attention.cpu_generic.f32.dany.every.1x1"};
  expect(tessera_flash_attention(args, NULL, &context, status) == TESSERA_UNKNOWN_ROW &&
             says(status, context.row),
         "a row that is not there", status);
  context.row = NULL;
  context.stream = &context;
  expect(tessera_flash_attention(args, NULL, &context, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "stream"),
         "a stream on the CPU", status);
  context.stream = NULL;
  context.flags = UINT64_C(1) << 63;
  expect(tessera_flash_attention(args, NULL, &context, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "context: flags"),
         "an unknown flag of the context", status);
}

/* A GPU that no machine has: what is asked of it is refused with its name, and nothing is run here
 * instead. */
static void check_devices(const tessera_flash_attention_args* args, tessera_status* status) {
  tessera_tensor q = *args->q, k = *args->k, v = *args->v, out = *args->out;
  tessera_flash_attention_args there = {
      .size = sizeof there, .q = &q, .k = &k, .v = &v, .out = &out};
  tessera_tensor* const all[] = {&q, &k, &v, &out};
  for (int i = 0; i < 4; ++i) {
    all[i]->device_kind = TESSERA_CUDA;
    all[i]->device_ordinal = 63;
  }
  tessera_plan* plan = NULL;
  expect(tessera_flash_attention(&there, NULL, NULL, status) == TESSERA_DEVICE &&
             says(status, "cuda:63"),
         "a call on a GPU that is not there", status);
  expect(tessera_plan_flash_attention(&there, NULL, NULL, &plan, status) == TESSERA_DEVICE &&
             says(status, "cuda:63") && plan == NULL,
         "a plan on a GPU that is not there", status);
  v.device_kind = TESSERA_CPU;
  v.device_ordinal = 0;
  expect(
      tessera_plan_flash_attention(&there, NULL, NULL, &plan, status) == TESSERA_INVALID_ARGUMENT &&
          says(status, "v: device is cpu:0, q has cuda:63"),
      "tensors on two devices", status);
}

/* A caller compiled against a later version: more fields, which count only if they are set. */
static void check_versions(const tessera_flash_attention_args* args, tessera_status* status) {
  struct {
    tessera_flash_attention_options known;
    int64_t later;
  } options = {.known = {.size = sizeof options, .causal = 1}};
  expect(tessera_flash_attention(args, &options.known, NULL, status) == TESSERA_OK && is_right(),
         "a later struct with nothing new in it", status);
  options.later = 1;
  expect(tessera_flash_attention(args, &options.known, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "older than its caller"),
         "a later struct with a field that is set", status);
  struct {
    uint32_t size;
    int32_t code;
    char message[12];
  } small = {.size = sizeof small};
  expect(tessera_flash_attention(NULL, NULL, NULL, (tessera_status*)&small) ==
                 TESSERA_INVALID_ARGUMENT &&
             strcmp(small.message, "args: is NU") == 0,
         "a shorter status", status);
}

/* Two chunks of tokens that all hold the number of their column. */
static void check_pooling(tessera_status* status) {
  enum { TOKENS = 6, COLUMNS = 3 };
  float x_data[TOKENS * COLUMNS], means[2 * COLUMNS];
  for (int i = 0; i < TOKENS * COLUMNS; ++i) x_data[i] = (float)(i % COLUMNS);
  tessera_tensor x = {.size = sizeof x,
                      .dtype = TESSERA_F32,
                      .data = x_data,
                      .extent = {1, TOKENS, 1, COLUMNS},
                      .rank = 4,
                      .flags = TESSERA_CONTIGUOUS | TESSERA_READ_ONLY};
  tessera_tensor out = x;
  out.data = means;
  out.extent[1] = 2;
  out.flags = TESSERA_CONTIGUOUS;
  const tessera_mean_pooling_args args = {.size = sizeof args, .x = &x, .out = &out};
  const tessera_mean_pooling_options options = {.size = sizeof options, .chunk_size = 4};
  expect(tessera_mean_pooling(TESSERA_MEAN_POOLING_CHUNKS, &args, &options, NULL, status) ==
                 TESSERA_OK &&
             fabsf(means[2] - 2.0f) < 1e-6f && fabsf(means[4] - 1.0f) < 1e-6f,
         "means of chunks", status);
  tessera_plan* plan = NULL;
  means[2] = 0.0f;
  expect(tessera_plan_mean_pooling(TESSERA_MEAN_POOLING_CHUNKS, &args, &options, NULL, &plan,
                                   status) == TESSERA_OK &&
             tessera_run_mean_pooling(plan, &args, NULL, 0, NULL, status) == TESSERA_OK &&
             fabsf(means[2] - 2.0f) < 1e-6f,
         "planned means of chunks", status);
  const tessera_flash_attention_args none = {.size = sizeof none};
  expect(
      tessera_run_flash_attention(plan, &none, NULL, 0, NULL, status) == TESSERA_INVALID_ARGUMENT &&
          says(status, "another operation"),
      "a plan of another operation", status);
  tessera_plan_free(plan);
  expect(tessera_mean_pooling(4, &args, &options, NULL, status) == TESSERA_INVALID_ARGUMENT &&
             says(status, "op: is 4"),
         "an unknown operation", status);
}

int main(void) {
  tessera_tensor q = tensor(q_data, ROWS, HEADS), k = tensor(k_data, KEYS, KV_HEADS),
                 v = tensor(v_data, KEYS, KV_HEADS), out = tensor(out_data, ROWS, HEADS);
  tessera_tensor lse = {.size = sizeof lse,
                        .dtype = TESSERA_F32,
                        .data = lse_data,
                        .extent = {1, HEADS, ROWS},
                        .rank = 3,
                        .flags = TESSERA_CONTIGUOUS};
  tessera_flash_attention_args args = {
      .size = sizeof args, .q = &q, .k = &k, .v = &v, .out = &out, .lse = &lse};
  tessera_flash_attention_options options = {
      .size = sizeof options, .causal = 1, .given = TESSERA_WINDOW_LEFT, .window_left = 20};
  tessera_status status = {.size = sizeof status};
  fill();
  expect(tessera_flash_attention(&args, &options, NULL, &status) == TESSERA_OK && is_right() &&
             isfinite(lse_data[0]) && status.message[0] == '\0',
         "call", &status);
  expect(tessera_flash_attention(&args, NULL, NULL, NULL) == TESSERA_OK && is_right(),
         "call without options and status", &status);
  check_plan(&args, &options, &status);
  check_refusals(args, &status);
  check_context(&args, &status);
  check_devices(&args, &status);
  check_versions(&args, &status);
  check_pooling(&status);
  expect(tessera_c_version() == TESSERA_C_VERSION, "version of the interface", &status);
  expect(strcmp(tessera_code_name(TESSERA_NO_ROW), "no_row") == 0 &&
             strcmp(tessera_code_name(12345), "unknown") == 0,
         "names of codes", &status);
  printf("tessera %s from C: %d faults\n", tessera_version(), faults);
  return faults == 0 ? 0 : 1;
}
