// Products of a few rows of x with packed weights that have groups of inputs, on a GPU, at the
// speed at which memory gives the codes: each is read once, turned into an element without being
// rounded, multiplied by the matrix unit and scaled by group in f32.
//
// A block goes through an even share of all stages, tile by tile; a warp has 16 outputs. Tiles that
// several blocks share are summed by the last of them, in the order of the inputs. Rows of groups
// are cut into as few as that, each with blocks of its own.
#pragma once

#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/sm80/thin_codes.hpp>
#include <tessera/kernels/quantized/sm80/thin_lane.hpp>
#include <tessera/kernels/quantized/sm80/thin_stage.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/arrivals.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/pipeline.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::quantized::sm80 {

/// The first unit of a block.
__device__ __forceinline__ int first_unit(const thin_args& args, int block) {
  return (block * args.share + min(block, args.longer)) * args.step;
}
/// The block that has a unit, where none stay together.
__device__ __forceinline__ int block_of(const thin_args& args, int unit) {
  const int of_longer = args.longer * (args.share + 1);
  return unit < of_longer ? unit / (args.share + 1) : args.longer + (unit - of_longer) / args.share;
}

/// The word of a tile, in the module's memory (prim/cuda/arrival_table.hpp).
__device__ __forceinline__ unsigned* thin_word(int place, int tile) {
  static __device__ unsigned words[prim::cuda::arrival_places][prim::cuda::counted_tiles];
  return &words[place][tile];
}

/// Puts an element of the result.
__device__ __forceinline__ void put_output(const thin_args& args, const thin_rows_of_block& own,
                                           int row, std::int64_t output, float sum) {
  if (row >= own.rows || output >= args.call.weights.rows) return;
  const strided_matrix& out = args.call.out;
  prim::cuda::put_number(out.data, out.type, (own.first + row) * out.row + output, sum);
}

/// Rows of no group are 0.
__device__ __forceinline__ void put_zeros(const thin_args& args, const thin_rows_of_block& own) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t output = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       output < args.call.weights.rows; output += step) {
    for (int row = 0; row < own.rows; ++row) put_output(args, own, row, output, 0.0f);
  }
}

/// Where a block leaves the sums of a tile that it shares: of its first one and its last one.
template <class layout>
__device__ __forceinline__ float* sums_of_block(const thin_args& args, int block, bool is_last) {
  const std::int64_t number = std::int64_t{blockIdx.y} * gridDim.x + block;
  return args.partial + (number * 2 + (is_last ? 1 : 0)) * (layout::rows * layout::outputs);
}

/// Adds up what the blocks of a tile have left, in their order, if the caller is the last of them.
template <class layout>
__device__ __forceinline__ void combine_if_last(const thin_args& args,
                                                const thin_rows_of_block& own, int tile) {
  __shared__ unsigned is_last;
  const int first = block_of(args, tile * args.stages_of_tile);
  const int last = block_of(args, (tile + 1) * args.stages_of_tile - 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    const int word = static_cast<int>(blockIdx.y) * args.tiles + tile;
    const prim::cuda::arrivals counted(thin_word(args.arrivals, word), last - first + 1, 1);
    is_last = counted.arrive(0);
  }
  __syncthreads();
  if (is_last == 0) return;
  constexpr int together = 4;  // outputs of a thread
  for (int at = static_cast<int>(threadIdx.x) * together; at < layout::rows * layout::outputs;
       at += layout::threads * together) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int block = first; block <= last; ++block) {
      const float4 part = __ldcg(
          reinterpret_cast<const float4*>(sums_of_block<layout>(args, block, block == first) + at));
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    const float of_output[together] = {sum.x, sum.y, sum.z, sum.w};
    const int row = at / layout::outputs;
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::int64_t output = std::int64_t{tile} * layout::outputs + at % layout::outputs + i;
      put_output(args, own, row, output, of_output[i]);
    }
  }
}

/// out [batch, rows] = x w^T; groups have `Period` columns or more. x and codes begin at multiples
/// of 16 bytes.
template <class Element, thin_code Code, int Period, int Tiles>
__global__ void __launch_bounds__(thin_layout<Code, Tiles>::threads,
                                  thin_layout<Code, Tiles>::blocks)
    multiply_thin(const __grid_constant__ thin_args args) {
  using layout = thin_layout<Code, Tiles>;
  extern __shared__ __align__(128) unsigned char thin_memory[];
  const std::uint32_t memory = prim::cuda::shared_address(thin_memory);
  const auto stage_bytes =
      static_cast<std::uint32_t>(layout::stage_bytes(args.scales.bytes, args.zeros.bytes));
  const int begin = first_unit(args, static_cast<int>(blockIdx.x));
  const int end = first_unit(args, static_cast<int>(blockIdx.x) + 1);
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const thin_rows_of_block own = rows_of_block(args, layout::rows);
  if (own.rows == 0) return;
  if (own.matrix < 0) return put_zeros(args, own);
  const thin_operands operands(args, own);
  const thin_lane<Element, Code, Period, Tiles> lane(args);
  thin_place<layout> here(args, begin), ahead = here;
  prim::cuda::pipeline<layout::stages> ring;
#pragma unroll
  for (int i = 0; i < layout::stages - 1; ++i) {
    if (begin + i < end) {
      copy_stage<layout>(args, operands, memory + static_cast<std::uint32_t>(i) * stage_bytes,
                         ahead);
    }
    ring.commit();
    ahead.advance(args);
  }
  thin_sums<Tiles> totals;
  bool whole = here.stage == 0;
  for (int unit = begin; unit < end; ++unit) {
    ring.template wait<layout::stages - 2>();
    if (unit + layout::stages - 1 < end) {
      const int place = ring.stage() == 0 ? layout::stages - 1 : ring.stage() - 1;
      copy_stage<layout>(args, operands, memory + static_cast<std::uint32_t>(place) * stage_bytes,
                         ahead);
      ahead.advance(args);
    }
    ring.commit();
    lane.multiply(memory + static_cast<std::uint32_t>(ring.stage()) * stage_bytes, here.stage,
                  totals);
    ring.advance();
    const bool ends_tile = here.stage + 1 == args.stages_of_tile;
    if (ends_tile || unit + 1 == end) {
      const packed_weights& weights = args.call.weights;
      const auto* const tensor_scale = static_cast<const float*>(weights.tensor_scale);
      const float of_tensor = tensor_scale != nullptr ? tensor_scale[own.matrix] : 1.0f;
      if (whole && ends_tile) {
        lane.each(totals, [&](int row, int output, float sum) {
          put_output(args, own, row, here.first + output, sum * of_tensor);
        });
      } else {
        float* const partial = sums_of_block<layout>(args, static_cast<int>(blockIdx.x), whole);
        lane.each(totals, [&](int row, int output, float sum) {
          partial[row * layout::outputs + output] = sum * of_tensor;
        });
        combine_if_last<layout>(args, own, static_cast<int>(here.first / layout::outputs));
      }
      totals.clear();
      whole = true;
    }
    here.advance(args);
  }
}

}  // namespace tessera::kernels::quantized::sm80
