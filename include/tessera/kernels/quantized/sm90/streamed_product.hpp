// Products of up to some hundred rows of x with packed weights by wgmma (compute capability 9.0,
// sm_90a), transposed: weights are the operand that lies in registers, x the one in shared memory.
// Codes, their scales and zeros and x come by the copy unit; codes are read once.
//
// A block stays for the whole launch and goes through an even share of all stages, tile by tile:
// one thread brings them, two warpgroups multiply. Tiles that several blocks share are summed by the
// last of them, in the order of the inputs.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/arrivals.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::quantized::sm90 {

/// A launch. Units are stages of tiles, tile by tile.
struct streamed_args {
  CUtensorMap codes, x, scales, zeros;
  strided_matrix out;
  const float* tensor_scale = nullptr;
  float* partial = nullptr;  ///< two tiles of each block
  std::int64_t outputs = 0;
  int batch = 0;
  int batch_tiles = 0;     ///< tiles of the same outputs, one behind the other
  int stages_of_tile = 0;
  int step = 1;            ///< units that stay together
  int share = 0;           ///< steps of a block
  int longer = 0;          ///< blocks that have one more
  int group_shift = 0;     ///< log2 of the group size
  int slot_shift = 0;      ///< log2 of the stages that a line of numbers is for
  int arrivals = -1;       ///< the place of the words
  number_form form{};
};

/// The tile of a block: `Rows` of x.
template <thin_code Code, int Rows>
struct streamed_shape {
  using line = code_line<Code>;
  static constexpr int rows = Rows;
  static constexpr int groups = 2;  ///< warpgroups that multiply
  static constexpr int tiles = 2;   ///< of 64 outputs, of a warpgroup
  static constexpr int outputs = 64 * tiles * groups;
  static constexpr int columns = line::columns;  ///< of a stage
  static constexpr int panels = columns / prim::cuda::panel_columns;
  static constexpr int panel_bytes = rows * prim::cuda::panel_row_bytes;
  static constexpr int x_bytes = panels * panel_bytes, code_bytes = outputs * code_line_bytes;
  static constexpr int number_bytes = outputs * number_line_bytes;
  static constexpr int slots = 3;  ///< of numbers
  static constexpr int fitting = (226 * 1024 - slots * 2 * number_bytes) / (x_bytes + code_bytes);
  static constexpr int stages = fitting > 8 ? 8 : fitting;
  static constexpr int warps = 4 * groups;  ///< that multiply
  static constexpr int threads = (groups + 1) * prim::cuda::warpgroup_size;
  static constexpr int multiplying_registers = 232, copying_registers = 40;
  static constexpr int sums = tiles * rows / 2;  ///< of a thread

  struct alignas(1024) shared_memory {
    unsigned char x[stages][x_bytes];
    unsigned char codes[stages][code_bytes];
    unsigned char numbers[slots][2][number_bytes];
    prim::cuda::ring_barriers<stages> of_stage;
    prim::cuda::ring_barriers<slots> of_slot;
    unsigned is_last;
  };
};

/// The first unit of a block.
__device__ __forceinline__ int first_unit(const streamed_args& args, int block) {
  return (block * args.share + min(block, args.longer)) * args.step;
}
/// The block that has a unit, where none stay together.
__device__ __forceinline__ int block_of(const streamed_args& args, int unit) {
  const int of_longer = args.longer * (args.share + 1);
  return unit < of_longer ? unit / (args.share + 1) : args.longer + (unit - of_longer) / args.share;
}

/// A stage of a launch.
template <class Shape>
struct streamed_place {
  int stage, first_row, first_output, tile;

  __device__ __forceinline__ streamed_place(const streamed_args& args, int unit) {
    tile = unit / args.stages_of_tile;
    stage = unit - tile * args.stages_of_tile;
    find(args);
  }
  __device__ __forceinline__ void advance(const streamed_args& args) {
    if (++stage == args.stages_of_tile) begin_next(args);
  }
  /// The next tile.
  __device__ __forceinline__ void begin_next(const streamed_args& args) {
    stage = 0;
    ++tile;
    find(args);
  }
  /// Whether the stage begins a line of numbers.
  __device__ __forceinline__ bool begins_slot(const streamed_args& args) const {
    return (stage & ((1 << args.slot_shift) - 1)) == 0;
  }

 private:
  __device__ __forceinline__ void find(const streamed_args& args) {
    const int of_outputs = tile / args.batch_tiles;
    first_output = of_outputs * Shape::outputs;
    first_row = (tile - of_outputs * args.batch_tiles) * Shape::rows;
  }
};

/// The word of a tile, in the module's memory (prim/cuda/arrival_table.hpp).
__device__ __forceinline__ unsigned* streamed_word(int place, int tile) {
  static __device__ unsigned words[prim::cuda::arrival_places][prim::cuda::counted_tiles];
  return &words[place][tile];
}

/// The thread that brings stages.
template <thin_code Code, class Shape>
class streamed_copies {
  using memory = typename Shape::shared_memory;
  static constexpr bool has_zeros = sm80::is_whole(Code);

 public:
  __device__ __forceinline__ streamed_copies(const streamed_args& args, memory& shared)
      : args_(args), shared_(shared) {}

  __device__ __forceinline__ void run(int begin, int end) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    // Codes were there before the grid that orders x began, so that they need not wait for it.
    const int early = min(end - begin, Shape::stages);
    streamed_place<Shape> place(args_, begin), ahead = place;
    for (int i = 0; i < early; ++i, ahead.advance(args_)) {
      bring_codes(ahead, static_cast<std::uint32_t>(i),
                  prim::cuda::ring_place<Shape::stages>::full(barriers,
                                                              static_cast<std::uint32_t>(i)));
    }
    prim::cuda::wait_for_grid_before();
#pragma unroll 1
    for (int unit = begin; unit < end; ++unit, place.advance(args_)) {
      if (unit == begin || place.begins_slot(args_)) bring_numbers(place);
      const std::uint32_t full = ring_.full(barriers), stage = ring_.stage();
      if (unit >= begin + early) {
        ring_.wait_empty(barriers);
        bring_codes(place, stage, full);
      }
#pragma unroll
      for (int panel = 0; panel < Shape::panels; ++panel) {
        const int box[4] = {place.stage * Shape::columns + panel * prim::cuda::panel_columns,
                            place.first_row, 0, 0};
        prim::cuda::copy_box(
            prim::cuda::shared_address(shared_.x[stage]) + panel * Shape::panel_bytes, args_.x,
            full, box, prim::cuda::cache_hint::evict_last);
      }
      ring_.advance();
    }
  }

 private:
  __device__ __forceinline__ void bring_codes(const streamed_place<Shape>& place,
                                              std::uint32_t stage, std::uint32_t full) const {
    prim::cuda::arrive_expecting(full, Shape::x_bytes + Shape::code_bytes);
    const int box[4] = {place.stage * code_line_bytes / 2, place.first_output, 0, 0};
    prim::cuda::copy_box(prim::cuda::shared_address(shared_.codes[stage]), args_.codes, full, box,
                         prim::cuda::cache_hint::evict_first);
  }
  __device__ __forceinline__ void bring_numbers(const streamed_place<Shape>& place) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_slot);
    slot_.wait_empty(barriers);
    const std::uint32_t full = slot_.full(barriers), slot = slot_.stage();
    prim::cuda::arrive_expecting(full, Shape::number_bytes * (has_zeros ? 2 : 1));
    const int box[4] = {(place.stage >> args_.slot_shift) * number_line_bytes / 2,
                        place.first_output, 0, 0};
    constexpr auto normal = prim::cuda::cache_hint::evict_normal;
    prim::cuda::copy_box(prim::cuda::shared_address(shared_.numbers[slot][0]), args_.scales, full,
                         box, normal);
    if constexpr (has_zeros) {
      prim::cuda::copy_box(prim::cuda::shared_address(shared_.numbers[slot][1]), args_.zeros, full,
                           box, normal);
    }
    slot_.advance();
  }

  const streamed_args& args_;
  memory& shared_;
  prim::cuda::ring_place<Shape::stages> ring_;
  prim::cuda::ring_place<Shape::slots> slot_;
};

/// A warpgroup that multiplies. `Short`: a lane's columns of a line have two groups.
template <class Element, thin_code Code, bool Nv, bool Short, int Rows>
class streamed_sums {
  using shape = streamed_shape<Code, Rows>;
  using line = code_line<Code>;
  using memory = typename shape::shared_memory;
  using product = prim::cuda::warpgroup_product<Element, Rows>;
  static constexpr int tiles = shape::tiles;
  static constexpr int numbers_of_lane = Short ? 2 : 1;
  static constexpr int barrier = 1;  ///< of the warpgroups that multiply

 public:
  __device__ __forceinline__ streamed_sums(const streamed_args& args, memory& shared, int warpgroup)
      : args_(args), shared_(shared) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    t_ = lane % 4;
    output_ = static_cast<unsigned>(warpgroup) * 64 * tiles + warp * 16 + lane / 4;
    thread_ = static_cast<unsigned>(warpgroup) * prim::cuda::warpgroup_size +
              threadIdx.x % prim::cuda::warpgroup_size;
  }

  __device__ __forceinline__ void run(int begin, int end) {
    const std::uint32_t stages = prim::cuda::shared_address(&shared_.of_stage);
    const std::uint32_t slots = prim::cuda::shared_address(&shared_.of_slot);
    streamed_place<shape> place(args_, begin);
#pragma unroll 1
    for (int unit = begin; unit < end;) {
      const bool whole = place.stage == 0;
      const int left = args_.stages_of_tile - place.stage, count = min(left, end - unit);
      clear();
#pragma unroll 1
      for (int i = 0; i < count; ++i, ++place.stage) {
        if (i == 0 || place.begins_slot(args_)) {
          if (unit != begin || i > 0) leave(slot_, slots);
          slot_.wait_full(slots);
        }
        ring_.wait_full(stages);
        multiply(place.stage, unit != begin || i > 0, stages);
        ring_.advance();
      }
      prim::cuda::wait_products<0>();
#pragma unroll
      for (auto& tile : sums_) prim::cuda::keep_in_place(tile);
      finish(place, whole && count == left, whole);
      unit += count;
      place.begin_next(args_);
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
  template <class Place>
  static __device__ __forceinline__ void leave(Place& place, std::uint32_t barriers) {
    __syncwarp();
    if (threadIdx.x % prim::cuda::warp_size == 0) place.release(barriers);
    place.advance();
  }

  /// The products of a stage; `before`: releases the one before once its products have ended.
  __device__ __forceinline__ void multiply(int stage, bool before, std::uint32_t barriers) {
    std::uint32_t words[tiles][2][4];
    group_pairs numbers[tiles][2][numbers_of_lane];
    load_lines(words);
    load_numbers(stage, numbers);
    const std::uint32_t x = prim::cuda::shared_address(shared_.x[ring_.stage()]);
    prim::cuda::warpgroup_a a[line::chunks][tiles][2];
    decode_chunk(words, numbers, 0, a[0]);
#pragma unroll
    for (int chunk = 0; chunk < line::chunks; ++chunk) {
      prim::cuda::begin_products();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = chunk * 2 + i;  // of 16 columns
        const std::uint64_t b =
            prim::cuda::describe_panels(x + (step / 4) * shape::panel_bytes, shape::panel_bytes) +
            prim::cuda::panel_step(step % 4 * 32);
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          product::sums_of(sums_[tile], a[chunk][tile][i], b);
        }
      }
      prim::cuda::commit_products();
      if (chunk == 0 && before) {
        prim::cuda::wait_products<1>();
        leave(released_, barriers);
      }
      if (chunk + 1 < line::chunks) decode_chunk(words, numbers, chunk + 1, a[chunk + 1]);
    }
    prim::cuda::wait_products<1>();
  }
  __device__ __forceinline__ void decode_chunk(const std::uint32_t (&words)[tiles][2][4], group_pairs (&numbers)[tiles][2][numbers_of_lane], int chunk, prim::cuda::warpgroup_a (&own)[tiles][2]) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        decode(words[tile], numbers[tile], chunk, own[tile]);
        for (auto& w : own[tile]) prim::cuda::keep_in_place(w.word);
      }
  }

  __device__ __forceinline__ void load_lines(std::uint32_t (&words)[tiles][2][4]) const {
    const std::uint32_t codes = prim::cuda::shared_address(shared_.codes[ring_.stage()]);
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned output = output_ + static_cast<unsigned>(tile * 64 + r * 8);
        const unsigned chunk = t_ ^ (output / 2 % 4);
        prim::cuda::load_shared_16(words[tile][r], codes + output * code_line_bytes + chunk * 16);
      }
    }
  }
  __device__ __forceinline__ void load_numbers(
      int stage, group_pairs (&numbers)[tiles][2][numbers_of_lane]) const {
    constexpr int bytes = number_bytes_of(Code);
    const int column = stage * shape::columns + static_cast<int>(t_) * line::lane_columns;
    const auto group = static_cast<unsigned>(column >> args_.group_shift) %
                       (number_line_bytes / bytes);
    const std::uint32_t scales =
        prim::cuda::shared_address(shared_.numbers[slot_.stage()][0]) + group * bytes;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned output = output_ + static_cast<unsigned>(tile * 64 + r * 8);
#pragma unroll
        for (int i = 0; i < numbers_of_lane; ++i) {
          const std::uint32_t at =
              scales + output * number_line_bytes + static_cast<unsigned>(i * bytes);
          numbers[tile][r][i] =
              load_group<Element, Code, Nv>(args_.form, at, at + shape::number_bytes);
        }
      }
    }
  }
  static __device__ __forceinline__ void decode(
      const std::uint32_t (&words)[2][4], const group_pairs (&numbers)[2][numbers_of_lane],
      int chunk, prim::cuda::warpgroup_a (&to)[2]) {
    std::uint32_t pairs[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      std::uint32_t own[line::words];
#pragma unroll
      for (int i = 0; i < line::words; ++i) own[i] = words[r][chunk * line::words + i];
      scaled_chunk<Element, Code>(own, numbers[r][chunk * numbers_of_lane / line::chunks],
                                  pairs[r]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = {{pairs[0][2 * i], pairs[1][2 * i], pairs[0][2 * i + 1], pairs[1][2 * i + 1]}};
    }
  }

  /// The end of a tile or of the block's part of it.
  __device__ __forceinline__ void finish(const streamed_place<shape>& place, bool complete,
                                         bool whole) {
    if (!complete) {
      float4* const own = part_of(static_cast<int>(blockIdx.x), whole);
      each_four([own](int i, float4 four) {
        __stcg(own + i * shape::groups * prim::cuda::warpgroup_size, four);
      });
      if (!sum_up_if_last(place.tile)) return;
    }
    const float of_tensor = args_.tensor_scale != nullptr ? *args_.tensor_scale : 1.0f;
    prim::cuda::with_elements(args_.out.data, args_.out.type, [&]<class To>(To* to) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < Rows / 2; ++i) {
          const int row = place.first_row + i / 4 * 8 + static_cast<int>(t_) * 2 + i % 2;
          const std::int64_t output =
              std::int64_t{place.first_output} + output_ + tile * 64 + i / 2 % 2 * 8;
          if (row >= args_.batch || output >= args_.outputs) continue;
          to[row * args_.out.row + output] = prim::nearest<To>(sums_[tile][i] * of_tensor);
        }
      }
    });
  }

  /// The thread's sums of a tile that a block has left: every so many floats.
  __device__ __forceinline__ float4* part_of(int block, bool whole) const {
    constexpr int of_tile = shape::outputs * Rows;
    const std::int64_t slot = std::int64_t{block} * 2 + (whole ? 1 : 0);
    return reinterpret_cast<float4*>(args_.partial + slot * of_tile) + thread_;
  }
  template <class Visit>
  __device__ __forceinline__ void each_four(const Visit& visit) {
#pragma unroll
    for (int i = 0; i < shape::sums / 4; ++i) {
      float* const four = sums_[i / (Rows / 8)] + i % (Rows / 8) * 4;
      visit(i, make_float4(four[0], four[1], four[2], four[3]));
    }
  }

  /// Sums what the blocks of a tile have left, in their order, if the block is the last of them.
  __device__ __forceinline__ bool sum_up_if_last(int tile) {
    constexpr int together = shape::groups * prim::cuda::warpgroup_size;
    const int first = block_of(args_, tile * args_.stages_of_tile);
    const int last = block_of(args_, (tile + 1) * args_.stages_of_tile - 1);
    prim::cuda::wait_for_threads(barrier, together);
    if (thread_ == 0) {
      const prim::cuda::arrivals counted(streamed_word(args_.arrivals, tile), last - first + 1, 1);
      shared_.is_last = counted.arrive(0);
    }
    prim::cuda::wait_for_threads(barrier, together);
    // By way of a shuffle, so that the compiler knows it to be the same for the whole warp.
    if (__shfl_sync(prim::cuda::all_lanes, shared_.is_last, 0) == 0) return false;
    clear();
#pragma unroll 1
    for (int block = first; block <= last; ++block) {
      const float4* const part = part_of(block, block == first);
#pragma unroll
      for (int i = 0; i < shape::sums / 4; ++i) {
        float* const four = sums_[i / (Rows / 8)] + i % (Rows / 8) * 4;
        const float4 own = __ldcg(part + i * together);
        four[0] += own.x, four[1] += own.y, four[2] += own.z, four[3] += own.w;
      }
    }
    return true;
  }

  const streamed_args& args_;
  memory& shared_;
  unsigned t_, output_, thread_;
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
    shared.of_slot.init(1, shape::warps);
    prim::cuda::publish_barriers();
  }
  __syncthreads();
  prim::cuda::let_next_grid_start();
  const int begin = first_unit(args, static_cast<int>(blockIdx.x));
  const int end = first_unit(args, static_cast<int>(blockIdx.x) + 1);
  if (warpgroup == shape::groups) {
    prim::cuda::give_registers<shape::copying_registers>();
    if (threadIdx.x % prim::cuda::warpgroup_size == 0) {
      streamed_copies<Code, shape>(args, shared).run(begin, end);
    }
  } else {
    prim::cuda::take_registers<shape::multiplying_registers>();
    streamed_sums<Element, Code, Nv, Short, Rows>(args, shared, warpgroup).run(begin, end);
  }
}

}  // namespace tessera::kernels::quantized::sm90
