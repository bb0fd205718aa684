// Products of up to 16 rows of x with packed weights on Hopper, at the speed at which memory gives
// the codes: each becomes an element of f16 in one to three instructions, without being rounded, is
// multiplied by mma.sync and scaled by group in f32.
//
// Stages come as in streamed_product.hpp, which says how blocks share them, x as few_rows.hpp lays
// it. What a block leaves of a tile before its last one is counted, and if need be summed up, by a
// warp of its own: those that multiply would wait 2 us for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/quantized/sm90/few_elements.hpp>
#include <tessera/kernels/quantized/sm90/few_results.hpp>
#include <tessera/kernels/quantized/sm90/few_rows.hpp>
#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/split_products.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::quantized::sm90 {

using prim::cuda::accumulator;

/// The tile of a block.
template <thin_code Code, int Rows, int Span>
struct few_shape {
  using box = few_box<Rows, Span>;
  static constexpr int rows = Rows;
  static constexpr int tiles = 2;  ///< of 16 outputs, of a warp
  static constexpr int outputs = 256;
  static constexpr int lines = 2, columns = lines * code_line<Code>::columns;
  static_assert(columns == few_panels * 64);
  static constexpr int panels = few_panels, panel_bytes = 0;
  static constexpr int x_bytes = box::bytes, code_bytes = outputs * lines * code_line_bytes;
  static constexpr int number_bytes = outputs * number_line_bytes;
  static constexpr int planes = sm80::is_whole(Code) ? 2 : 1;  ///< of numbers: zeros, too
  static constexpr int slots = 6 / planes;
  static constexpr int fitting =
      (226 * 1024 - slots * planes * number_bytes) / (x_bytes + code_bytes);
  static constexpr int stages = fitting > 8 ? 8 : fitting;
  /// Stages whose codes are asked for before x is there. Of many rows products take long once it
  /// is, and it comes the sooner for fewer of them.
  static constexpr int early = Rows > 8 ? 2 : stages;
  static constexpr int warps = outputs / 16 / tiles;  ///< that multiply
  static constexpr int multiplying = warps * 32;
  static constexpr int threads = multiplying + 96;
  static constexpr int band_tiles = 1;

  struct alignas(1024) shared_memory {
    unsigned char codes[stages][code_bytes];
    unsigned char x[stages][x_bytes];
    unsigned char numbers[slots][planes][number_bytes];
    prim::cuda::ring_barriers<stages> of_stage;
    prim::cuda::ring_barriers<slots> of_slot;
    unsigned parts;
  };
};

/// d = a b + c of f16, the first (`Half` 0) or second 16x8 operand of b.
template <int Half>
__device__ __forceinline__ void multiply_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[4], const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * Half]), "r"(b[2 * Half + 1]),
        "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/// A warp that multiplies. `Nv`: scales are E4M3, else exponents.
template <class Element, thin_code Code, bool Nv, int Rows, int Span>
class few_sums {
  using shape = few_shape<Code, Rows, Span>;
  using box = typename shape::box;
  using memory = typename shape::shared_memory;
  static constexpr int tiles = shape::tiles;
  static constexpr int parts = box::tiles;  ///< operands of eight columns
  /// After so many columns sums are scaled.
  static constexpr int flush = Span * box::spans;
  static constexpr bool whole = sm80::is_whole(Code);
  static_assert(!whole || Span >= 64);
  /// Offsets of the four groups of a stage are multiplied with sums of x by the matrix unit.
  static constexpr bool offsets_apart = whole && box::spans == 1;

  struct group_numbers {
    float scale[2], offset[2];  ///< of outputs g and g + 8
  };

 public:
  __device__ __forceinline__ few_sums(const streamed_args& args, memory& shared)
      : args_(args),
        shared_(shared),
        base_(prim::cuda::computed_anew(prim::cuda::shared_address(&shared))),
        lane_(threadIdx.x % 32),
        t_(lane_ % 4),
        output_(threadIdx.x / 32 * (16 * tiles) + bank_row(lane_ / 4)) {
    const unsigned row = bank_row(lane_ / 4);
    const unsigned byte = Span >= 64 ? ((t_ / 2) ^ row) * 16 + t_ % 2 * 8 : row * 16 + t_ * 4;
    code_at_ = static_cast<std::uint32_t>(offsetof(memory, codes)) + output_ * 128 + byte;
  }

  __device__ __forceinline__ void run() {
    const std::uint32_t stages = base_ + offsetof(memory, of_stage);
    const std::uint32_t slots = base_ + offsetof(memory, of_slot);
    streamed_walk<shape> walk(args_);
    streamed_piece piece;
    bool again = false;  // stages before this one
    while (walk.next(piece)) {
#pragma unroll
      for (auto& tile : totals_) {
#pragma unroll
        for (auto& part : tile) part[0] = part[1] = part[2] = part[3] = 0.0f;
      }
#pragma unroll 1
      for (int i = piece.first; i < piece.first + piece.count; ++i) {
        if (piece.begins_slot(args_, i)) {
          if (again) leave(slot_, slots);
          slot_.wait_full(slots);
        }
        ring_.wait_full(stages);
        multiply(i);
        leave(ring_, stages);
        again = true;
      }
      few_results<shape>(args_, shared_, t_, output_).finish(piece, walk.ended(), totals_);
    }
  }

 private:
  /// The products of a stage.
  __device__ __forceinline__ void multiply(int stage) {
    const std::uint32_t codes = base_ + code_at_ + ring_.stage() * shape::code_bytes;
    const std::uint32_t x =
        base_ + static_cast<std::uint32_t>(offsetof(memory, x)) + ring_.stage() * shape::x_bytes;
    accumulator scaled[tiles][parts] = {};
    float sums[tiles][parts][4];
    if constexpr (offsets_apart) add_offsets(stage * shape::columns, x, scaled);
#pragma unroll
    for (int panel = 0; panel < few_panels; ++panel) {
      std::uint32_t words[tiles][2][2];
      load_words(codes, panel, words);
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        std::uint32_t b[parts][4];
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          prim::cuda::load_shared_16(
              b[part], x +
                           static_cast<std::uint32_t>((panel * parts + part) * box::tile_bytes +
                                                      unit * 512) +
                           lane_ * 16);
        }
        const int column = panel * 64 + unit * 32;
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          std::uint32_t low[4], high[4];
          few_elements<Code>(words[tile][0][unit], low);
          few_elements<Code>(words[tile][1][unit], high);
#pragma unroll
          for (int product = 0; product < 2; ++product) {
            const std::uint32_t a[4] = {low[2 * product], high[2 * product], low[2 * product + 1],
                                        high[2 * product + 1]};
#pragma unroll
            for (int part = 0; part < parts; ++part) {
              float(&sum)[4] = sums[tile][part];
              if (column % flush == 0 && product == 0) {
                constexpr float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                multiply_f16<0>(sum, a, b[part], zeros);
              } else if (product == 0) {
                multiply_f16<0>(sum, a, b[part], sum);
              } else {
                multiply_f16<1>(sum, a, b[part], sum);
              }
            }
          }
        }
        if ((column + 32) % flush != 0) continue;
        const int first = column + 32 - flush;
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          scale(numbers_of(stage * shape::columns + first, tile), x, sums[tile], scaled[tile]);
        }
      }
    }
    restore(x, scaled);
  }

  /// The lane's codes of a panel, of outputs g and g + 8.
  __device__ __forceinline__ void load_words(std::uint32_t codes, int panel,
                                             std::uint32_t (&words)[tiles][2][2]) const {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const auto row = static_cast<std::uint32_t>((tile * 16 + r * 8) * 128);
        if constexpr (Span >= 64) {
          prim::cuda::load_shared_8(words[tile][r][0], words[tile][r][1],
                                    (codes ^ static_cast<std::uint32_t>(panel * 32)) + row);
        } else {
#pragma unroll
          for (int unit = 0; unit < 2; ++unit) {
            words[tile][r][unit] = prim::cuda::load_shared_4(
                (codes ^ static_cast<std::uint32_t>(panel * 32 + unit * 16)) + row);
          }
        }
      }
    }
  }

  /// The numbers of the group that a column of the lane's sums belongs to.
  __device__ __forceinline__ group_numbers numbers_of(int first, int tile) const {
    constexpr int bytes = number_bytes_of(Code);
    const int column = first + (box::spans > 1 ? static_cast<int>(t_) * Span : 0);
    const auto group =
        static_cast<unsigned>(column >> args_.group_shift) % (number_line_bytes / bytes);
    const std::uint32_t at = base_ + static_cast<std::uint32_t>(offsetof(memory, numbers)) +
                             slot_.stage() * shape::planes * shape::number_bytes +
                             (output_ + static_cast<unsigned>(tile * 16)) * number_line_bytes +
                             group * bytes;
    group_numbers to{};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::uint32_t scale_at = at + static_cast<unsigned>(r * 8 * number_line_bytes);
      if constexpr (whole) {
        using words = prim::cuda::half_words<Element>;
        const float scale = words::unpack(prim::cuda::load_shared_2(scale_at));
        const float zero = words::unpack(prim::cuda::load_shared_2(scale_at + shape::number_bytes));
        to.scale[r] = scale;
        to.offset[r] = args_.form.form == affine_weight_form::bias ? zero : -zero * scale;
      } else if constexpr (Nv) {
        to.scale[r] = prim::cuda::floats_of<f8_e4m3>(prim::cuda::load_shared_1(scale_at)).x;
      } else {
        to.scale[r] = sm80::mx_scale(args_.form.encoding, prim::cuda::load_shared_1(scale_at));
      }
    }
    return to;
  }

  /// Lane t of a quad has the offsets of panel t, and sums of x over it, as two tf32 numbers each.
  __device__ __forceinline__ void add_offsets(int first, std::uint32_t x,
                                              accumulator (&scaled)[tiles][parts]) const {
    using prim::cuda::multiply_add_tf32;
    std::uint32_t of_x[parts][2];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const std::uint32_t sum =
          prim::cuda::load_shared_4(x + static_cast<std::uint32_t>(box::sums_at + part * 32) +
                                    (t_ * box::columns + lane_ / 4) * 4);
      prim::cuda::split(sum, of_x[part][0], of_x[part][1]);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      const group_numbers own = numbers_of(first + static_cast<int>(t_) * 64, tile);
      std::uint32_t high[2], low[2], beside[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        prim::cuda::split(__float_as_uint(own.offset[r]), high[r], low[r]);
        // An infinite one has no lower part, and meets no lower part of x, which may be 0.
        const bool finite = fabsf(own.offset[r]) < INFINITY;
        low[r] = finite ? low[r] : 0;
        beside[r] = finite ? high[r] : 0;
      }
      const std::uint32_t of_high[4] = {high[0], high[1], beside[0], beside[1]};
      const std::uint32_t of_low[4] = {low[0], low[1], low[0], low[1]};
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        multiply_add_tf32<0>(scaled[tile][part], of_low, of_x[part]);
        multiply_add_tf32<0>(scaled[tile][part], of_high, of_x[part]);
      }
    }
  }

  /// Sums of a group go to those of the stage.
  __device__ __forceinline__ void scale(const group_numbers& own, std::uint32_t x,
                                        const float (&sums)[parts][4],
                                        accumulator (&scaled)[parts]) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if constexpr (whole && !offsets_apart) {
        std::uint32_t of_x[2];
        prim::cuda::load_shared_8(
            of_x[0], of_x[1], x + static_cast<std::uint32_t>(box::sums_at + part * 32) + t_ * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scaled[part].at[i] =
              fmaf(__uint_as_float(of_x[i % 2]), own.offset[i / 2], scaled[part].at[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scaled[part].at[i] = fmaf(sums[part][i], own.scale[i / 2], scaled[part].at[i]);
      }
    }
  }

  /// Sums of a stage as numbers of the result.
  __device__ __forceinline__ void restore(std::uint32_t x,
                                          const accumulator (&scaled)[tiles][parts]) {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t factors[2];
      prim::cuda::load_shared_8(
          factors[0], factors[1],
          x + static_cast<std::uint32_t>(box::factors_at + part * 32) + t_ * 8);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals_[tile][part][i] = fmaf(scaled[tile][part].at[i] * few_factor<Code>,
                                        __uint_as_float(factors[i % 2]), totals_[tile][part][i]);
        }
      }
    }
  }

  const streamed_args& args_;
  memory& shared_;
  const std::uint32_t base_;  ///< the address of `shared_`: found once
  unsigned lane_, t_, output_;
  std::uint32_t code_at_;
  prim::cuda::ring_place<shape::stages> ring_;
  prim::cuda::ring_place<shape::slots> slot_;
  float totals_[tiles][parts][4];
};

/// out [batch, outputs] = x w^T.
template <class Element, thin_code Code, bool Nv, int Rows, int Span>
__global__ void __launch_bounds__(few_shape<Code, Rows, Span>::threads, 1)
    multiply_few(const __grid_constant__ streamed_args args) {
  using shape = few_shape<Code, Rows, Span>;
  extern __shared__ __align__(1024) unsigned char few_memory[];
  auto& shared = *reinterpret_cast<typename shape::shared_memory*>(few_memory);
  if (threadIdx.x == 0) {
    shared.of_stage.init(1, shape::warps);
    shared.of_slot.init(prim::cuda::warp_size, shape::warps);
    prim::cuda::publish_barriers();
  }
  __syncthreads();
  prim::cuda::let_next_grid_start();
  const auto thread = static_cast<int>(threadIdx.x) - shape::multiplying;
  if (thread < 0) {
    few_sums<Element, Code, Nv, Rows, Span>(args, shared).run();
  } else if (thread == 0) {
    streamed_copies<Code, shape>(args, shared).run();
  } else if (thread >= 64) {
    few_results<shape>(args, shared, 0, 0).sum_up_before_last();
  } else if (thread >= 32) {
    streamed_numbers<Code, shape>(args, shared).run();
  }
}

}  // namespace tessera::kernels::quantized::sm90
