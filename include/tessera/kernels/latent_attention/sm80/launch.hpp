// Launches of latent attention for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/backward.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_forward.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_kernels.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_selected.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/launch_memory.hpp>
#include <tessera/kernels/latent_attention/sm80/matrix_forward.hpp>
#include <tessera/kernels/latent_attention/sm80/matrix_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/queue.hpp>
#include <tessera/kernels/latent_attention/sm80/score_gradients.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Forward launches, of any type and size.
template <class Kernel>
struct forward_launch {
  static constexpr latent_form form = Kernel::config.form;
  static constexpr int threads = tile_threads, combine_threads = 128;

  static auto entries() {
    const auto attend = cuda::entry_of(&attend_rows<threads, false>);
    const auto combine = cuda::entry_of(&combine_splits<combine_threads>);
    if constexpr (form == latent_form::absorbed) {
      return std::array{attend, combine, cuda::entry_of(&place_row_blocks<prim::cuda::warp_size>),
                        cuda::entry_of(&write_latents<threads>),
                        cuda::entry_of(&attend_rows<threads, true>)};
    } else {
      return std::array{attend, combine, cuda::entry_of(&multiply<threads>),
                        cuda::entry_of(&select_keys<threads>)};
    }
  }
  static forward_memory memory(const latent_attention_kernel_args& args, int multiprocessors,
                               std::byte* base) {
    constexpr int blocks_of_each = Kernel::config.type == dtype::none ? 2 : 1;
    return forward_memory::of(args, form, blocks_of_each, multiprocessors, base);
  }
  static status run(const latent_attention_kernel_args& args, const launch_context& context) {
    const forward_memory of = memory(args, context.threads, context.workspace);
    queue to(context.stream);
    if constexpr (form == latent_form::absorbed) {
      write_and_place(args, of, tile_side, to);
    } else {
      make_keys(args, of.keys, to);
    }
    auto attend = &attend_rows<threads, false>;
    if constexpr (form == latent_form::absorbed) {
      if (!args.has_plain_latents()) attend = &attend_rows<threads, true>;
    }
    to.enqueue(attend, most_row_blocks(args, tile_side) * of.results.splits, threads, 0, args,
               of.keys.expanded, of.starts, of.results);
    to.enqueue(&combine_splits<combine_threads>, of.results.rows, combine_threads, 0, args,
               of.results);
    return cuda::launched(to.code());
  }
};

/// Launches over pages of f16 or bf16. Of what they need in the workspace, tiles of scores and rows
/// are as those of any type: which kernel runs depends on the shared memory of the device alone.
template <class Kernel>
struct matrix_launch : forward_launch<Kernel> {
  using base = forward_launch<Kernel>;
  using element = element_t<Kernel::config.type == dtype::none ? dtype::f16 : Kernel::config.type>;

  struct attention {
    void (*kernel)(latent_attention_kernel_args, const std::int64_t*, split_results) = nullptr;
    int shared_bytes = 0;
  };
  /// For the current device; without a kernel, that of any type.
  static attention attention_here() {
    int device = 0, shared_bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    using large = matrix_shape<element, 64>;
    using small = matrix_shape<element, 32>;
    if (shared_bytes >= large::shared_bytes) {
      return {&attend_on_matrix_unit<large>, large::shared_bytes};
    }
    if (shared_bytes >= small::shared_bytes) {
      return {&attend_on_matrix_unit<small>, small::shared_bytes};
    }
    return {};
  }

  static auto entries() {
    auto kernels = base::entries();
    const attention here = attention_here();
    if (here.kernel != nullptr) kernels[0] = cuda::entry_of(here.kernel, here.shared_bytes);
    return kernels;
  }
  static status run(const latent_attention_kernel_args& args, const launch_context& context) {
    const attention here = attention_here();
    if (here.kernel == nullptr) return base::run(args, context);
    const forward_memory of = base::memory(args, context.threads, context.workspace);
    queue to(context.stream);
    write_and_place(args, of, matrix_rows, to);
    to.enqueue(here.kernel, most_row_blocks(args, matrix_rows) * of.results.splits, matrix_threads,
               here.shared_bytes, args, of.starts, of.results);
    to.enqueue(&combine_splits<base::combine_threads>, of.results.rows, base::combine_threads, 0,
               args, of.results);
    return cuda::launched(to.code());
  }
};

/// Launches of gradients, of any type and size.
template <class Kernel>
struct backward_launch {
  static constexpr latent_form form = Kernel::config.form;
  static constexpr int threads = tile_threads;

  static auto entries() {
    return std::array{
        cuda::entry_of(&key_gradients<threads>),  cuda::entry_of(&query_gradients<threads>),
        cuda::entry_of(&correct_rows<threads>),   cuda::entry_of(&store_tokens<threads>),
        cuda::entry_of(&bias_gradients<threads>), cuda::entry_of(&sink_gradients<threads>),
        cuda::entry_of(&multiply<threads>),       cuda::entry_of(&select_keys<threads>)};
  }
  static backward_memory memory(const latent_attention_kernel_args& args, int multiprocessors,
                                std::byte* base) {
    return backward_memory::of(args, form, multiprocessors, base);
  }
  static status run(const latent_attention_kernel_args& args, const launch_context& context) {
    const backward_memory of = memory(args, context.threads, context.workspace);
    const expanded_keys& keys = of.keys.expanded;
    const std::int64_t tokens = args.entries * args.length;
    const std::int64_t tiles = ceil_div(args.length, tile_side);
    queue to(context.stream);
    make_keys(args, of.keys, to);
    to.enqueue(&correct_rows<threads>, ceil_div(rows_of_launch(args), threads / 32), threads, 0,
               args, of.sums);
    to.enqueue(&key_gradients<threads>, args.entries * args.kv_heads * tiles, threads, 0, args,
               keys, of.sums);
    to.enqueue(&query_gradients<threads>, most_row_blocks(args, tile_side), threads, 0, args, keys,
               of.sums);
    to.enqueue(&store_tokens<threads>, tokens, threads, 0, args, of.sums);
    multiply_gradients(args, of.sums, to);
    if (args.d_bias.data != nullptr) {
      to.enqueue(&bias_gradients<threads>, bias_blocks(args.d_bias), threads, 0, args, keys,
                 of.sums);
    }
    if (args.d_sinks != nullptr) {
      to.enqueue(&sink_gradients<threads>, args.d_sink_heads * args.sink_count, threads, 0, args,
                 of.sums);
    }
    return cuda::launched(to.code());
  }
};

/// A launch by `Kernels`, which place their parts of the workspace when they run.
template <class Kernels>
struct launch_by : Kernels {
  launch_by(const latent_attention_kernel_args& args, int multiprocessors, std::byte* workspace)
      : args_(args), bytes_(Kernels::memory(args, multiprocessors, workspace).bytes) {}

  std::size_t bytes() const { return bytes_; }
  status launch(const launch_context& context) const { return Kernels::run(args_, context); }

 private:
  const latent_attention_kernel_args& args_;
  std::size_t bytes_;
};

/// The launch of a row's form, direction and type.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = latent_attention_kernel_args;

  static auto of(const args_type& args, int multiprocessors, std::byte* workspace) {
    constexpr latent_attention_config config = Kernel::config;
    if constexpr (config.pass == latent_pass::backward) {
      return launch_by<backward_launch<Kernel>>(args, multiprocessors, workspace);
    } else if constexpr (config.type == dtype::none) {
      return launch_by<forward_launch<Kernel>>(args, multiprocessors, workspace);
    } else if constexpr (config.form == latent_form::absorbed) {
      return launch_by<matrix_launch<Kernel>>(args, multiprocessors, workspace);
    } else if constexpr (config.form == latent_form::expanded) {
      return dense_forward<dense_kernels<Kernel>>(args, multiprocessors, workspace);
    } else {
      return dense_selected<Kernel>(args, multiprocessors, workspace);
    }
  }
};

}  // namespace tessera::kernels::latent_attention::sm80
