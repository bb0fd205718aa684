// Which kernel of a row of chunks a launch has: by what decays, and by the columns of a block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_forward.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

inline chunk_decay decay_of(const chunked_scan_kernel_args& args) {
  if (args.u.data != nullptr) return chunk_decay::bonus;
  return args.gk.data != nullptr ? chunk_decay::channels : chunk_decay::heads;
}

/// A kernel, its threads and its shared memory.
struct chunk_kernel {
  void (*kernel)(chunked_scan_kernel_args, int) = nullptr;
  int threads = 0, shared_bytes = 0;
};

/// All kernels of a row of chunks.
template <class Kernel>
struct chunk_kernels {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = resolved(Kernel::config).key_dim;

  /// With decays of heads a warp has 32 of 128 columns; decays of channels need its registers.
  template <chunk_decay Decay, int Columns>
  using shape =
      std::conditional_t<Columns == 64, chunk_shape<keys, 1, 4>,
                         std::conditional_t<Decay == chunk_decay::heads, chunk_shape<keys, 2, 4>,
                                            chunk_shape<keys, 1, 8>>>;
  template <chunk_decay Decay, int Columns>
  static chunk_kernel of_shape() {
    using of = shape<Decay, Columns>;
    return {&chunk_through<element, of, Decay>, of::threads,
            static_cast<int>(sizeof(chunk_memory<of, Decay>))};
  }
  template <chunk_decay Decay>
  static chunk_kernel of_columns(int columns) {
    return columns == 64 ? of_shape<Decay, 64>() : of_shape<Decay, 128>();
  }
  static chunk_kernel of(chunk_decay decay, int columns) {
    if (decay == chunk_decay::heads) return of_columns<chunk_decay::heads>(columns);
    return decay == chunk_decay::channels ? of_columns<chunk_decay::channels>(columns)
                                          : of_columns<chunk_decay::bonus>(columns);
  }

  static auto entries() {
    constexpr std::array decays{chunk_decay::heads, chunk_decay::channels, chunk_decay::bonus};
    std::array<prim::cuda::kernel_entry, 2 * decays.size()> all;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const chunk_kernel of_row = of(decays[i / 2], i % 2 == 0 ? 64 : 128);
      all[i] = cuda::entry_of(of_row.kernel, of_row.shared_bytes);
    }
    return all;
  }
};

template <class Kernel>
cudaError_t launch_chunks(const chunked_scan_kernel_args& args, int multiprocessors,
                          cudaStream_t stream) {
  const std::int64_t states = sequences_with_rest(args) * args.heads;
  const chunk_blocks blocks =
      chunk_blocks_of(args.values, args.sequences * args.heads, multiprocessors);
  if (states * blocks.count <= 0) return cudaSuccess;
  const chunk_kernel of_call = chunk_kernels<Kernel>::of(decay_of(args), blocks.columns);
  return prim::cuda::launch_kernel(of_call.kernel, cuda::grid_of(states * blocks.count),
                                   of_call.threads, of_call.shared_bytes, stream, false, args,
                                   static_cast<int>(blocks.count));
}

}  // namespace tessera::kernels::chunked_scan::sm80
