// out[m, r] = sum over columns c of a[m, c] w[r, c] for codes that are multiplied as they are, with
// rows of a in an order and form that suits them (fixed_rows.hpp, pair_rows.hpp): a lane adds up
// some neighbouring columns, then scales and zeros come to these sums.
//
//   for each 16 rows of weights, a few rows of a, row of weights {
//     for each block of codes { products of each row of a; sums += scale products }
//     sums += scale zero times sums of groups of a
//   }
//
// Elements of a that are not finite, or too large, are multiplied by decoded weights, one by one;
// so are all where sums overflow before the scale of their row makes them small.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/batch_parts.hpp>
#include <tessera/kernels/quantized/cpu/code_rows.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/group_scales.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/kernels/quantized/cpu/tile_numbers.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/cpu/code_blocks.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

#if defined(__clang__)
#define TESSERA_UNROLL_FOUR _Pragma("unroll 4")
#elif defined(__GNUC__)
#define TESSERA_UNROLL_FOUR _Pragma("GCC unroll 4")
#else
#define TESSERA_UNROLL_FOUR
#endif

namespace tessera::kernels::quantized::cpu {

template <class Isa, class Operand>
class code_product {
 public:
  /// `out` has the batch rows of `a`.
  code_product(const quantized_kernel_args& args, const strided_matrix& a,
               const strided_matrix& out)
      : args_(args),
        weights_(args.weights),
        a_(a),
        out_(out),
        operand_(weights_),
        layout_(operand_.layout()),
        x_stride_(layout_.bytes()),
        sums_stride_(layout_.sums()) {
    const std::int64_t bytes_of_codes = std::max<std::int64_t>(weights_.codes.row * 4, 1);
    rows_ahead_ = (operand_.numbers_ahead() + bytes_of_codes - 1) / bytes_of_codes;
  }

  std::size_t workspace_bytes(int threads) const {
    const std::int64_t of_row = sums_stride_ * static_cast<std::int64_t>(sizeof(float)) + x_stride_;
    return batch_parts<Isa>::bytes(args_) + bytes_of_scales() +
           static_cast<std::size_t>(args_.batch * of_row) +
           static_cast<std::size_t>(threads * floats_of_thread()) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    const batch_parts<Isa> parts(args_, memory);
    const packed_rows rows = rows_in(memory + batch_parts<Isa>::bytes(args_));
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int thread) {
      if (!parts.holds(m)) return store_zeros<Isa>(out_, m, weights_.rows);
      float* const x = rows.scratch + thread * floats_of_thread();
      load(m, x);
      rows.rows[m] = operand_.pack(x, rows.elements + m * x_stride_, rows.sums + m * sums_stride_);
    });
    parts.run_tiles(weights_, rows_of_tile, threads,
                    [&](std::int64_t row, int count, const batch_part& part, int thread) {
                      multiply(weights_.at(part.matrix), {row, count, part.first, part.rows}, rows,
                               rows.scratch + thread * floats_of_thread());
                    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using blocks = prim::code_blocks<Isa>;
  using reader_type = weight_reader<Isa>;
  static constexpr int rows_of_tile = vec::width;
  static constexpr int most_together = Operand::most_rows;

  struct tile {
    std::int64_t row;
    int rows;
    std::int64_t batch_row;
    int batch;
  };
  using packed_rows = packed_batch<code_row_scale, std::byte>;
  template <class Form>
  using scales_of_bytes = byte_scales<Isa, Form::byte_groups>;
  template <class Form>
  static constexpr int columns_of_block = Form::together* blocks::width * 8 / Form::code_bits;
  template <class Form>
  using numbers_of_tile = tile_numbers<Isa, columns_of_block<Form>, Form::most_groups>;

  std::size_t bytes_of_scales() const {
    return (static_cast<std::size_t>(args_.batch) * sizeof(code_row_scale) + 63) / 64 * 64;
  }
  std::int64_t floats_of_row() const { return layout_.blocks() * layout_.block(); }
  static constexpr std::int64_t floats_of_totals = rows_of_tile * batch_of_item;
  /// A thread's: a row of the batch, or sums of a part and the numbers of a tile.
  std::int64_t floats_of_thread() const {
    return std::max(floats_of_row(),
                    floats_of_totals + 2 * tile_numbers<Isa, 1, 1>::floats_of_tile(weights_));
  }
  packed_rows rows_in(std::byte* memory) const {
    packed_rows rows{};
    rows.rows = reinterpret_cast<code_row_scale*>(memory);
    rows.sums = reinterpret_cast<float*>(memory + bytes_of_scales());
    rows.elements = reinterpret_cast<std::byte*>(rows.sums + args_.batch * sums_stride_);
    rows.scratch = reinterpret_cast<float*>(rows.elements + args_.batch * x_stride_);
    return rows;
  }

  /// A row of the batch as floats, zeros up to a whole block.
  void load(std::int64_t m, float* to) const {
    prim::load_row<Isa>(a_, m * a_.row, weights_.columns(), to);
    std::fill(to + weights_.columns(), to + floats_of_row(), 0.0f);
  }

  void multiply(const packed_weights& weights, const tile& at, const packed_rows& x,
                float* scratch) const {
    float* const sums = scratch;
    operand_.with_form([&]<class Form>(const Form& form) {
      const numbers_of_tile<Form> numbers(weights, at.row, at.rows, rows_ahead_,
                                          scratch + floats_of_totals);
      prim::for_each_row_tile<most_together>(at.batch, [&]<int Rows>(int m) {
        alignas(64) float lanes[rows_of_tile * Rows * vec::width];
        add_rows<Rows>(form, weights, at, m, x, numbers, lanes);
        finish<Rows>(x.rows + at.batch_row + m, lanes, sums + m * rows_of_tile);
      });
    });
    for (int m = 0; m < at.batch; ++m) {
      const std::int64_t of_batch = at.batch_row + m;
      float own[rows_of_tile];
      vec::store(own, vec::load(sums + m * rows_of_tile));
      settle<Isa>(weights, at.row, at.rows, a_, of_batch, x.rows[of_batch].has_specials,
                  Operand::is_special, own);
      prim::store_row<Isa>(out_, of_batch * out_.row + at.row, at.rows, own);
    }
  }

  /// The lanes of all columns of a tile's rows of weights and `Rows` rows of the batch, a part of
  /// the columns at a time: what of the batch meets them stays in the cache.
  template <int Rows, class Form>
  void add_rows(const Form& form, const packed_weights& weights, const tile& at, int m,
                const packed_rows& x, const numbers_of_tile<Form>& numbers, float* lanes) const {
    const std::int64_t of_batch = at.batch_row + m;
    constexpr std::int64_t block = columns_of_block<Form>;
    const std::int64_t cached =
        operand_.bytes_in_cache(Rows) / Operand::element_bytes / Rows / block * block;
    const std::int64_t piece = std::max(block, cached);
    const std::int64_t columns = weights_.columns();
    const float* const sums = x.sums + of_batch * sums_stride_;
    const std::byte* const elements = x.elements + of_batch * x_stride_;
    const int held = columns > 0 ? at.rows : 0;
    const int log_group = std::countr_zero(static_cast<unsigned>(weights_.group_size));
    const auto groups = blocks::groups_of_lanes(static_cast<int>(block) / blocks::lanes, log_group);
    std::fill(lanes + held * Rows * vec::width, lanes + rows_of_tile * Rows * vec::width, 0.0f);
    // Of one row of the batch alone: more rows share floats that were made once.
    bool by_bytes[rows_of_tile] = {};
    for (std::int64_t first = 0; first < columns; first += piece) {
      const std::int64_t end = std::min(first + piece, columns);
      prim::for_each_row_tile<Operand::weight_rows(Rows)>(at.rows, [&]<int Count>(int r) {
        float* const own = lanes + r * Rows * vec::width;
        if (first == 0) {
          for (int i = 0; i < Count; ++i) {
            if constexpr (Form::byte_groups > 0 && Rows == 1) {
              by_bytes[r] = at.batch == 1 && scales_of_bytes<Form>::serve(weights, at.row + r);
            }
            if (by_bytes[r]) {
              numbers.ask_for_scales(r);
            } else if (m == 0) {
              numbers.read_scales(r + i);
              if constexpr (Form::has_offsets) numbers.read_zeros(r + i);
            }
            start<Rows>(form, numbers, r + i, sums, own + i * Rows * vec::width);
          }
        }
        const auto add = [&](const auto& scales) {
          add_columns<Count, Rows>(form, codes_of(weights, at.row + r), weights.codes.row * 4,
                                   scales, first, end, elements, own);
        };
        if constexpr (Form::byte_groups > 0 && Rows == 1) {
          static_assert(Count == 1, "byte_scales are those of one row of weights");
          if (by_bytes[r]) return add(scales_of_bytes<Form>(weights, at.row + r, groups));
        }
        const float* scales[Count];
        for (int i = 0; i < Count; ++i) scales[i] = numbers.scales(r + i);
        add(float_scales<Isa, Form::most_groups, Count>(scales, log_group, groups));
      });
    }
  }

  TESSERA_INLINE const std::byte* codes_of(const packed_weights& weights, std::int64_t row) const {
    return reinterpret_cast<const std::byte*>(
        static_cast<const std::uint32_t*>(weights.codes.data) + row * weights.codes.row);
  }

  /// The lanes of row `number` of a tile before any column is added.
  template <int Rows, class Form>
  TESSERA_INLINE void start(const Form& form, const numbers_of_tile<Form>& numbers, int number,
                            const float* x_sums, float* lanes) const {
    reg sums[Rows];
    TESSERA_UNROLL
    for (int i = 0; i < Rows; ++i) sums[i] = vec::zero();
    if constexpr (Form::has_offsets) {
      const auto add = [&](std::int64_t of, reg own_scales, reg own_zeros) {
        const reg offset = form.offsets(own_scales, own_zeros);
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          sums[i] = vec::fma(offset, vec::load(x_sums + i * sums_stride_ + of), sums[i]);
        }
      };
      const float *const scales = numbers.scales(number), *const zeros = numbers.zeros(number);
      std::int64_t of = 0;
      for (; of + vec::width <= layout_.groups; of += vec::width) {
        add(of, vec::load(scales + of), vec::load(zeros + of));
      }
      if (of < layout_.groups) {
        const auto left = static_cast<int>(layout_.groups - of);
        add(of, vec::load_n(scales + of, left), vec::load_n(zeros + of, left));
      }
    }
    TESSERA_UNROLL
    for (int i = 0; i < Rows; ++i) vec::store(lanes + i * vec::width, sums[i]);
  }

  /// Adds columns [first, end) of `Count` rows of weights to their sums with `Rows` rows of the
  /// batch, lane by lane: a lane adds the same terms in the same order, whatever goes on beside it.
  template <int Count, int Rows, class Form, class Scales>
  TESSERA_INLINE void add_columns(const Form& form, const std::byte* codes, std::int64_t row_bytes,
                                  const Scales& scales, std::int64_t first, std::int64_t end,
                                  const std::byte* x, float* lanes) const {
    constexpr int together = Form::together, bytes_of_block = together * blocks::width;
    constexpr int block = columns_of_block<Form>;
    reg sums[Count][Rows];
    TESSERA_UNROLL
    for (int i = 0; i < Count * Rows; ++i) {
      sums[i / Rows][i % Rows] = vec::load(lanes + i * vec::width);
    }
    codes += first * Form::code_bits / 8;
    x += first * Operand::element_bytes;
    using code_registers = typename blocks::reg[Count][together];
    const auto load = [&](code_registers& to) {
      TESSERA_UNROLL
      for (int r = 0; r < Count; ++r) blocks::load(codes + r * row_bytes, to[r]);
      codes += bytes_of_block;
    };
    const auto load_end = [&](std::int64_t left, code_registers& to) {
      const auto bytes = static_cast<int>(std::max<std::int64_t>(left, 0) * Form::code_bits / 8);
      TESSERA_UNROLL
      for (int r = 0; r < Count; ++r) blocks::load_n(codes + r * row_bytes, bytes, to[r]);
      codes += bytes_of_block;
    };
    const std::int64_t from_own = operand_.bytes_ahead(Rows, Count * row_bytes);
    const std::int64_t ahead = from_own - bytes_of_block;  // `codes` are those of the next block
    const auto add = [&]<bool IsLast>(std::int64_t column, const code_registers& own) {
      // Behind the loads: in front of them they let memory rest, a tenth to a third of its rate.
      if (from_own != 0) {
        TESSERA_UNROLL
        for (int i = 0; i < Count * together; ++i) {
          TESSERA_PREFETCH(codes + i / together * row_bytes + ahead + i % together * blocks::width);
        }
      }
      reg products[Count][Rows];
      form.multiply(own, x, x_stride_, products);
      TESSERA_UNROLL
      for (int r = 0; r < Count; ++r) {
        const reg scale = IsLast ? scales.of_last_block(r, column) : scales.of_block(r, column);
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) sums[r][i] = vec::fma(products[r][i], scale, sums[r][i]);
      }
      x += block * Operand::element_bytes;
    };
    if constexpr (together == 1) {
      // Four loads a turn: prefetchers of the first-level cache go by the address of a load.
      TESSERA_UNROLL_FOUR
      for (; first + block <= end; first += block) {
        code_registers own;
        load(own);
        add.template operator()<false>(first, own);
      }
      if (first < end) {
        code_registers own;
        load_end(end - first, own);
        add.template operator()<true>(first, own);
      }
    } else {
      // The next block is put in order beside the products of one: a core looks no further ahead.
      code_registers next;
      const auto load_next = [&](std::int64_t left) {
        if (left >= block) {
          load(next);
        } else {
          load_end(left, next);
        }
        TESSERA_UNROLL
        for (int r = 0; r < Count; ++r) blocks::by_lanes(next[r]);
      };
      load_next(end - first);
      for (; first < end; first += block) {
        code_registers own;
        TESSERA_UNROLL
        for (int i = 0; i < Count * together; ++i) {
          own[i / together][i % together] = next[i / together][i % together];
        }
        load_next(end - first - block);
        add.template operator()<true>(first, own);
      }
    }
    TESSERA_UNROLL
    for (int i = 0; i < Count * Rows; ++i) {
      vec::store(lanes + i * vec::width, sums[i / Rows][i % Rows]);
    }
  }

  /// Sums of lanes, times the scales of rows of the batch.
  template <int Rows>
  TESSERA_INLINE void finish(const code_row_scale* scales, const float* lanes,
                             float* totals) const {
    for (int i = 0; i < Rows; ++i) {
      reg sums[vec::width];
      for (int r = 0; r < vec::width; ++r) sums[r] = vec::load(lanes + (r * Rows + i) * vec::width);
      const reg total = vec::mul(vec::sums(sums), vec::broadcast(scales[i].first));
      vec::store(totals + i * rows_of_tile, vec::mul(total, vec::broadcast(scales[i].second)));
    }
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;  ///< sizes and forms of all matrices are the same
  const strided_matrix& a_;
  const strided_matrix& out_;
  Operand operand_;
  code_row_layout layout_;
  std::int64_t x_stride_, sums_stride_;  ///< of rows of the batch, and of their sums
  std::int64_t rows_ahead_;              ///< from scales and zeros that are read to those asked for
};

}  // namespace tessera::kernels::quantized::cpu

#undef TESSERA_UNROLL_FOUR
