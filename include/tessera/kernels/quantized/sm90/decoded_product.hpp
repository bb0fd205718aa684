// Products of many rows of x with packed weights by wgmma (compute capability 9.0, sm_90a): weights
// are decoded on their way into shared memory, and never exist anywhere else.
//
// A block stays for the whole launch. Two warpgroups multiply, 64 or 128 rows of x each; two decode
// the weights of 128 outputs for them, 64 inputs a stage, and one of their threads brings x.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/kernels/quantized/sm80/decode_pairs.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::quantized::sm90 {

using grouped_matmul::sm80::product_args;
using grouped_matmul::sm80::tile_place;

/// A launch: the weights, where results go, x in boxes.
struct decoded_launch {
  packed_weights weights;
  product_args product;
  CUtensorMap x;
};

/// The tile of a block: `Panels` times 64 rows of x for each warpgroup that multiplies.
template <int Panels>
struct decoded_shape {
  static constexpr int groups = 2;  ///< warpgroups that multiply, and that decode
  static constexpr int rows = 64 * Panels * groups, columns = 128;
  static constexpr int depth = 64;  ///< of a stage, as much as a row of a panel has
  static constexpr int row_bytes = prim::cuda::panel_row_bytes;
  static constexpr int panel_bytes = 64 * row_bytes;
  static constexpr int x_bytes = rows * row_bytes, weight_bytes = columns * row_bytes;
  static constexpr int stages = 196608 / (x_bytes + weight_bytes);
  static constexpr int warps = 4 * groups;  ///< of each kind
  static constexpr int threads = 2 * groups * prim::cuda::warpgroup_size;
  static constexpr int multiplying_registers = 176, decoding_registers = 80;
  static constexpr int band_rows = 2048;  ///< blocks that run together share both operands

  struct alignas(1024) shared_memory {
    unsigned char x[stages][x_bytes];
    unsigned char weights[stages][weight_bytes];
    prim::cuda::ring_barriers<stages> of_stage;
    float values[16];
  };

  static __device__ __forceinline__ tile_place place_of(const product_args& args,
                                                        std::int64_t tile) {
    return grouped_matmul::sm80::place_of(args, tile, rows, columns, band_rows / rows);
  }
};

/// A thread that decodes: 32 inputs of a stage, of one output.
template <class Element, int Bits, class Shape>
class decoder {
  using memory = typename Shape::shared_memory;
  using run_type = sm80::decode_run<Bits>;
  static constexpr int inputs = run_type::columns;
  static_assert(Shape::columns * Shape::depth == inputs * Shape::threads / 2);

 public:
  __device__ __forceinline__ decoder(const decoded_launch& all, memory& shared)
      : all_(all), shared_(shared) {}

  __device__ __forceinline__ void run() {
    for (std::int64_t tile = blockIdx.x;; tile += gridDim.x) {
      const tile_place at = Shape::place_of(all_.product, tile);
      if (!at.exists) return;
      fill_stages(at);
    }
  }

 private:
  __device__ __forceinline__ void fill_stages(const tile_place& at) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    const packed_weights& weights = all_.weights;
    const std::int64_t output = at.column + output_;
    const std::int64_t row = output < weights.rows ? output : weights.rows - 1;
    const auto* const codes =
        static_cast<const std::byte*>(weights.codes.data) + row * weights.codes.row * 4;
    const sm80::group_row scales(weights.scales, row), zeros(weights.zeros, row);
    const auto depth = static_cast<int>(at.depth);
    run_type next;
    if (first_input_ < depth) {
      next.load(weights, codes, scales, zeros, group_shift_, first_input_);
    }
#pragma unroll 1
    for (int k = 0; k < depth; k += Shape::depth) {
      const run_type own = next;
      const int input = k + first_input_;
      if (input + Shape::depth < depth) {
        next.load(weights, codes, scales, zeros, group_shift_, input + Shape::depth);
      }
      place_.wait_empty(barriers);
      const std::uint32_t full = place_.full(barriers), stage = place_.stage();
      if (thread_ == 0) {
        prim::cuda::arrive_expecting(full, Shape::x_bytes);
        const int box[4] = {k, static_cast<int>(at.row), 0, 0};
        prim::cuda::copy_box(prim::cuda::shared_address(shared_.x[stage]), all_.x, full, box,
                             prim::cuda::cache_hint::evict_normal);
      }
      __syncwarp();
      put(own, input < depth, prim::cuda::shared_address(shared_.weights[stage]));
      prim::cuda::show_writes_to_async_units();
      __syncwarp();
      if (thread_ % prim::cuda::warp_size == 0) prim::cuda::arrive(full);
      place_.advance();
    }
  }

  /// Weights as a row of the panels has them; zeros beyond the inputs.
  __device__ __forceinline__ void put(const run_type& codes, bool held,
                                      std::uint32_t panels) const {
    const auto store = [&](int unit, const std::uint32_t(&pairs)[4]) {
      const auto chunk = static_cast<std::uint32_t>(first_input_ / 8 + unit);
      prim::cuda::store_shared_16(
          panels + output_ * Shape::row_bytes + ((chunk ^ (output_ % 8)) * 16), pairs);
    };
    if (held) {
      codes.template decode<Element>(all_.weights, shared_.values, store);
      return;
    }
    constexpr std::uint32_t zeros[4] = {0, 0, 0, 0};
#pragma unroll
    for (int unit = 0; unit < run_type::units; ++unit) store(unit, zeros);
  }

  const decoded_launch& all_;
  memory& shared_;
  const unsigned thread_ = threadIdx.x - Shape::threads / 2;
  const unsigned output_ = thread_ % Shape::columns;
  const int first_input_ = static_cast<int>(thread_ / Shape::columns) * inputs;
  const int group_shift_ = sm80::group_shift_of(all_.weights);
  prim::cuda::ring_place<Shape::stages> place_;
};

/// A warpgroup that multiplies.
template <class Element, int Panels>
class multiplier {
  using shape = decoded_shape<Panels>;
  using memory = typename shape::shared_memory;
  using product = prim::cuda::warpgroup_product<Element, shape::columns>;

 public:
  __device__ __forceinline__ multiplier(const product_args& args, memory& shared, int warpgroup)
      : args_(args), shared_(shared), first_row_(warpgroup * 64 * Panels) {}

  __device__ __forceinline__ void run() {
    for (std::int64_t tile = blockIdx.x;; tile += gridDim.x) {
      const tile_place at = shape::place_of(args_, tile);
      if (!at.exists) return;
      multiply(static_cast<int>(at.depth), at.rows - at.row - first_row_);
#pragma unroll
      for (int panel = 0; panel < Panels; ++panel) {
        const int row = first_row_ + panel * 64;
        if (at.row + row < at.rows) {
          grouped_matmul::sm90::store_sums<Element>(args_, at, row, sums_[panel]);
        }
      }
    }
  }

 private:
  /// The sums of a tile; `rows` of x are left for the warpgroup. A stage is released once the
  /// products of the next one have begun.
  __device__ __forceinline__ void multiply(int depth, std::int64_t rows) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
#pragma unroll
    for (auto& panel : sums_) {
#pragma unroll
      for (float& sum : panel) sum = 0.0f;
    }
#pragma unroll 1
    for (int k = 0; k < depth; k += shape::depth) {
      place_.wait_full(barriers);
      if (rows > 0) {
        prim::cuda::begin_products();
        multiply_stage(place_.stage());
        prim::cuda::commit_products();
      }
      prim::cuda::wait_products<1>();
      if (k > 0) release(barriers);
      place_.advance();
    }
    prim::cuda::wait_products<0>();
#pragma unroll
    for (auto& panel : sums_) prim::cuda::keep_in_place(panel);
    if (depth > 0) release(barriers);
  }

  __device__ __forceinline__ void multiply_stage(std::uint32_t stage) {
    constexpr int panel = shape::panel_bytes;
    const std::uint64_t a = prim::cuda::describe_panels(
        prim::cuda::shared_address(shared_.x[stage]) + first_row_ * shape::row_bytes, panel);
    const std::uint64_t b =
        prim::cuda::describe_panels(prim::cuda::shared_address(shared_.weights[stage]), panel);
#pragma unroll
    for (int step = 0; step < shape::depth / 16; ++step) {
#pragma unroll
      for (int p = 0; p < Panels; ++p) {
        product::template multiply<false, false>(sums_[p],
                                                 a + prim::cuda::panel_step(p * panel + step * 32),
                                                 b + prim::cuda::panel_step(step * 32), true);
      }
    }
  }

  __device__ __forceinline__ void release(std::uint32_t barriers) {
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) released_.release(barriers);
    released_.advance();
  }

  const product_args& args_;
  memory& shared_;
  const int first_row_;
  prim::cuda::ring_place<shape::stages> place_, released_;
  float sums_[Panels][shape::columns / 2];
};

/// out [batch, rows] = x w^T; x and codes begin at multiples of 16 bytes, groups have 16 inputs or
/// more, inputs are whole runs of 32.
template <class Element, int Bits, int Panels>
__global__ void __launch_bounds__(decoded_shape<Panels>::threads, 1)
    multiply_decoded(const __grid_constant__ decoded_launch all) {
  using shape = decoded_shape<Panels>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<typename shape::shared_memory*>(bytes);
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    shared.of_stage.init(1 + shape::warps, shape::warps);
    prim::cuda::publish_barriers();
  }
  sm80::fill_values(all.weights, shared.values);  // meets at a barrier
  if (warpgroup >= shape::groups) {
    prim::cuda::give_registers<shape::decoding_registers>();
    decoder<Element, Bits, shape>(all, shared).run();
  } else {
    prim::cuda::take_registers<shape::multiplying_registers>();
    multiplier<Element, Panels>(all.product, shared, warpgroup).run();
  }
}

}  // namespace tessera::kernels::quantized::sm90
