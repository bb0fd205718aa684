/* Tessera for C, and for every language that calls C (Rust, Python's ctypes, ...): plain structs,
 * an opaque plan, a status with a message. Link tessera::c (CMake) or load libtessera_c.so.
 *
 *   tessera_tensor q = {.size = sizeof q, .dtype = TESSERA_F32, .data = memory, .rank = 4,
 *                       .extent = {1, 64, 8, 64}, .flags = TESSERA_CONTIGUOUS};
 *   ... k, v, out likewise ...
 *   tessera_flash_attention_args args = {
 *       .size = sizeof args, .q = &q, .k = &k, .v = &v, .out = &out};
 *   tessera_flash_attention_options options = {.size = sizeof options, .causal = 1};
 *   tessera_status status = {.size = sizeof status};
 *   if (tessera_flash_attention(&args, &options, NULL, &status) != TESSERA_OK)
 *     puts(status.message);
 *
 * Operations. This file has what all of them share; c_operations.h, which it includes, has their
 * numbers, their structs and typed functions, generated from their declarations. The library itself
 * exports tessera_call, tessera_plan_make and tessera_plan_run, which take the number of an
 * operation and its structs: `tessera_mean_pooling(...)` is inline and calls
 * `tessera_call(TESSERA_OPERATION_MEAN_POOLING, ...)`. Numbers never change.
 *
 * Structs. Every struct starts with `size`, its sizeof where the caller was compiled. Zero every
 * other byte before setting fields: zero means absent, or the documented default. From the first
 * release on fields are added at the end only. A library older than its caller refuses a struct in
 * which a field that it does not know is set, and never ignores one.
 *
 * Options. Each is 8 bytes. A value counts where it is not zero, or where its bit in `given` is
 * set, which says that zero is meant: {.given = TESSERA_FLASH_ATTENTION_NORMALIZE} turns
 * `normalize` off, whose default is 1. What does not count has its default.
 *
 * Errors. Functions return a code, 0 on success; where `status` is not NULL it receives the code
 * and one sentence that names the tensor or option, the fact and both numbers. A refused call has
 * written no output. Nothing ends the process, prints, or throws into the caller.
 *
 * Threads. Every function may be called from any number of threads at once, except that one plan
 * runs once at a time unless each run brings its own workspace. Nothing is kept of the caller's
 * structs and memory after a call, but by a plan: `context.workspace` given to tessera_plan_*.
 *
 * GPUs. Tensors with `device_kind` TESSERA_CUDA lie in device memory, all of a call on one device;
 * `data` is the device address (PyTorch: tensor.data_ptr()). */
#ifndef TESSERA_INTEROP_C_H
#define TESSERA_INTEROP_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TESSERA_API __attribute__((visibility("default")))
#else
#define TESSERA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: grows with every addition, see tessera_c_version(). */
#define TESSERA_C_VERSION 6

#define TESSERA_MAX_RANK 8
#define TESSERA_MESSAGE_BYTES 2040

/* Codes. */
enum {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1, /* a tensor, option or struct contradicts its definition */
  TESSERA_NO_ROW = 2,           /* legal, but no row of this build takes it */
  TESSERA_INELIGIBLE_ROW = 3,   /* the row named cannot run the request */
  TESSERA_UNKNOWN_ROW = 4,      /* the row named is not in this build */
  TESSERA_WORKSPACE = 5,        /* too small, misaligned or in use */
  TESSERA_DEVICE = 6,           /* the driver or the operating system refused */
  TESSERA_MALFORMED = 7,        /* a file or text does not follow its format */
  TESSERA_IO = 8,               /* a file cannot be read or written */
  TESSERA_OUT_OF_MEMORY = 100,
  TESSERA_INTERNAL = 101 /* a defect of the library: please report the message */
};

/* Element types. */
enum {
  TESSERA_F32 = 1,
  TESSERA_F16 = 2,
  TESSERA_BF16 = 3,
  TESSERA_F64 = 4,
  TESSERA_I32 = 5,
  TESSERA_I64 = 6,
  TESSERA_U8 = 7,
  TESSERA_F8_E4M3 = 8,
  TESSERA_F8_E5M2 = 9,
  TESSERA_I8 = 10,
  TESSERA_U32 = 11,
  TESSERA_F8_E8M0 = 12, /* a power of two: the scale of a block */
  TESSERA_U4X2 = 13     /* two codes of 4 bits in a byte, the lower one first */
};

/* Kinds of devices. */
enum { TESSERA_CPU = 0, TESSERA_CUDA = 1 };

/* Flags of a tensor. */
enum {
  TESSERA_READ_ONLY = 1, /* refused as an output */
  TESSERA_CONTIGUOUS = 2 /* row-major; `stride` is not looked at */
};

/* Flags of a context: how the row is chosen. None: the policy of the process. */
enum {
  TESSERA_DETERMINISTIC = 1,   /* only rows that repeat their bits */
  TESSERA_BATCH_INVARIANT = 2, /* and bits do not depend on the other entries of the batch */
  TESSERA_NO_GENERIC_ROW = 4,  /* no row that takes any problem may stand in for a special one */
  TESSERA_ROW_IS_A_WISH = 8,   /* where `row` cannot run the problem, another may */
  TESSERA_SHIPPED_TABLE = 16,  /* of the lookup tables only the one inside the library */
  TESSERA_NO_TABLE = 32,       /* no lookup table */
  TESSERA_CHECKED = 64 /* of a plan on a GPU: counts what tessera_plan_faults() tells; no choice */
};

/* What became of a call. `message` ends with a zero and is empty on success; what would be longer
 * is cut. */
typedef struct tessera_status {
  uint32_t size;
  int32_t code;
  char message[TESSERA_MESSAGE_BYTES];
} tessera_status;

/* Memory of the caller with a shape. A pointer to one is NULL where a tensor is absent. */
typedef struct tessera_tensor {
  uint32_t size;
  int32_t dtype;
  void* data; /* element (0, 0, ...); may be NULL where only the shape is asked for */
  int64_t extent[TESSERA_MAX_RANK];
  int64_t stride[TESSERA_MAX_RANK]; /* in elements; 0 broadcasts, negative is legal */
  int32_t rank;                     /* 1 to 5 */
  int32_t device_kind;
  int32_t device_ordinal;
  uint32_t flags;
} tessera_tensor;

/* Circumstances of a call. NULL or zeros suit almost every program. */
typedef struct tessera_context {
  uint32_t size;
  int32_t threads;        /* of the CPU; 0: what OpenMP would use */
  const char* row;        /* runs this row and no other; NULL: the library chooses */
  void* workspace;        /* scratch memory where the call runs, 64-byte aligned; NULL: the
                             library's own */
  size_t workspace_bytes; /* 0 if workspace is NULL */
  void* stream;           /* of the GPU (cudaStream_t); NULL: the default stream, or the CPU */
  uint64_t flags;         /* TESSERA_DETERMINISTIC | ... */
} tessera_context;

/* A row chosen for one problem, its launch and its scratch memory. */
typedef struct tessera_plan tessera_plan;

/* ---- calls and plans of every operation; c_operations.h has them by name ---- */

/* Chooses and runs. `args` and `options` point to the structs of the operation. `options`,
 * `context` and `status` may be NULL, here and below. */
TESSERA_API int32_t tessera_call(int32_t operation, const void* args, const void* options,
                                 const tessera_context* context, tessera_status* status);

/* Chooses a row for calls with these shapes on these tensors' device and stores the plan in
 * `*plan`, for tessera_plan_free(); NULL after a refusal. Of `data` only the alignment counts, and
 * only on a GPU: plan with NULL or with addresses at multiples of 16 bytes where runs will have
 * such. */
TESSERA_API int32_t tessera_plan_make(int32_t operation, const void* args, const void* options,
                                      const tessera_context* context, tessera_plan** plan,
                                      tessera_status* status);

/* Runs on tensors with the planned shapes, where planned; no look-up, no allocation, no lock.
 * `args` points to the struct of the planned operation. `workspace` may be NULL: the plan's own
 * memory, one run at a time, on a GPU in one stream. On a GPU the call returns when its work is in
 * `stream` (cudaStream_t, NULL: the default stream), and the plan outlives that work. */
TESSERA_API int32_t tessera_plan_run(const tessera_plan* plan, const void* args, void* workspace,
                                     size_t workspace_bytes, void* stream, tessera_status* status);

/* Of a plan that was made with TESSERA_CHECKED: stores in `entries` how many entries of each
 * tensor, in the order of the args, broke what is said of lengths, offsets, page numbers and the
 * like in the runs up to now; `count` is at least the number of tensors, and further ones become 0.
 * On a GPU it waits for `stream`, which the runs were put in; on the CPU all are 0, since such runs
 * are refused. */
TESSERA_API int32_t tessera_plan_faults(const tessera_plan* plan, void* stream, uint64_t* entries,
                                        size_t count, tessera_status* status);

TESSERA_API void tessera_plan_free(tessera_plan* plan);               /* NULL is legal */
TESSERA_API int32_t tessera_plan_operation(const tessera_plan* plan); /* its number; 0 for NULL */
TESSERA_API size_t tessera_plan_workspace_bytes(const tessera_plan* plan);
/* Texts that end with a zero and live as long as the plan: the row, the tier that chose it
 * ("heuristic", ...) and why ("cheapest", ...). */
TESSERA_API const char* tessera_plan_row(const tessera_plan* plan);
TESSERA_API const char* tessera_plan_tier(const tessera_plan* plan);
TESSERA_API const char* tessera_plan_reason(const tessera_plan* plan);

/* ---- the library ---- */

TESSERA_API uint32_t tessera_c_version(void); /* TESSERA_C_VERSION of the library */
TESSERA_API const char* tessera_version(void);
TESSERA_API const char* tessera_code_name(int32_t code); /* "invalid_argument", ... */

#ifdef __cplusplus
}
#endif

#include <tessera/interop/c_operations.h>

#endif
