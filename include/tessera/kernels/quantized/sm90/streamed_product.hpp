// Products of rows of x with packed weights by wgmma (compute capability 9.0, sm_90a), transposed:
// weights are the operand that lies in registers, x the one in shared memory. Codes and x come by
// the copy unit, scales and zeros by copies of a warp.
//
// A block stays for the whole launch: a thread brings stages, warpgroups multiply. Blocks take
// whole tiles as long as there is one for each; then each goes through an even share of the stages
// that are left; where tiles behind the waves are 0.4 to 0.5 of the blocks, two blocks of a cluster
// have half of the stages of one each. Tiles that several blocks share are summed by those that end
// last, in the order of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>
#include <tessera/kernels/quantized/sm90/streamed_results.hpp>
#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::quantized::sm90 {

/// A warpgroup that multiplies. `Short`: a lane's columns of a line have two groups.
template <class Element, thin_code Code, bool Nv, bool Short, int Rows>
class streamed_sums {
  using shape = streamed_shape<Code, Rows>;
  using line = code_line<Code>;
  using memory = typename shape::shared_memory;
  using product = prim::cuda::warpgroup_product<Element, Rows>;
  static constexpr int tiles = shape::tiles;
  static constexpr int numbers = Short ? 2 : 1;  ///< of a lane's part of a line

 public:
  __device__ __forceinline__ streamed_sums(const streamed_args& args, memory& shared, int warpgroup)
      : args_(args),
        shared_(shared),
        base_(prim::cuda::computed_anew(prim::cuda::shared_address(&shared))),
        t_(threadIdx.x % 4),
        output_(static_cast<unsigned>(warpgroup) * 64 * tiles + threadIdx.x / 32 % 4 * 16 +
                place_of_row(threadIdx.x % 32 / 4)) {}

  __device__ __forceinline__ void run() {
    const std::uint32_t stages = base_ + offsetof(memory, of_stage);
    const std::uint32_t slots = base_ + offsetof(memory, of_slot);
    streamed_walk<shape> walk(args_);
    streamed_piece piece;
    bool again = false;  // stages before this one
    while (walk.next(piece)) {
      clear();
#pragma unroll 1
      for (int i = piece.first; i < piece.first + piece.count; ++i) {
        if (piece.begins_slot(args_, i)) {
          if (again) leave(slot_, slots);
          slot_.wait_full(slots);
        }
        ring_.wait_full(stages);
        multiply(i, again, stages);
        ring_.advance();
        again = true;
      }
      prim::cuda::wait_products<0>();
#pragma unroll
      for (auto& tile : sums_) prim::cuda::keep_in_place(tile);
      streamed_results<shape>(args_, shared_, t_, output_).finish(piece, sums_);
    }
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& tile : sums_) {
#pragma unroll
      for (float& sum : tile) sum = 0.0f;
    }
  }
  /// Row of the matrix unit's tile to output: lanes that load together have different banks.
  static __device__ __forceinline__ unsigned place_of_row(unsigned row) {
    return shape::lines == 1 ? row : row / 2 + row % 2 * 4;
  }

  /// The products of a stage; `before`: releases the one before once its products have ended.
  __device__ __forceinline__ void multiply(int stage, bool before, std::uint32_t barriers) {
#pragma unroll 1
    for (int number = 0; number < shape::lines; ++number) {
      multiply_line(stage, number, before && number == 0, barriers);
    }
  }

  __device__ __forceinline__ void multiply_line(int stage, int number, bool before,
                                                std::uint32_t barriers) {
    std::uint32_t words[tiles][2][4];
    group_pairs own[tiles][2][numbers];
    load_lines(number, words);
    load_numbers(stage * shape::lines + number, own);
    constexpr int panels_of_line = shape::panels / shape::lines;
    const std::uint32_t x = base_ + offsetof(memory, x) + ring_.stage() * shape::x_bytes +
                            static_cast<unsigned>(number * panels_of_line * shape::panel_bytes);
    // By way of a shuffle, so that the compiler knows it to be the same for the whole warp.
    const std::uint64_t panels = prim::cuda::describe_panels(x, shape::panel_bytes);
    const std::uint32_t first =
        __shfl_sync(prim::cuda::all_lanes, static_cast<std::uint32_t>(panels), 0);
    prim::cuda::warpgroup_a a[line::chunks][tiles][2];
    decode(words, own, 0, a[0]);
#pragma unroll
    for (int chunk = 0; chunk < line::chunks; ++chunk) {
      prim::cuda::begin_products();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = chunk * 2 + i;  // of 16 columns
        constexpr std::uint64_t upper = std::uint64_t{0x40000040u} << 32;
        const std::uint64_t b =
            upper | (first + static_cast<std::uint32_t>(prim::cuda::panel_step(
                                 step / 4 * shape::panel_bytes + step % 4 * 32)));
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          product::sums_of_rows(sums_[tile], a[chunk][tile][i], b);
        }
      }
      prim::cuda::commit_products();
      if (chunk == 0 && before) {
        prim::cuda::wait_products<1>();
        leave(released_, barriers);
      }
      if (chunk + 1 < line::chunks) decode(words, own, chunk + 1, a[chunk + 1]);
    }
    prim::cuda::wait_products<1>();
  }

  __device__ __forceinline__ void load_lines(int number,
                                             std::uint32_t (&words)[tiles][2][4]) const {
    const std::uint32_t codes = base_ + offsetof(memory, codes) + ring_.stage() * shape::code_bytes;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned output = output_ + static_cast<unsigned>(tile * 64 + r * 8);
        const unsigned chunk = shape::lines == 1
                                   ? t_ ^ (output / 2 % 4)
                                   : (t_ + static_cast<unsigned>(number * 4)) ^ (output % 8);
        prim::cuda::load_shared_16(words[tile][r],
                                   codes + output * (shape::lines * code_line_bytes) + chunk * 16);
      }
    }
  }
  __device__ __forceinline__ void load_numbers(int number,
                                               group_pairs (&to)[tiles][2][numbers]) const {
    constexpr int bytes = number_bytes_of(Code);
    const int column = number * line::columns + static_cast<int>(t_) * line::lane_columns;
    const auto group =
        static_cast<unsigned>(column >> args_.group_shift) % (number_line_bytes / bytes);
    const std::uint32_t scales =
        base_ + offsetof(memory, numbers) + slot_.stage() * 2 * shape::number_bytes + group * bytes;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned output = output_ + static_cast<unsigned>(tile * 64 + r * 8);
#pragma unroll
        for (int i = 0; i < numbers; ++i) {
          const std::uint32_t at =
              scales + output * number_line_bytes + static_cast<unsigned>(i * bytes);
          to[tile][r][i] = load_group<Element, Code, Nv>(args_.form, at, at + shape::number_bytes);
        }
      }
    }
  }

  /// A chunk of a stage as weights, in place before the products that take them begin.
  static __device__ __forceinline__ void decode(const std::uint32_t (&words)[tiles][2][4],
                                                const group_pairs (&own)[tiles][2][numbers],
                                                int chunk,
                                                prim::cuda::warpgroup_a (&to)[tiles][2]) {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      std::uint32_t pairs[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        std::uint32_t codes[line::words];
#pragma unroll
        for (int i = 0; i < line::words; ++i) codes[i] = words[tile][r][chunk * line::words + i];
        scaled_chunk<Element, Code>(codes, own[tile][r][chunk * numbers / line::chunks], pairs[r]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[tile][i] = {
            {pairs[0][2 * i], pairs[1][2 * i], pairs[0][2 * i + 1], pairs[1][2 * i + 1]}};
        prim::cuda::keep_in_place(to[tile][i].word);
      }
    }
  }

  const streamed_args& args_;
  memory& shared_;
  const std::uint32_t base_;  ///< the address of `shared_`: found once
  unsigned t_, output_;
  prim::cuda::ring_place<shape::stages> ring_, released_;
  prim::cuda::ring_place<shape::slots> slot_;
  float sums_[tiles][Rows / 2];
};

/// out [batch, outputs] = x w^T.
template <class Element, thin_code Code, bool Nv, bool Short, int Rows>
__global__ void __launch_bounds__(streamed_shape<Code, Rows>::threads, 1)
    multiply_streamed(const __grid_constant__ streamed_args args) {
  using shape = streamed_shape<Code, Rows>;
  extern __shared__ __align__(1024) unsigned char streamed_memory[];
  auto& shared = *reinterpret_cast<typename shape::shared_memory*>(streamed_memory);
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    shared.of_stage.init(1, shape::warps);
    shared.of_slot.init(prim::cuda::warp_size, shape::warps);
    prim::cuda::publish_barriers();
  }
  __syncthreads();
  prim::cuda::let_next_grid_start();
  if (warpgroup == shape::groups) {
    prim::cuda::give_registers<shape::copying_registers>();
    const auto thread = static_cast<int>(threadIdx.x) - shape::multiplying;
    if (thread == 0) {
      streamed_copies<Code, shape>(args, shared).run();
    } else if (thread >= 32 && thread < 64) {
      streamed_numbers<Code, shape>(args, shared).run();
    }
  } else {
    prim::cuda::take_registers<shape::multiplying_registers>();
    streamed_sums<Element, Code, Nv, Short, Rows>(args, shared, warpgroup).run();
  }
}

}  // namespace tessera::kernels::quantized::sm90
