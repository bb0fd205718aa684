/* The C interface as a C program uses it: calls, plans, refusals, versioned structs; what the
 * operations compute is in operations.c. Prints each fault on a line and ends with status 1 if
 * there are any. */
#include "operations.h"
#include "support.h"

enum { ROWS = 5, KEYS = 70, HEADS = 4, KV_HEADS = 2, DIM = 40 };

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

static double column(int i) {
  return i % DIM;
}

static int is_right(void) {
  return are_near(out_data, ROWS * HEADS * DIM, column);
}

static void check_plan(const tessera_flash_attention_args* args,
                       const tessera_flash_attention_options* options, tessera_status* status) {
  tessera_plan* plan = NULL;
  expect(tessera_plan_flash_attention(args, options, NULL, &plan, status) == TESSERA_OK && plan,
         "plan", status);
  expect(strncmp(tessera_plan_row(plan), "attention.", 10) == 0, "row of the plan", status);
  expect(strlen(tessera_plan_tier(plan)) > 0 && strlen(tessera_plan_reason(plan)) > 0,
         "tier and reason of the plan", status);
  expect(tessera_plan_operation(plan) == TESSERA_OPERATION_FLASH_ATTENTION &&
             tessera_plan_operation(NULL) == 0,
         "operation of the plan", status);
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
  expect_refusal(tessera_run_flash_attention(NULL, args, NULL, 0, NULL, status), "plan: is NULL",
                 status);
  expect_refusal(tessera_run_flash_attention(plan, NULL, NULL, 0, NULL, status), "args: is NULL",
                 status);
  expect_refusal(tessera_plan_flash_attention(args, options, NULL, NULL, status), "plan: is NULL",
                 status);
  /* The structs of another operation, whose size is another. */
  const tessera_mean_pooling_args others = {.size = sizeof others, .x = args->q, .out = args->out};
  expect_refusal(tessera_run_mean_pooling(plan, &others, NULL, 0, NULL, status),
                 "args of flash_attention: size is 56, must be the sizeof of the struct, which is",
                 status);
  expect_refusal(tessera_call(TESSERA_OPERATION_MEAN_POOLING, args, NULL, NULL, status),
                 "args of mean_pooling: byte", status);
  uint64_t faults[40];
  enum { PLACES = sizeof faults / sizeof *faults };
  memset(faults, 1, sizeof faults);
  expect(tessera_plan_faults(plan, NULL, faults, PLACES, status) == TESSERA_OK && faults[0] == 0 &&
             faults[PLACES - 1] == 0,
         "faults on the CPU", status);
  expect_refusal(tessera_plan_faults(plan, NULL, faults, 1, status), "entries: count is 1", status);
  expect_refusal(tessera_plan_faults(NULL, NULL, faults, 1, status), "plan: is NULL", status);
  tessera_plan_free(plan);
  tessera_plan_free(NULL);
}

static void check_tensors(tessera_flash_attention_args args, tessera_status* status) {
  tessera_tensor narrow = *args.k;
  narrow.extent[3] = DIM - 1;
  args.k = &narrow;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status), "k: head_dim is 39, q has 40",
                 status);
  narrow.size = 0;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status), "k: size is 0", status);
  narrow = *args.q;
  narrow.dtype = 77;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status),
                 "k: dtype is 77, must be 1 to 13", status);
  narrow = *args.q;
  narrow.rank = 6;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status), "k: rank is 6, must be 1 to 5",
                 status);
  narrow = *args.q;
  narrow.device_kind = 2;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status),
                 "k: device_kind is 2, must be 0 to 1", status);
  narrow = *args.q;
  narrow.flags |= 64;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status), "k: flags is 66", status);
  args.reserved = 1;
  expect_refusal(tessera_flash_attention(&args, NULL, NULL, status),
                 "args of flash_attention: reserved is 1", status);
  expect_refusal(tessera_flash_attention(NULL, NULL, NULL, status), "args: is NULL", status);
}

static void check_context(const tessera_flash_attention_args* args, tessera_status* status) {
  tessera_context context = {
      .size = sizeof context, .threads = 1, .row = "attention.cpu_generic.f32.dany.every.1x1"};
  expect(tessera_flash_attention(args, NULL, &context, status) == TESSERA_UNKNOWN_ROW &&
             says(status, context.row),
         "a row that is not there", status);
  context.row = NULL;
  context.stream = &context;
  expect_refusal(tessera_flash_attention(args, NULL, &context, status), "stream", status);
  context.stream = NULL;
  context.flags = UINT64_C(1) << 63;
  expect_refusal(tessera_flash_attention(args, NULL, &context, status), "context: flags", status);
  context.flags = 0;
  context.workspace_bytes = 64;
  expect_refusal(tessera_flash_attention(args, NULL, &context, status),
                 "context: workspace is NULL, workspace_bytes is 64", status);
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
  expect_refusal(tessera_plan_flash_attention(&there, NULL, NULL, &plan, status),
                 "v: device is cpu:0, q has cuda:63", status);
}

/* A caller compiled against a later version: more fields, which count only if they are set. */
static void check_versions(const tessera_flash_attention_args* args, tessera_status* status) {
  struct {
    tessera_flash_attention_options known;
    int64_t later;
  } options = {.known = {.size = sizeof options, .causal = 1}};
  expect(tessera_flash_attention(args, &options.known, NULL, status) == TESSERA_OK && is_right(),
         "later options with nothing new in them", status);
  options.later = 1;
  expect_refusal(tessera_flash_attention(args, &options.known, NULL, status),
                 "options of flash_attention: byte 80 is set, this library knows 80 bytes of the "
                 "struct; it is older than its caller",
                 status);
  struct {
    tessera_flash_attention_args known;
    const tessera_tensor* later;
  } more = {.known = *args};
  more.known.size = sizeof more;
  expect(tessera_flash_attention(&more.known, NULL, NULL, status) == TESSERA_OK && is_right(),
         "later args with nothing new in them", status);
  more.later = args->q;
  expect_refusal(tessera_flash_attention(&more.known, NULL, NULL, status), "older than its caller",
                 status);
  options.known.size = sizeof(tessera_flash_attention_options) - sizeof(int64_t);
  expect_refusal(tessera_flash_attention(args, &options.known, NULL, status),
                 "options of flash_attention: size is 72, must be the sizeof of the struct, which "
                 "is 80",
                 status);
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

/* Numbers that programs have been compiled with. */
static void check_numbers(const tessera_flash_attention_args* args, tessera_status* status) {
  expect(TESSERA_OPERATION_FLASH_ATTENTION == 100 && TESSERA_OPERATION_ATTENTION == 101 &&
             TESSERA_OPERATION_SCALED_DOT_PRODUCT_ATTENTION == 102 &&
             TESSERA_OPERATION_MEAN_POOLING == 200 &&
             TESSERA_OPERATION_MEAN_POOLING_CHUNKS == 201 &&
             TESSERA_OPERATION_MEAN_POOLING_BACKWARD == 202 &&
             TESSERA_OPERATION_MEAN_POOLING_CHUNKS_BACKWARD == 203,
         "numbers of operations", status);
  expect_refusal(tessera_call(0, args, NULL, NULL, status), "operation: is 0", status);
  expect_refusal(tessera_call(-1, args, NULL, NULL, status), "operation: is -1", status);
  tessera_plan* plan = NULL;
  expect_refusal(tessera_plan_make(199, args, NULL, NULL, &plan, status), "operation: is 199",
                 status);
  expect(tessera_c_version() == TESSERA_C_VERSION, "version of the interface", status);
  expect(strcmp(tessera_code_name(TESSERA_NO_ROW), "no_row") == 0 &&
             strcmp(tessera_code_name(12345), "unknown") == 0,
         "names of codes", status);
}

int main(void) {
  tessera_tensor q = TENSOR(TESSERA_F32, q_data, 1, ROWS, HEADS, DIM),
                 k = TENSOR(TESSERA_F32, k_data, 1, KEYS, KV_HEADS, DIM),
                 v = TENSOR(TESSERA_F32, v_data, 1, KEYS, KV_HEADS, DIM),
                 out = TENSOR(TESSERA_F32, out_data, 1, ROWS, HEADS, DIM),
                 lse = TENSOR(TESSERA_F32, lse_data, 1, HEADS, ROWS);
  tessera_flash_attention_args args = {
      .size = sizeof args, .q = &q, .k = &k, .v = &v, .out = &out, .lse = &lse};
  tessera_flash_attention_options options = {
      .size = sizeof options, .causal = 1, .window_left = 20};
  tessera_status status = {.size = sizeof status};
  fill();
  expect(tessera_flash_attention(&args, &options, NULL, &status) == TESSERA_OK && is_right() &&
             isfinite(lse_data[0]) && status.message[0] == '\0',
         "call", &status);
  expect(tessera_flash_attention(&args, NULL, NULL, NULL) == TESSERA_OK && is_right(),
         "call without options and status", &status);
  check_plan(&args, &options, &status);
  check_tensors(args, &status);
  check_context(&args, &status);
  check_devices(&args, &status);
  check_versions(&args, &status);
  check_numbers(&args, &status);
  faults += check_operations() + check_pages_and_caches() + check_recurrences() + check_latents() +
            check_weights() + check_matmuls() + check_losses() + check_state_pools() +
            check_fp8_attention() + check_scaled_matmuls();
  printf("tessera %s from C: %d faults\n", tessera_version(), faults);
  return faults == 0 ? 0 : 1;
}
