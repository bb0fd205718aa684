// The kernels of a row of chunks, and its launches: by what decays, and by the columns of a block.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_bonus_gradients.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_forward.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scratch.hpp>
#include <tessera/kernels/chunked_scan/sm80/decay_launch.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

inline chunk_decay decay_of(const chunked_scan_kernel_args& args) {
  if (args.u.data != nullptr) return chunk_decay::bonus;
  return args.gk.data != nullptr ? chunk_decay::channels : chunk_decay::heads;
}

/// A kernel, its threads and its shared memory.
template <bool Back>
struct chunk_kernel {
  void (*kernel)(chunk_launch<Back>) = nullptr;
  int threads = 0, shared_bytes = 0;
};

/// All kernels of a row of chunks.
template <class Kernel>
struct chunk_kernels {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = resolved(Kernel::config).key_dim;
  static constexpr bool is_backward = Kernel::config.pass == chunked_scan_pass::backward;
  /// Rows times decays of channels go beyond the range of f16.
  static constexpr bool takes_channels = !recurrence::sm80::range_is_short<element>;
  /// For the gradients of decays, as operands of products.
  static constexpr bool keeps_states = is_backward && takes_channels;
  using of_decays = decay_kernels<element, keys>;
  using kernel_type = chunk_kernel<is_backward>;
  /// With decays of heads a warp has 32 of 128 columns; decays of channels need its registers.
  /// Scans of gradients spill with 32: all have 64 columns a block.
  template <chunk_decay Decay, int Columns>
  using shape =
      std::conditional_t<Columns == 64 || (is_backward && Decay == chunk_decay::heads),
                         chunk_shape<keys, 1, 4>,
                         std::conditional_t<Decay == chunk_decay::heads, chunk_shape<keys, 2, 4>,
                                            chunk_shape<keys, 1, 8>>>;
  template <chunk_decay Decay, int Columns>
  static kernel_type of_shape() {
    using of = shape<Decay, Columns>;
    constexpr int bytes = sizeof(chunk_memory<of, Decay>);
    static_assert(bytes <= chunk_shared_bytes(Kernel::config));
    return {&chunk_through<element, of, Decay, is_backward>, of::threads, bytes};
  }
  template <chunk_decay Decay>
  static kernel_type of_columns(int columns) {
    return columns == 64 ? of_shape<Decay, 64>() : of_shape<Decay, 128>();
  }
  /// Scans of gradients with a bonus have blocks of one width.
  static constexpr int bonus_columns = keys;
  static kernel_type of(chunk_decay decay, int columns) {
    if constexpr (takes_channels) {
      if (decay == chunk_decay::channels) return of_columns<chunk_decay::channels>(columns);
      if constexpr (is_backward) {
        if (decay == chunk_decay::values) return of_columns<chunk_decay::values>(columns);
        if (decay == chunk_decay::bonus) return of_shape<chunk_decay::bonus, bonus_columns>();
        if (decay == chunk_decay::values_and_bonus) {
          return of_shape<chunk_decay::values_and_bonus, bonus_columns>();
        }
      } else if (decay == chunk_decay::bonus) {
        return of_columns<chunk_decay::bonus>(columns);
      }
    }
    return of_columns<chunk_decay::heads>(columns);
  }
  static auto entries() {
    constexpr std::size_t further = keeps_states ? 6 : is_backward ? 1 : takes_channels ? 2 : 0;
    std::array<prim::cuda::kernel_entry,
               (takes_channels ? 4 : 2) + further + (keeps_states ? 2 : 0)>
        all;
    std::size_t count = 0;
    const auto add = [&](chunk_decay decay, int columns) {
      const kernel_type of_row = of(decay, columns);
      all[count++] = cuda::entry_of(of_row.kernel, of_row.shared_bytes);
    };
    const auto add_both = [&](chunk_decay decay) {
      add(decay, 64);
      add(decay, 128);
    };
    add_both(chunk_decay::heads);
    if constexpr (takes_channels) add_both(chunk_decay::channels);
    if constexpr (takes_channels && !is_backward) add_both(chunk_decay::bonus);
    if constexpr (is_backward) {
      all[count++] = cuda::entry_of(&recurrence::sm80::add_head_shares<chunked_scan_rows>);
    }
    if constexpr (keeps_states) {
      add_both(chunk_decay::values);
      add(chunk_decay::bonus, bonus_columns);
      add(chunk_decay::values_and_bonus, bonus_columns);
      static_assert(of_decays::shared_bytes <= chunk_shared_bytes(Kernel::config));
      all[count++] = of_decays::template entry_of<false>();
      all[count++] = of_decays::template entry_of<true>();
      all[count++] = cuda::entry_of(&add_bonus_gradients<element>);
    }
    return all;
  }
};

/// Queues the first `scans` of a launch.
template <class Kernel, bool Back>
cudaError_t launch_scans(chunk_launch<Back>& launch, int scans, chunk_decay decay,
                         int multiprocessors, cudaStream_t stream) {
  const chunked_scan_kernel_args& call = launch.call;
  std::int64_t columns = 0;
  for (int i = 0; i < scans; ++i) columns = std::max<std::int64_t>(columns, launch.scans[i].values);
  const std::int64_t states = sequences_with_rest(call) * call.heads;
  const auto of_width = [&](int width) {
    return chunk_blocks{.columns = width, .count = (columns + width - 1) / width};
  };
  const chunk_blocks blocks =
      Back && decay == chunk_decay::heads ? of_width(64)
      : Back && reads_before(decay)
          ? of_width(chunk_kernels<Kernel>::bonus_columns)
          : chunk_blocks_of(columns, call.sequences * call.heads, multiprocessors);
  if (states * blocks.count <= 0) return cudaSuccess;
  launch.tiles = static_cast<int>(blocks.count);
  const chunk_kernel<Back> of_call = chunk_kernels<Kernel>::of(decay, blocks.columns);
  dim3 grid = cuda::grid_of(states * blocks.count);
  grid.y = static_cast<unsigned>(scans);
  return prim::cuda::launch_kernel(of_call.kernel, grid, of_call.threads, of_call.shared_bytes,
                                   stream, false, launch);
}

template <class Kernel>
cudaError_t launch_chunks(const chunked_scan_kernel_args& args, int multiprocessors,
                          cudaStream_t stream) {
  chunk_launch<false> launch{.call = args, .scans = {forward_scan_of(args)}};
  return launch_scans<Kernel>(launch, 1, decay_of(args), multiprocessors, stream);
}

/// Behind those: the bonus has a sum over all tokens.
template <class Kernel>
cudaError_t launch_bonus_gradients(const decay_gradients& args, cudaStream_t stream) {
  constexpr int threads = 128;
  const std::int64_t blocks = (args.call.heads * args.call.keys + threads - 1) / threads;
  return prim::cuda::launch_kernel(&add_bonus_gradients<typename chunk_kernels<Kernel>::element>,
                                   cuda::grid_of(blocks), threads, 0, stream, false, args);
}

template <class Kernel>
cudaError_t launch_chunks_back(const chunked_scan_kernel_args& call, std::byte* workspace,
                               int multiprocessors, cudaStream_t stream) {
  const chunk_scratch scratch(call, chunk_kernels<Kernel>::keys, workspace);
  const chunk_scan of_queries = query_scan_of(call, scratch.kept.of_s);
  const chunk_scan of_keys = key_scan_of(call, scratch.d_k, scratch.kept.of_d);
  const chunk_scan of_values = value_scan_of(call, scratch.d_v);
  cudaError_t code = cudaSuccess;
  const auto launch = [&](chunk_decay decay, auto... scans) {
    if (code != cudaSuccess) return;
    chunk_launch<true> args{.call = call, .scans = {scans...}, .states = scratch.kept};
    code = launch_scans<Kernel>(args, sizeof...(scans), decay, multiprocessors, stream);
  };
  if (call.gk.data == nullptr) {
    launch(chunk_decay::heads, of_queries, of_keys, of_values);
  } else {
    const bool bonus = call.u.data != nullptr;
    launch(bonus ? chunk_decay::values_and_bonus : chunk_decay::values, of_queries, of_keys);
    launch(bonus ? chunk_decay::bonus : chunk_decay::channels, of_values);
  }
  if constexpr (chunk_kernels<Kernel>::keeps_states) {
    if (code == cudaSuccess && scratch.of_decays) {
      const decay_gradients args{.call = call,
                                 .states = scratch.kept,
                                 .scale_of_d = of_keys.final_scale,
                                 .of_u = scratch.of_u};
      using decays = typename chunk_kernels<Kernel>::of_decays;
      code = call.u.data != nullptr ? decays::template launch<true>(args, stream)
                                    : decays::template launch<false>(args, stream);
      if (code == cudaSuccess && call.d_u.data != nullptr) {
        code = launch_bonus_gradients<Kernel>(args, stream);
      }
    }
  }
  return code == cudaSuccess ? add_head_shares(call, scratch, stream) : code;
}

}  // namespace tessera::kernels::chunked_scan::sm80
