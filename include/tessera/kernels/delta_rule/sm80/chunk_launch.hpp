// Which kernel of a row of chunks a launch has: by the columns of a block.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_forward.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// All kernels of a row of chunks.
template <class Kernel>
struct chunk_kernels {
  template <int Columns>
  using shape = recurrence::sm80::chunk_shape<resolved(Kernel::config).key_dim, 1, Columns / 16>;
  template <int Columns>
  static constexpr int shared_bytes = static_cast<int>(sizeof(delta_chunk_memory<shape<Columns>>));

  template <int Columns>
  static auto of_columns() {
    return &chunk_through<element_t<Kernel::config.type>, shape<Columns>>;
  }
  static auto entries() {
    return std::array{cuda::entry_of(of_columns<64>(), shared_bytes<64>),
                      cuda::entry_of(of_columns<128>(), shared_bytes<128>)};
  }
};

template <class Kernel>
cudaError_t launch_chunks(const delta_rule_kernel_args& args, int multiprocessors,
                          cudaStream_t stream) {
  using kernels_of = chunk_kernels<Kernel>;
  const std::int64_t states = sequences_with_rest(args) * args.value_heads;
  const chunk_blocks blocks =
      chunk_blocks_of(args.value_dim, args.sequences * args.value_heads, multiprocessors);
  if (states * blocks.count <= 0) return cudaSuccess;
  const auto launch = [&]<int Columns>(std::integral_constant<int, Columns>) {
    return prim::cuda::launch_kernel(
        kernels_of::template of_columns<Columns>(), cuda::grid_of(states * blocks.count),
        kernels_of::template shape<Columns>::threads, kernels_of::template shared_bytes<Columns>,
        stream, false, args, static_cast<int>(blocks.count));
  };
  return blocks.columns == 64 ? launch(std::integral_constant<int, 64>{})
                              : launch(std::integral_constant<int, 128>{});
}

}  // namespace tessera::kernels::delta_rule::sm80
