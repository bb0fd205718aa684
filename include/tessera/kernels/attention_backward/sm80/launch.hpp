// Entry points of the gradients of attention for GPUs (sm_80 and everything later): workspace,
// preparation and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/kernels/attention_backward/sm80/any_row.hpp>
#include <tessera/kernels/attention_backward/sm80/bias_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/key_block.hpp>
#include <tessera/kernels/attention_backward/sm80/key_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/query_gradients.hpp>
#include <tessera/kernels/attention_backward/sm80/query_sums.hpp>
#include <tessera/kernels/attention_backward/sm80/rows.hpp>
#include <tessera/kernels/attention_backward/sm80/sections.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// The kernel of all gradients of a row, and its tiles.
template <class Kernel>
struct one_pass {
  using tiles = tuned_tiles<resolved(Kernel::config).head_dim, resolved(Kernel::config).v_head_dim>;

  static constexpr bool has_dropped = false;  ///< a kernel for score_kind::dropped
  /// Plain scores may have segments: tiles know whether they are of one.
  static score_kind kind_of(attention_kernel_args args) {
    args.q_segments = {};
    return sm80::kind_of(args);
  }
  template <score_kind Kind, class Hooks>
  static constexpr auto kernel() {
    return &all_gradients<element_t<Kernel::config.type>, tiles, Kind, Kernel::config.in_turns,
                          Hooks>;
  }
};

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
template <class Kernel>
struct scratch {
  launch_args args{};
  std::size_t bytes = 0;
  std::size_t sums_bytes = 0;  ///< of d_q, and of turns before them
  /// Where these begin.
  void* sums() const {
    return args.turns != nullptr ? static_cast<void*>(args.turns) : args.d_q_sums;
  }

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
    if constexpr (Kernel::config.d_q_atomics) {
      using tiles = typename one_pass<Kernel>::tiles;
      args.sum_tiles = sum_tiles_of<tiles::queries>(of);
      if constexpr (Kernel::config.in_turns) {
        args.section = section_of<tiles>(of);
        parts.take(args.turns, args.sum_tiles * of.q_heads);
        parts.take(args.taken, 1);
      }
      parts.take(args.d_q_sums, args.sum_tiles * of.q_heads * tiles::queries * tiles::width);
      sums_bytes = parts.bytes() - bytes;
      bytes = parts.bytes();
      if (Kernel::config.in_turns || of.q_segments.data != nullptr) {
        parts.take(args.seen_by, key_tiles_of<tiles::own>(of));
        if (of.q_segments.data != nullptr) {
          parts.take(args.of_segment, key_tiles_of<tiles::own>(of));
        }
        bytes = parts.bytes();
      }
    }
  }
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int) {
  return scratch<Kernel>(args, nullptr).bytes;
}

/// A kernel, its threads and the shared memory that it takes at most.
template <class Args>
struct sized_pass {
  void (*kernel)(Args) = nullptr;
  int shared_bytes = 0;
  int (*of_head_dims)(int, int) = nullptr;  ///< what a call takes instead, if it is less
  int block_threads = threads;
  bool waits = false;  ///< for the kernel before it
  prim::cuda::kernel_entry entry() const { return cuda::entry_of(kernel, shared_bytes); }
};

/// All kernels of a row with functors.
template <class Kernel, class Hooks>
struct row_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using element = element_t<Kernel::config.type>;
  using hooked = hooked_args<Hooks>;
  using pass = sized_pass<launch_args>;
  using hooked_pass = sized_pass<hooked>;
  static constexpr int width = Kernel::config.head_dim;  ///< 0: any
  static constexpr bool any = width == 0, atomics = Kernel::config.d_q_atomics;
  static constexpr int vector = any ? 1 : 8;  ///< elements loaded at once
  using lanes = row_lanes<element, vector, width>;
  static constexpr int any_bytes = any_shared_bytes<element>(max_head_dim, max_head_dim);
  static constexpr int own_keys = resolved(Kernel::config).block_kv;
  static constexpr int own_queries = resolved(Kernel::config).block_q;
  static constexpr pass rows{&describe_rows<element, vector, width>};
  static constexpr pass keys{&describe_keys<element, vector, width>};  ///< two passes
  static constexpr pass sinks{&sink_gradients};

  template <score_kind Kind>
  static hooked_pass keys_of_kind() {
    if constexpr (any) {
      return {&any_key_gradients<element, Hooks>, any_bytes, &any_shared_bytes<element>};
    } else if constexpr (atomics) {
      using tiles = typename one_pass<Kernel>::tiles;
      return {one_pass<Kernel>::template kernel<Kind, Hooks>(), tiles::shared_bytes, nullptr,
              tiles::block_threads, true};
    } else {
      return {&key_gradients<element, width, Kind, Hooks>, key_tiles<width>::shared_bytes};
    }
  }
  template <score_kind Kind>
  static hooked_pass queries_of_kind() {
    if constexpr (any) {
      return {&any_query_gradients<element, query_part::gradients, Hooks>, any_bytes,
              &any_shared_bytes<element>};
    } else {
      return {&query_gradients<element, width, Kind, Hooks>, query_tiles<width>::shared_bytes};
    }
  }

  /// Gradients of keys, with those of queries where they are added up in memory. Functors leave no
  /// score plain; rows for any head dim have one kernel for all kinds, and those with a pass for
  /// queries none for scores that are computed, but of hooks that list tiles no other.
  static hooked_pass of_keys(score_kind kind) {
    if constexpr (lists_tiles<Hooks>) {
      return keys_of_kind<score_kind::computed>();
    } else {
      if constexpr (!any && !hooked::has_functors) {
        if (kind == score_kind::plain) return keys_of_kind<score_kind::plain>();
      }
      if constexpr (atomics) {
        if constexpr (one_pass<Kernel>::has_dropped) {
          if (kind == score_kind::dropped) return keys_of_kind<score_kind::dropped>();
        }
        if (kind != score_kind::all) return keys_of_kind<score_kind::computed>();
      }
      return keys_of_kind<score_kind::all>();
    }
  }
  static hooked_pass of_queries(score_kind kind) {
    if constexpr (lists_tiles<Hooks>) {
      return queries_of_kind<score_kind::computed>();
    } else {
      if constexpr (!any && !hooked::has_functors) {
        if (kind == score_kind::plain) return queries_of_kind<score_kind::plain>();
      }
      return queries_of_kind<score_kind::all>();
    }
  }
  static score_kind kind_of(const attention_kernel_args& args) {
    if constexpr (atomics) {
      return one_pass<Kernel>::kind_of(args);
    } else {
      return sm80::kind_of(args);
    }
  }
  static hooked_pass corrections() {
    return {&any_query_gradients<element, query_part::corrections, Hooks>, any_bytes,
            &any_shared_bytes<element>};
  }
  static hooked_pass biases() {
    return {&bias_gradients<element, Hooks>, any_bytes, &any_shared_bytes<element>};
  }
  static pass described_tiles() {
    return {.kernel = &describe_tiles<typename one_pass<Kernel>::tiles>, .waits = true};
  }
  static pass sums() {
    return {.kernel = &store_query_sums<element, typename one_pass<Kernel>::tiles>, .waits = true};
  }

  static std::vector<prim::cuda::kernel_entry> entries() {
    std::vector<prim::cuda::kernel_entry> all{rows.entry(), sinks.entry()};
    if constexpr (!atomics) all.push_back(keys.entry());
    for (const score_kind kind : {score_kind::plain, score_kind::computed, score_kind::all}) {
      all.push_back(of_keys(kind).entry());
      if constexpr (!atomics) all.push_back(of_queries(kind).entry());
    }
    if constexpr (atomics) {
      if (one_pass<Kernel>::has_dropped) all.push_back(of_keys(score_kind::dropped).entry());
      all.push_back(described_tiles().entry());
      all.push_back(sums().entry());
    }
    if constexpr (any) {
      all.push_back(corrections().entry());
      all.push_back(biases().entry());
    }
    return all;
  }
};

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<row_kernels<Kernel, flash_hooks<>>>();
}

/// Launches kernels one behind the other; the first failure ends it.
class launcher {
 public:
  /// `dependent`: kernels that wait for the kernel right before (prim/cuda/warp.hpp) are launched
  /// before it has ended.
  launcher(const attention_kernel_args& of, cudaStream_t stream, bool dependent)
      : of_(of), stream_(stream), dependent_(dependent) {}

  template <class Args>
  void run(const sized_pass<Args>& pass, const Args& args, std::int64_t blocks) {
    if (blocks <= 0 || code_ != cudaSuccess) return;
    const int shared = pass.of_head_dims != nullptr
                           ? pass.of_head_dims(of_.head_dim, of_.v_head_dim)
                           : pass.shared_bytes;
    code_ =
        prim::cuda::launch_kernel(pass.kernel, cuda::grid_of(blocks), pass.block_threads, shared,
                                  stream_, dependent_ && pass.waits && behind_kernel_, args);
    behind_kernel_ = true;
  }
  /// A block for so many of the items.
  void run_rows(const sized_pass<launch_args>& pass, const launch_args& args, std::int64_t items,
                int rows) {
    run(pass, args, (items + rows - 1) / rows);
  }
  /// A block for each head and tile of `own` of the tokens of each entry.
  template <class Args>
  void run_tiles(const sized_pass<Args>& pass, Args args, int heads, std::int64_t tokens, int own) {
    const std::int64_t entries = of_.cu_seqlens_q != nullptr ? of_.batch + 1 : of_.batch;
    args.tiles = (tokens + own - 1) / own;
    run(pass, args, entries * heads * args.tiles);
  }
  /// A block for each head and slot of packed sequences, see packed_tile_of.
  template <class Args>
  void run_slots(const sized_pass<Args>& pass, Args args, int heads, std::int64_t slots) {
    args.tiles = slots;
    run(pass, args, heads * slots);
  }
  void clear(void* data, std::size_t bytes) {
    if (code_ != cudaSuccess || bytes == 0) return;
    code_ = cudaMemsetAsync(data, 0, bytes, stream_);
    behind_kernel_ = false;
  }
  status ended() const { return cuda::launched(code_); }

 private:
  const attention_kernel_args& of_;
  cudaStream_t stream_;
  bool dependent_;
  bool behind_kernel_ = false;  ///< what was queued last is a kernel of this launch
  cudaError_t code_ = cudaSuccess;
};

/// Gradients of q, k and v, and of the parameters of functors.
template <class Kernel, class Hooks>
void run_gradients(launcher& kernels, const scratch<Kernel>& memory,
                   const hooked_args<Hooks>& launched) {
  using kernels_of = row_kernels<Kernel, Hooks>;
  const attention_kernel_args& of = launched.call.forward;
  const score_kind kind = kernels_of::kind_of(of);
  if constexpr (hooked_args<Hooks>::has_parameters) {
    const auto& logits = launched.hooks.logits;
    kernels.clear(logits.d_parameters(),
                  static_cast<std::size_t>(logits.parameters()) * sizeof(float));
  }
  if constexpr (kernels_of::any) {
    if (of.weights != nullptr) {
      kernels.run_tiles(kernels_of::corrections(), launched, of.q_heads, of.q_len, any_tile);
    }
  }
  if constexpr (kernels_of::atomics) {
    if (launched.seen_by != nullptr) {
      kernels.run_tiles(kernels_of::described_tiles(), memory.args, 1, of.kv_len,
                        kernels_of::own_keys);
    }
  }
  bool by_slots = false;
  if constexpr (kernels_of::atomics) {
    by_slots = goes_through_slots<typename one_pass<Kernel>::tiles, Kernel::config.in_turns>(of);
  }
  if (by_slots) {
    kernels.run_slots(kernels_of::of_keys(kind), launched, of.kv_heads,
                      key_tiles_of<kernels_of::own_keys>(of));
  } else {
    kernels.run_tiles(kernels_of::of_keys(kind), launched, of.kv_heads, of.kv_len,
                      kernels_of::own_keys);
  }
  if constexpr (!kernels_of::atomics) {
    kernels.run_tiles(kernels_of::of_queries(kind), launched, of.q_heads, of.q_len,
                      kernels_of::own_queries);
  } else if (of.cu_seqlens_q != nullptr) {
    kernels.run_slots(kernels_of::sums(), memory.args, of.q_heads, memory.args.sum_tiles);
  } else {
    kernels.run_tiles(kernels_of::sums(), memory.args, of.q_heads, of.q_len,
                      kernels_of::own_queries);
  }
}

/// Runs the row's kernels with functors on `context.stream` of the current device; returns before
/// the work is done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel, class Hooks>
status launch_with(const attention_backward_kernel_args& args, const Hooks& hooks,
                   const launch_context& context) {
  using kernels_of = row_kernels<Kernel, Hooks>;
  const attention_kernel_args& of = args.forward;
  scratch<Kernel> memory(args, context.workspace);
  if (status done = cuda::ready<kernels_of>(context, memory.bytes); !done) return done;
  launcher kernels(of, static_cast<cudaStream_t>(context.stream), cuda::starts_early<kernels_of>());
  if constexpr (!kernels_of::any) memory.args.shift_unit = prim::log2_e;
  if (kernels_of::kind_of(of) == score_kind::dropped) {
    memory.args.dropout = kernels::attention::dropout_keys::of(of.dropout_seed);
    memory.args.last_dropped = static_cast<std::uint32_t>(of.dropout_threshold - 1);
  }
  const bool scores_reach_lse = of.normalize && of.soft_cap <= 0.0f && of.sinks == nullptr &&
                                of.bias_pre.data == nullptr && of.bias_post.data == nullptr;
  memory.args.lse_tells = scores_reach_lse && !Hooks::has_logits;
  kernels.clear(memory.sums(), memory.sums_bytes);
  constexpr int rows_of_block = kernels_of::lanes::rows_of_block;
  const int parts = (of.q_heads + heads_at_once - 1) / heads_at_once;
  kernels.run_rows(kernels_of::rows, memory.args, memory.args.rows * parts, rows_of_block);
  if constexpr (!kernels_of::atomics) {
    kernels.run_rows(kernels_of::keys, memory.args, memory.args.keys * of.kv_heads, rows_of_block);
  }
  hooked_args<Hooks> launched{memory.args, hooks};
  run_gradients<Kernel>(kernels, memory, launched);
  if constexpr (kernels_of::any) {
    for (const bool behind_cap : {false, true}) {
      launched.behind_cap = behind_cap;
      if (launched.d_bias().data == nullptr) continue;
      kernels.run(kernels_of::biases(), launched, bias_items(launched.d_bias()));
    }
  }
  if (args.d_sinks != nullptr) {
    kernels.run(kernels_of::sinks, memory.args, args.d_sink_heads * of.sink_count);
  }
  return kernels.ended();
}

/// The same for a row of the table.
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, flash_hooks<>{}, context);
}

}  // namespace tessera::kernels::attention_backward::sm80
