// The three scans of gradients (../sm80/chunk_scans.hpp) by the kernels that go forward
// (delta_rule/sm90/). A state that returns decays by the token it has taken: the factors of a token
// are those of the one before it, and the last state decays once more.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm90/column_walkers.hpp>
#include <tessera/kernels/chunked_scan/sm90/walk_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_forward.hpp>
#include <tessera/kernels/delta_rule/sm90/head_forward.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

/// All three where a head's channels decay alike or not at all.
template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    heads_back_through(__grid_constant__ const back_launch launch, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const back_launch::scan& scan = launch.scans[blockIdx.y];
  delta_rule::sm90::take_heads_through<Element, Shape>(scan.walk.args, scan.walk.further, scan.back,
                                                       tiles, memory);
}

/// That of values where channels of keys decay by themselves.
template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    channels_back_through(__grid_constant__ const back_launch launch, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const back_launch::scan& scan = launch.scans[blockIdx.y];
  delta_rule::sm90::take_chunks_through<Element, Shape>(
      scan.walk.args, scan.walk.further, scan.back, tiles, memory,
      [&](delta_rule::sm90::walk_memory<Shape>& shared, const delta_rule::sequence& all,
          std::int64_t head, std::int64_t column) {
        delta_rule::sm90::state_walker<Element, Shape>(scan.walk.args, shared, column)
            .walk(all, head, scan.back);
      });
}

/// Those of queries and keys then: columns of their states decay by themselves.
template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    columns_back_through(__grid_constant__ const back_launch launch, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const back_launch::scan& scan = launch.scans[blockIdx.y];
  delta_rule::sm90::take_chunks_through<Element, Shape>(
      scan.walk.args, scan.walk.further, scan.back, tiles, memory,
      [&](delta_rule::sm90::walk_memory<Shape>& shared, const delta_rule::sequence& all,
          std::int64_t head, std::int64_t column) {
        column_walker<Element, Shape>(launch, shared, all, head, column).walk();
      });
}

/// The kernels of a row, of blocks of 128 columns.
template <class Element, int Keys>
struct back_walks {
  using heads = delta_rule::sm90::head_shape<Keys, false, true>;
  using channels = delta_rule::sm90::walk_shape<Keys, false, false, true>;
  using columns = delta_rule::sm90::column_shape<Keys>;
  static_assert(heads::columns == channels::columns && heads::columns == columns::columns);
  static constexpr auto through_heads = &heads_back_through<Element, heads>;
  static constexpr auto through_channels = &channels_back_through<Element, channels>;
  static constexpr auto through_columns = &columns_back_through<Element, columns>;
  static constexpr int head_bytes = static_cast<int>(sizeof(delta_rule::sm90::head_memory<heads>));
  static constexpr int channel_bytes =
      static_cast<int>(sizeof(delta_rule::sm90::walk_memory<channels>));
  static constexpr int column_bytes =
      static_cast<int>(sizeof(delta_rule::sm90::walk_memory<columns>));

  static auto entries() {
    return std::array{cuda::entry_of(through_heads, head_bytes),
                      cuda::entry_of(through_channels, channel_bytes),
                      cuda::entry_of(through_columns, column_bytes)};
  }
  static cudaError_t launch(const chunked_scan_kernel_args& call, const sm80::chunk_states& states,
                            const sm80::chunk_scan& of_queries, const sm80::chunk_scan& of_keys,
                            const sm80::chunk_scan& of_values, cudaStream_t stream) {
    const auto start = [&](auto kernel, int threads, int shared_bytes, auto... scans) {
      constexpr unsigned count = sizeof...(scans);
      const std::int64_t width = std::max({scans.values...});
      const std::int64_t tiles = (width + heads::columns - 1) / heads::columns;
      const std::int64_t blocks = delta_rule::sequences_with_rest(call) * call.heads * tiles;
      if (blocks <= 0) return cudaSuccess;
      dim3 grid = cuda::grid_of(blocks);
      grid.y = count;
      return prim::cuda::launch_kernel(
          kernel, grid, threads, shared_bytes, stream, false,
          back_launch{.call = call, .states = states, .scans = {scan_of(call, scans)...}},
          static_cast<int>(tiles));
    };
    if (call.gk.data == nullptr) {
      return start(through_heads, heads::threads, head_bytes, of_queries, of_keys, of_values);
    }
    const cudaError_t code =
        start(through_columns, columns::threads, column_bytes, of_queries, of_keys);
    return code == cudaSuccess
               ? start(through_channels, channels::threads, channel_bytes, of_values)
               : code;
  }
};

}  // namespace tessera::kernels::chunked_scan::sm90
