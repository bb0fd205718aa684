// What tests/cuda/peers.py calls: one launch of a row by name on contiguous [B, S, H, D] tensors.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/spec/flash_attention/instance.hpp>

#include "tests/cuda/rows.hpp"

extern "C" {

/// A problem and its device tensors.
struct device_bench_call {
  void* q;
  void* k;
  void* v;
  void* out;
  float* lse;  ///< [B, Hq, Sq], or null
  std::int64_t batch, q_len, kv_len;
  std::int32_t q_heads, kv_heads, head_dim, v_head_dim;
  float scale;
  std::int32_t causal;
  std::int64_t window_left;  ///< negative: unbounded
};

/// 0, or an error whose text is in `message`. Gives the workspace needed if `workspace` is null.
int device_bench_launch(const char* row, int is_f16, const device_bench_call* call, int sms,
                        void* stream, void* workspace, std::size_t* workspace_bytes, char* message,
                        std::size_t message_size) {
  const auto fail = [&](const std::string& text) {
    std::strncpy(message, text.c_str(), message_size - 1);
    return 1;
  };
  static const std::vector<tessera::flash_instance> rows = tessera::device_test::all_rows();
  const auto type = is_f16 != 0 ? tessera::dtype::f16 : tessera::dtype::bf16;
  for (const tessera::flash_instance& one : rows) {
    if (one.name != row || one.config.type != type) continue;
    if ((one.config.head_dim != 0 &&
         (one.config.head_dim != call->head_dim || one.config.v_head_dim != call->v_head_dim))) {
      return fail("the row has other head dimensions");
    }
    tessera::flash_kernel_args args;
    const auto strides = [](std::int64_t length, int heads, int width) {
      return tessera::row_strides{length * heads * width, std::int64_t{heads} * width, width};
    };
    args.q = call->q, args.k = call->k, args.v = call->v, args.out = call->out;
    args.q_strides = strides(call->q_len, call->q_heads, call->head_dim);
    args.k_strides = strides(call->kv_len, call->kv_heads, call->head_dim);
    args.v_strides = strides(call->kv_len, call->kv_heads, call->v_head_dim);
    args.out_strides = strides(call->q_len, call->q_heads, call->v_head_dim);
    args.lse = {call->lse, call->q_heads * call->q_len, call->q_len, 1};
    args.batch = call->batch, args.q_len = call->q_len, args.kv_len = call->kv_len;
    args.q_heads = call->q_heads, args.kv_heads = call->kv_heads;
    args.head_dim = call->head_dim, args.v_head_dim = call->v_head_dim;
    args.softmax_scale = call->scale;
    args.causal = call->causal != 0;
    if (call->window_left >= 0) args.window_left = call->window_left;
    const std::size_t needed = one.workspace_bytes(args, sms);
    if (workspace == nullptr) {
      *workspace_bytes = needed;
      return 0;
    }
    const auto done = one.launch(args, {.threads = sms,
                                        .workspace = static_cast<std::byte*>(workspace),
                                        .workspace_bytes = *workspace_bytes,
                                        .stream = stream});
    return done ? 0 : fail(done.message());
  }
  return fail("no such row");
}

}  // extern "C"
