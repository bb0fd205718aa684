// Entry points of the gradients of attention for GPUs (sm_80 and everything later): workspace,
// preparation and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/kernels/attention_backward/sm80/any_row.hpp>
#include <tessera/kernels/attention_backward/sm80/bias_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/key_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/query_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/rows.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
struct scratch {
  launch_args args{};
  std::size_t bytes = 0;

  scratch(const attention_backward_kernel_args& call, std::byte* base) {
    const attention_kernel_args& of = call.forward;
    const bool packed = of.cu_seqlens_q != nullptr;
    args.call = call;
    args.rows = packed ? of.q_len : of.batch * of.q_len;
    args.keys = packed ? of.kv_len : of.batch * of.kv_len;
    cuda::workspace_parts parts(base);
    parts.take(args.shift, args.rows * of.q_heads);
    parts.take(args.correction, args.rows * of.q_heads);
    parts.take(args.taint, args.keys * of.kv_heads);
    bytes = parts.bytes();
  }
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int) {
  return scratch(args, nullptr).bytes;
}

using pass = void (*)(launch_args);

/// A kernel and the shared memory that it takes at most.
struct sized_pass {
  pass kernel = nullptr;
  int shared_bytes = 0;
  int (*of_head_dims)(int, int) = nullptr;  ///< what a call takes instead, if it is less
  prim::cuda::kernel_entry entry() const { return cuda::entry_of(kernel, shared_bytes); }
};

/// All kernels of a row.
template <class Kernel>
struct row_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using element = element_t<Kernel::config.type>;
  static constexpr int width = Kernel::config.head_dim;  ///< 0: any
  static constexpr int vector = width == 0 ? 1 : 8;      ///< elements loaded at once
  static constexpr int any_bytes = any_shared_bytes<element>(max_head_dim, max_head_dim);
  static constexpr int own = resolved(Kernel::config).block_kv;
  static constexpr sized_pass rows{&describe_rows<element, vector>},
      keys{&describe_keys<element, vector>};
  static constexpr sized_pass sinks{&sink_gradients};

  static sized_pass of_keys(bool modified) {
    if constexpr (width == 0) {
      return {&any_key_gradients<element>, any_bytes, &any_shared_bytes<element>};
    } else {
      return {
          modified ? &key_gradients<element, width, true> : &key_gradients<element, width, false>,
          key_tiles<width>::shared_bytes};
    }
  }
  static sized_pass of_queries(bool modified) {
    if constexpr (width == 0) {
      return {&any_query_gradients<element, query_part::gradients>, any_bytes,
              &any_shared_bytes<element>};
    } else {
      return {modified ? &query_gradients<element, width, true>
                       : &query_gradients<element, width, false>,
              query_tiles<width>::shared_bytes};
    }
  }
  static auto entries() {
    const std::array common{rows.entry(),
                            keys.entry(),
                            sinks.entry(),
                            of_keys(false).entry(),
                            of_keys(true).entry(),
                            of_queries(false).entry(),
                            of_queries(true).entry()};
    if constexpr (width == 0) {
      std::array<prim::cuda::kernel_entry, common.size() + 2> all{};
      std::copy(common.begin(), common.end(), all.begin());
      all[common.size()] = corrections().entry();
      all[common.size() + 1] = biases().entry();
      return all;
    } else {
      return common;
    }
  }
  static sized_pass corrections() {
    return {&any_query_gradients<element, query_part::corrections>, any_bytes,
            &any_shared_bytes<element>};
  }
  static sized_pass biases() {
    return {&bias_gradients<element>, any_bytes, &any_shared_bytes<element>};
  }
};

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<row_kernels<Kernel>>();
}

/// Launches kernels one behind the other; the first failure ends it.
class launcher {
 public:
  launcher(const attention_kernel_args& of, cudaStream_t stream) : of_(of), stream_(stream) {}

  void run(const sized_pass& pass, const launch_args& args, std::int64_t blocks) {
    if (blocks <= 0 || code_ != cudaSuccess) return;
    const int shared = pass.of_head_dims != nullptr
                           ? pass.of_head_dims(of_.head_dim, of_.v_head_dim)
                           : pass.shared_bytes;
    code_ = prim::cuda::launch_kernel(pass.kernel, cuda::grid_of(blocks), threads, shared, stream_,
                                      false, args);
  }
  /// A warp for each of the items.
  void run_warps(const sized_pass& pass, const launch_args& args, std::int64_t items) {
    constexpr int warps = threads / 32;
    run(pass, args, (items + warps - 1) / warps);
  }
  /// A block for each head and tile of `own` of the tokens of each entry.
  void run_tiles(const sized_pass& pass, launch_args args, int heads, std::int64_t tokens,
                 int own) {
    const std::int64_t entries = of_.cu_seqlens_q != nullptr ? of_.batch + 1 : of_.batch;
    args.tiles = (tokens + own - 1) / own;
    run(pass, args, entries * heads * args.tiles);
  }
  status ended() const { return cuda::launched(code_); }

 private:
  const attention_kernel_args& of_;
  cudaStream_t stream_;
  cudaError_t code_ = cudaSuccess;
};

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context) {
  using kernels_of = row_kernels<Kernel>;
  const attention_kernel_args& of = args.forward;
  const scratch memory(args, context.workspace);
  if (status done = cuda::ready<kernels_of>(context, memory.bytes); !done) return done;
  launcher kernels(of, static_cast<cudaStream_t>(context.stream));
  const bool modified = modifies_scores(of);
  launch_args launched = memory.args;
  if constexpr (kernels_of::width != 0) launched.shift_unit = prim::log2_e;
  kernels.run_warps(kernels_of::rows, launched, launched.rows * of.q_heads);
  kernels.run_warps(kernels_of::keys, launched, launched.keys * of.kv_heads);
  if constexpr (kernels_of::width == 0) {
    if (of.weights != nullptr) {
      kernels.run_tiles(kernels_of::corrections(), launched, of.q_heads, of.q_len, any_tile);
    }
  }
  kernels.run_tiles(kernels_of::of_keys(modified), launched, of.kv_heads, of.kv_len,
                    kernels_of::own);
  kernels.run_tiles(kernels_of::of_queries(modified), launched, of.q_heads, of.q_len,
                    kernels_of::own);
  if constexpr (kernels_of::width == 0) {
    for (const bool behind_cap : {false, true}) {
      launched.behind_cap = behind_cap;
      if (launched.d_bias().data == nullptr) continue;
      kernels.run(kernels_of::biases(), launched, bias_items(launched.d_bias()));
    }
  }
  if (args.d_sinks != nullptr) {
    kernels.run(kernels_of::sinks, launched, args.d_sink_heads * of.sink_count);
  }
  return kernels.ended();
}

}  // namespace tessera::kernels::attention_backward::sm80
