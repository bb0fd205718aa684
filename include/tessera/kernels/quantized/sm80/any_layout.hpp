// Launches over weights in any layout: those that lie k-major are brought into rows before, and
// what is written into columns behind.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/quantized/common/row_copies.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

inline constexpr int turn_edge = 64, turn_threads = 256;

/// Lines of a launch; blocks [first[i], first[i + 1]) have tiles of list[i].
struct turn_args {
  row_copies::turned_list list;
  std::array<std::int64_t, row_copies::most_turned + 1> first{};
  const std::int32_t* sizes = nullptr;  ///< of groups; matrices of those without rows stay
};

constexpr std::int64_t turn_tiles(std::int64_t numbers) {
  return (numbers + turn_edge - 1) / turn_edge;
}

template <class Number>
__device__ __forceinline__ void turn_tile(const turned_lines& turned, std::int64_t number,
                                          std::uint32_t (&tile)[turn_edge][turn_edge + 1]) {
  const std::int64_t across = turn_tiles(turned.width), down = number / across;
  const std::int64_t first_line = down * turn_edge, first = (number - down * across) * turn_edge;
  const auto* const from =
      reinterpret_cast<const Number*>(turned.from) + blockIdx.y * turned.from_matrix;
  auto* const to = reinterpret_cast<Number*>(turned.to) + blockIdx.y * turned.to_matrix;
  constexpr int lanes = prim::cuda::warp_size, warps = turn_threads / lanes;
  constexpr int of_thread = turn_edge * turn_edge / turn_threads, across_tile = turn_edge / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int warp = static_cast<int>(threadIdx.x) / lanes;
  // Number i of a thread, in a line of the tile. All of them before the first is stored, so that
  // they come together.
  const auto line_of = [&](int i) { return warp + i / across_tile * warps; };
  const auto column_of = [&](int i) { return lane + i % across_tile * lanes; };
  Number own[of_thread];
#pragma unroll
  for (int i = 0; i < of_thread; ++i) {
    const std::int64_t line = first_line + line_of(i), column = first + column_of(i);
    const bool exists = line < turned.lines && column < turned.width;
    own[i] = exists ? from[line * turned.from_line + column] : Number{};
  }
#pragma unroll
  for (int i = 0; i < of_thread; ++i) tile[line_of(i)][column_of(i)] = own[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < of_thread; ++i) {
    const std::int64_t line = first + line_of(i), column = first_line + column_of(i);
    if (line < turned.width && column < turned.lines) {
      to[line * turned.to_line + column] = static_cast<Number>(tile[column_of(i)][line_of(i)]);
    }
  }
}

static __global__ void __launch_bounds__(turn_threads) turn_numbers(const turn_args args) {
  if (args.sizes != nullptr && args.sizes[blockIdx.y] <= 0) return;
  __shared__ std::uint32_t tile[turn_edge][turn_edge + 1];
  const std::int64_t block = blockIdx.x;
#pragma unroll
  for (std::size_t i = 0; i < row_copies::most_turned; ++i) {
    if (block < args.first[i] || block >= args.first[i + 1]) continue;
    const turned_lines& turned = args.list[i];
    const std::int64_t number = block - args.first[i];
    if (turned.size == 4) turn_tile<std::uint32_t>(turned, number, tile);
    if (turned.size == 2) turn_tile<std::uint16_t>(turned, number, tile);
    if (turned.size == 1) turn_tile<std::uint8_t>(turned, number, tile);
  }
}

/// A launch of `Row`, whose args are those of weights in rows.
template <class Row>
class any_layout {
 public:
  template <class... More>
  any_layout(const quantized_kernel_args& args, bool packs, std::byte* workspace,
             const More&... more)
      : turns_(args.k_major),
        rows_(args, packs, copies_in(workspace, args, packs, more...)),
        row_(rows_.args(), workspace, more...) {}
  any_layout(const any_layout&) = delete;
  any_layout& operator=(const any_layout&) = delete;

  static auto entries() {
    return cuda::joined(Row::entries(), std::array{cuda::entry_of(&turn_numbers)});
  }
  std::size_t bytes() const {
    return turns_ ? begin_of_copies(row_) + rows_.bytes() : row_.bytes();
  }

  status launch(cudaStream_t stream) {
    if (!turns_) return row_.launch(stream, cuda::starts_early<any_layout>());
    if (const cudaError_t code = turn(rows_.before(), stream); code != cudaSuccess) {
      return cuda::launched(code);
    }
    // Kernels that start early look at weights before they wait.
    if (status done = row_.launch(stream, false); !done) return done;
    return cuda::launched(turn(rows_.behind(), stream));
  }

 private:
  /// Copies lie behind the row's memory, by whose address its words of arrivals are known.
  static std::size_t begin_of_copies(const Row& row) { return (row.bytes() + 255) / 256 * 256; }
  template <class... More>
  static std::byte* copies_in(std::byte* workspace, const quantized_kernel_args& args, bool packs,
                              const More&... more) {
    if (workspace == nullptr || !args.k_major) return workspace;
    const row_copies counted(args, packs, nullptr);
    return workspace + begin_of_copies(Row(counted.args(), nullptr, more...));
  }

  cudaError_t turn(const row_copies::turned_list& list, cudaStream_t stream) const {
    turn_args turned{.list = list};
    for (std::size_t i = 0; i < list.size(); ++i) {
      turned.first[i + 1] = turned.first[i] + turn_tiles(list[i].lines) * turn_tiles(list[i].width);
    }
    const quantized_kernel_args& call = rows_.args();
    if (turned.first.back() == 0 || call.matrices == 0) return cudaSuccess;
    if (call.group_sizes != nullptr) turned.sizes = call.group_sizes + call.group_offset;
    dim3 grid = cuda::grid_of(turned.first.back());
    grid.y = static_cast<unsigned>(call.matrices);
    return prim::cuda::launch_kernel(&turn_numbers, grid, turn_threads, 0, stream, false, turned);
  }

  bool turns_;
  row_copies rows_;
  Row row_;
};

}  // namespace tessera::kernels::quantized::sm80
