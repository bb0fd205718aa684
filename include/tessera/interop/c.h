/* Tessera for C, and for every language that calls C (Rust, Python's ctypes, ...): plain structs,
 * an opaque plan, a status with a message. Link tessera::c (CMake) or load libtessera_c.so.
 *
 *   tessera_tensor q = {.size = sizeof q, .dtype = TESSERA_F32, .data = memory, .rank = 4,
 *                       .extent = {1, 64, 8, 64}, .flags = TESSERA_CONTIGUOUS};
 *   ... k, v, out likewise ...
 *   tessera_flash_attention_args args = {.size = sizeof args, .q = &q, .k = &k, .v = &v, .out =
 * &out}; tessera_flash_attention_options options = {.size = sizeof options, .causal = 1};
 *   tessera_status status = {.size = sizeof status};
 *   if (tessera_flash_attention(&args, &options, NULL, &status) != TESSERA_OK)
 * puts(status.message);
 *
 * Structs. Every struct starts with `size`, its sizeof where the caller was compiled. Zero every
 * other byte before setting fields: zero means absent, or the documented default. Later versions
 * add fields at the end only. A library older than its caller refuses a struct in which a field
 * that it does not know is set, and never ignores one.
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
#define TESSERA_C_VERSION 1

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
  TESSERA_F8_E5M2 = 9
};

/* Kinds of devices. */
enum { TESSERA_CPU = 0, TESSERA_CUDA = 1 };

/* Flags of a tensor. */
enum {
  TESSERA_READ_ONLY = 1, /* refused as an output */
  TESSERA_CONTIGUOUS = 2 /* row-major; `stride` is not looked at */
};

/* Flags of flash attention options: which optional values count. */
enum {
  TESSERA_SOFTMAX_SCALE = 1,
  TESSERA_WINDOW_LEFT = 2,
  TESSERA_WINDOW_RIGHT = 4,
  TESSERA_LOGITS_SOFT_CAP = 8
};

/* Where the causal diagonal and the window start if there are fewer or more rows than keys. */
enum { TESSERA_BOTTOM_RIGHT = 0, TESSERA_TOP_LEFT = 1 };

/* Flags of a context: how the row is chosen. None: the policy of the process. */
enum {
  TESSERA_DETERMINISTIC = 1,   /* only rows that repeat their bits */
  TESSERA_BATCH_INVARIANT = 2, /* and bits do not depend on the other entries of the batch */
  TESSERA_NO_GENERIC_ROW = 4,  /* no row that takes any problem may stand in for a special one */
  TESSERA_ROW_IS_A_WISH = 8,   /* where `row` cannot run the problem, another may */
  TESSERA_SHIPPED_TABLE = 16,  /* of the lookup tables only the one inside the library */
  TESSERA_NO_TABLE = 32        /* no lookup table */
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

/* ---- flash attention, forward: out = softmax(scale * q k^T + bias, masked) v ----
 * Shapes and dtypes are those of tessera/families/attention/args.hpp: q, out [B,Sq,Hq,D], k, v
 * [B,Sk,Hkv,D]; packed [T,H,D] with cu_seqlens_q and cu_seqlens_k [N+1]. */
typedef struct tessera_flash_attention_args {
  uint32_t size;
  uint32_t reserved; /* 0 */
  const tessera_tensor *q, *k, *v;
  const tessera_tensor *bias_pre, *bias_post; /* added before and after the soft cap; -inf masks */
  const tessera_tensor* mask;                 /* u8, nonzero = visible */
  const tessera_tensor *q_segment_ids, *kv_segment_ids;
  const tessera_tensor* sinks;
  const tessera_tensor *cu_seqlens_q, *cu_seqlens_k;
  const tessera_tensor *seqlens_q, *seqlens_k;
  const tessera_tensor* out;
  const tessera_tensor *lse, *row_max; /* optional outputs */
  const tessera_tensor* dropout_mask;
} tessera_flash_attention_args;

/* Zeros are the defaults. An optional value counts only if its flag is in `given`. */
typedef struct tessera_flash_attention_options {
  uint32_t size;
  uint32_t given; /* TESSERA_SOFTMAX_SCALE | ... */
  int32_t causal; /* 0 or 1 */
  int32_t causal_alignment;
  double softmax_scale; /* else 1 / sqrt(D) */
  int64_t window_left;  /* keys before the aligned position, itself excluded; else all */
  int64_t window_right;
  double logits_soft_cap;
  double dropout_probability;
  uint64_t dropout_seed;
  int32_t unnormalized; /* 1: out is not divided by the denominator, see row_max */
  int32_t reserved;     /* 0 */
} tessera_flash_attention_options;

/* Chooses and runs. `options`, `context` and `status` may be NULL, here and below. */
TESSERA_API int32_t tessera_flash_attention(const tessera_flash_attention_args* args,
                                            const tessera_flash_attention_options* options,
                                            const tessera_context* context, tessera_status* status);

/* Chooses a row for calls with these shapes on these tensors' device and stores the plan in
 * `*plan`, for tessera_plan_free(); NULL after a refusal. Of `data` only the alignment counts, and
 * only on a GPU: plan with NULL or with addresses at multiples of 16 bytes where runs will have
 * such. */
TESSERA_API int32_t tessera_plan_flash_attention(const tessera_flash_attention_args* args,
                                                 const tessera_flash_attention_options* options,
                                                 const tessera_context* context,
                                                 tessera_plan** plan, tessera_status* status);

/* Runs on tensors with the planned shapes, where planned; no look-up, no allocation, no lock.
 * `workspace` may be NULL: the plan's own memory, one run at a time, on a GPU in one stream. On a
 * GPU the call returns when its work is in `stream` (cudaStream_t, NULL: the default stream), and
 * the plan outlives that work. */
TESSERA_API int32_t tessera_run_flash_attention(const tessera_plan* plan,
                                                const tessera_flash_attention_args* args,
                                                void* workspace, size_t workspace_bytes,
                                                void* stream, tessera_status* status);

/* ---- mean pooling: tokens to their mean, over sequences or chunks of them, and back ----
 * Shapes and dtypes are those of tessera/families/mean_pooling/args.hpp. */
enum {
  TESSERA_MEAN_POOLING = 0, /* x [B,T,D] or packed [T,D] to out [B,D] or [N,D] */
  TESSERA_MEAN_POOLING_CHUNKS = 1,
  TESSERA_MEAN_POOLING_BACKWARD = 2, /* d_out to d_x */
  TESSERA_MEAN_POOLING_CHUNKS_BACKWARD = 3
};

typedef struct tessera_mean_pooling_args {
  uint32_t size;
  uint32_t reserved; /* 0 */
  const tessera_tensor *x, *mask, *cu_seqlens;
  const tessera_tensor* out;
  const tessera_tensor *d_out, *d_x;
} tessera_mean_pooling_args;

typedef struct tessera_mean_pooling_options {
  uint32_t size;
  uint32_t reserved;  /* 0 */
  int64_t chunk_size; /* 0: 32 */
} tessera_mean_pooling_options;

TESSERA_API int32_t tessera_mean_pooling(int32_t op, const tessera_mean_pooling_args* args,
                                         const tessera_mean_pooling_options* options,
                                         const tessera_context* context, tessera_status* status);
TESSERA_API int32_t tessera_plan_mean_pooling(int32_t op, const tessera_mean_pooling_args* args,
                                              const tessera_mean_pooling_options* options,
                                              const tessera_context* context, tessera_plan** plan,
                                              tessera_status* status);
TESSERA_API int32_t tessera_run_mean_pooling(const tessera_plan* plan,
                                             const tessera_mean_pooling_args* args, void* workspace,
                                             size_t workspace_bytes, void* stream,
                                             tessera_status* status);

/* ---- plans of every operation ---- */

TESSERA_API void tessera_plan_free(tessera_plan* plan); /* NULL is legal */
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

#endif
