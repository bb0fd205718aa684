// What chunks are before any state is known: gates, lengths of keys and queries, M and P (see
// chunk_forward.hpp) for the scans of the way back. `for each chunk { rows; gates; A and P; M;
// store }`; blocks share nothing.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_pieces.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_forward.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/prim/cuda/async_copy.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Shared memory of a block; see `delta_chunk_memory`.
template <class Shape>
struct chunk_weights_memory {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  solved_rows solved;
  head_decays decays;
  float beta[Shape::tokens];
  float scale_q[Shape::tokens], scale_k[Shape::tokens];
  ordered_rows rows_q, rows_k, rows_g, rows_beta;
};

/// Gates of a chunk to memory; the scale of the call goes into those of q.
template <class Shape>
__device__ __forceinline__ void store_gates(const chunk_back_args& args,
                                            chunk_weights_memory<Shape>& shared, chunk_gates& to) {
  const int row = static_cast<int>(threadIdx.x);
  if (row >= Shape::tokens) return;
  to.decays.sums[row] = shared.decays.sums[row];
  to.decays.front[row] = shared.decays.front[row];
  to.decays.rest[row] = shared.decays.rest[row];
  if (row == 0) to.decays.whole = shared.decays.whole;
  to.beta[row] = shared.beta[row];
  to.scale_k[row] = shared.scale_k[row];
  to.inverse_q[row] = shared.scale_q[row];
  to.scale_q[row] = shared.scale_q[row] *= args.call.scale;
}

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 4)
    make_chunk_weights(__grid_constant__ const chunk_back_args args) {
  static_assert(Shape::warps == 4);
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<chunk_weights_memory<Shape>*>(memory);
  const delta_rule_kernel_args& call = args.call;
  const recurrence::tile_item item(blockIdx.x, 1, call.value_heads);
  const sequence all = sequence_of<device_code>(call, item.sequence);
  if (all.is_rest || !all.has_states || all.length == 0) return;
  if (threadIdx.x == 0) find_rows_of_weights(shared, call, all, item.head);
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int keys = static_cast<int>(call.key_dim);
  const std::int64_t chunks = (all.length + Shape::tokens - 1) / Shape::tokens;
  for (std::int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    const std::int64_t first = chunk * Shape::tokens;
    const int count = static_cast<int>(min(all.length - first, std::int64_t{Shape::tokens}));
    copy_queries_and_keys<Element, Shape>(shared, call, first, count, keys);
    load_gates(call, shared, all, item.head, first);
    prim::cuda::wait_copies<0>();
    __syncthreads();
    measure_rows<Element, Shape>(shared, call.normalizes);
    __syncthreads();
    const std::int64_t place = args.place_of(all, chunk, item.head);
    store_gates(args, shared, args.gates[place]);
    __syncthreads();
    // Blocks above the diagonal are nobody's.
    unsigned char* const weights = args.weights + place * Shape::weight_rows::bytes;
    unsigned char* const inverse = args.inverses + place * Shape::weight_rows::bytes;
    make_weights<Element, Shape>(shared, warp, [&](int row, int tile, std::uint32_t word) {
      *reinterpret_cast<std::uint32_t*>(weights + weight_offset<Shape>(row, tile)) = word;
    });
    const auto put = [&](int row, int tile, const prim::cuda::accumulator& sums, float sign) {
      put_rounded<Element, Shape>(row, tile, sums, sign,
                                  [&](std::uint32_t offset, std::uint32_t word) {
                                    *reinterpret_cast<std::uint32_t*>(inverse + offset) = word;
                                  });
    };
    invert_diagonal(shared.solved, warp, put);
    __syncthreads();
    invert_below(shared.solved, warp, put);
    __syncthreads();
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
