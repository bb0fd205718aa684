// out[m, r] = sum over columns c of a[m, c] w[r, c] for codes of 4 or 8 bits that are multiplied as
// they are: rows of a are numbers of fixed point, sums of a few columns are whole numbers, and
// scales and zeros come to these sums.
//
//   for each 16 rows of weights, up to 4 rows of a, row of weights {
//     for each 64 bytes of codes { codes to bytes; whole sums of each row of a; sums += scale sum }
//     sums += scale zero times sums of groups of a
//   }
//
// Elements of a that are not finite are multiplied by decoded weights, one by one; so are all where
// sums overflow before the scale of their row makes them small.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/batch_parts.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/fixed_rows.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/cpu/code_bytes.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

/// How codes become unsigned bytes.
enum class byte_codes : std::uint8_t { nibbles, e2m1, bytes };

/// Elements of E2M1 in halves, from -6 on.
inline constexpr std::array<std::uint8_t, 16> e2m1_bytes{12, 13, 14, 15, 16, 18, 20, 24,
                                                         12, 11, 10, 9,  8,  6,  4,  0};
inline constexpr float e2m1_zero = 12, e2m1_unit = 0.5f;

template <class Isa>
class byte_product {
 public:
  /// `out` has the batch rows of `a`.
  byte_product(const quantized_kernel_args& args, const strided_matrix& a,
               const strided_matrix& out)
      : args_(args),
        weights_(args.weights),
        a_(a),
        out_(out),
        layout_{.columns = weights_.columns(),
                .groups = weights_.groups,
                .group_size = weights_.group_size,
                .code_bits = weights_.bits,
                .subtracts = !is_biased(weights_)} {}

  std::size_t workspace_bytes(int threads) const {
    const std::int64_t of_row =
        layout_.sums() * static_cast<std::int64_t>(sizeof(float)) + layout_.bytes();
    return batch_parts<Isa>::bytes(args_) + bytes_of_scales() +
           static_cast<std::size_t>(args_.batch * of_row) +
           static_cast<std::size_t>(threads * floats_of_thread()) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    const batch_parts<Isa> parts(args_, memory);
    const fixed_rows rows = rows_in(memory + batch_parts<Isa>::bytes(args_));
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int thread) {
      if (!parts.holds(m)) return store_zeros<Isa>(out_, m, weights_.rows);
      float* const x = rows.scratch + thread * floats_of_thread();
      load(m, x);
      rows.scales[m] = fix_row<Isa>(layout_, x, rows.numbers + m * layout_.bytes(),
                                    rows.sums + m * layout_.sums());
      if (codes() == byte_codes::e2m1) rows.scales[m].first *= e2m1_unit;
    });
    const std::int64_t tiles = (weights_.rows + rows_of_tile - 1) / rows_of_tile;
    prim::parallel_items<Isa>(parts.items(tiles), threads, [&](std::int64_t item, int thread) {
      parts.run_item(item, tiles, [&](std::int64_t number, const batch_part& part) {
        const std::int64_t row = number * rows_of_tile;
        const auto count =
            static_cast<int>(std::min<std::int64_t>(rows_of_tile, weights_.rows - row));
        multiply(weights_.at(part.matrix), {row, count, part.first, part.rows}, rows,
                 rows.scratch + thread * floats_of_thread());
      });
    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using bytes = prim::code_bytes<Isa>;
  using reader_type = weight_reader<Isa>;
  using numbers_of_groups = typename reader_type::numbers_of_groups;
  static constexpr int rows_of_tile = vec::width;
  static constexpr int most_together = 4;  ///< rows of the batch
  /// Columns whose numbers stay in the first-level cache, of all rows together.
  static constexpr std::int64_t columns_in_cache = 8192;
  static constexpr int bytes_ahead = 4096;  ///< from codes that are read to those asked for
  /// Sums in lanes, sums of a part.
  static constexpr std::int64_t floats_of_tile =
      rows_of_tile * (most_together * vec::width + batch_of_item);

  struct tile {
    std::int64_t row;
    int rows;
    std::int64_t batch_row;
    int batch;
  };
  /// The batch, as `fix_row` makes it, and memory of threads.
  struct fixed_rows {
    fixed_row_scale* scales;
    float* sums;
    std::int8_t* numbers;
    float* scratch;
  };

  byte_codes codes() const {
    if (weights_.mode != weight_mode::affine) return byte_codes::e2m1;
    return weights_.bits == 4 ? byte_codes::nibbles : byte_codes::bytes;
  }

  std::size_t bytes_of_scales() const {
    return (static_cast<std::size_t>(args_.batch) * sizeof(fixed_row_scale) + 63) / 64 * 64;
  }
  std::int64_t floats_of_row() const { return layout_.blocks() * layout_.block(); }
  std::int64_t floats_of_thread() const { return std::max(floats_of_row(), floats_of_tile); }
  fixed_rows rows_in(std::byte* memory) const {
    fixed_rows rows{};
    rows.scales = reinterpret_cast<fixed_row_scale*>(memory);
    rows.sums = reinterpret_cast<float*>(memory + bytes_of_scales());
    rows.numbers = reinterpret_cast<std::int8_t*>(rows.sums + args_.batch * layout_.sums());
    rows.scratch = reinterpret_cast<float*>(rows.numbers + args_.batch * layout_.bytes());
    return rows;
  }

  /// A row of the batch as floats, zeros up to a whole block.
  void load(std::int64_t m, float* to) const {
    prim::load_row<Isa>(a_, m * a_.row, weights_.columns(), to);
    std::fill(to + weights_.columns(), to + floats_of_row(), 0.0f);
  }

  void multiply(const packed_weights& weights, const tile& at, const fixed_rows& x,
                float* scratch) const {
    switch (codes()) {
      case byte_codes::nibbles:
        multiply_codes<byte_codes::nibbles>(weights, at, x, scratch);
        break;
      case byte_codes::e2m1:
        multiply_codes<byte_codes::e2m1>(weights, at, x, scratch);
        break;
      case byte_codes::bytes:
        multiply_codes<byte_codes::bytes>(weights, at, x, scratch);
        break;
    }
    const float* const sums = scratch + rows_of_tile * most_together * vec::width;
    for (int m = 0; m < at.batch; ++m) {
      const std::int64_t of_batch = at.batch_row + m;
      float own[rows_of_tile];
      const reg total = vec::load(sums + m * rows_of_tile);
      vec::store(own, total);
      // 0 times each is 0, or NaN.
      if (is_not_finite(vec::sum(vec::mul(total, vec::zero())))) {
        std::fill(own, own + at.rows, 0.0f);
        add_specials<Isa>(weights, at.row, at.rows, a_, of_batch, is_any, own);
      } else if (x.scales[of_batch].has_specials) {
        add_specials<Isa>(weights, at.row, at.rows, a_, of_batch, is_not_finite, own);
      }
      prim::store_row<Isa>(out_, of_batch * out_.row + at.row, at.rows, own);
    }
  }

  template <byte_codes Codes>
  void multiply_codes(const packed_weights& weights, const tile& at, const fixed_rows& x,
                      float* scratch) const {
    const reader_type reader(weights);
    float* const totals = scratch + rows_of_tile * most_together * vec::width;
    prim::for_each_row_tile<most_together>(at.batch, [&]<int Rows>(int m) {
      const std::int64_t first_row = at.batch_row + m;
      std::fill(scratch, scratch + rows_of_tile * Rows * vec::width, 0.0f);
      const std::int64_t piece = columns_of_piece(Rows);
      const std::int64_t together = std::max(piece, columns_in_cache / Rows / piece * piece);
      for (std::int64_t first = 0; first < weights_.columns(); first += together) {
        const std::int64_t end = std::min(first + together, weights_.columns());
        for (int r = 0; r < at.rows; ++r) {
          add_row<Codes, Rows>(
              reader, weights, at.row + r, first, end, x.numbers + first_row * layout_.bytes(),
              x.sums + first_row * layout_.sums(), scratch + r * Rows * vec::width);
        }
      }
      for (int i = 0; i < Rows; ++i) {
        reg sums[vec::width];
        for (int r = 0; r < vec::width; ++r) {
          sums[r] = vec::load(scratch + (r * Rows + i) * vec::width);
        }
        const fixed_row_scale& scale = x.scales[first_row + i];
        const reg total = vec::mul(vec::sums(sums), vec::broadcast(scale.first));
        vec::store(totals + (m + i) * rows_of_tile, vec::mul(total, vec::broadcast(scale.second)));
      }
    });
  }

  /// Columns whose numbers are read together: of 16 to 64 groups, no more than stay in the cache.
  std::int64_t columns_of_piece(int rows) const {
    const std::int64_t groups = columns_in_cache / rows / weights_.group_size / vec::width;
    constexpr std::int64_t most = reader_type::most_groups / vec::width;
    return std::clamp<std::int64_t>(groups, 1, most) * vec::width * weights_.group_size;
  }

  /// Adds columns [first, end) of a row of weights to the sums of `Rows` rows of the batch, lane by
  /// lane: a lane adds the same terms in the same order, whatever goes on beside it.
  template <byte_codes Codes, int Rows>
  TESSERA_INLINE void add_row(const reader_type& reader, const packed_weights& weights,
                              std::int64_t row, std::int64_t first, std::int64_t end,
                              const std::int8_t* x, const float* x_sums, float* lanes) const {
    constexpr int registers = Codes == byte_codes::bytes ? 1 : 2;
    constexpr int block = registers * bytes::width;
    const auto* const codes = reinterpret_cast<const std::byte*>(
        static_cast<const std::uint32_t*>(weights.codes.data) + row * weights.codes.row);
    const auto table = bytes::table_of(e2m1_bytes.data());
    const auto shift =
        bytes::broadcast(std::countr_zero(static_cast<unsigned>(weights.group_size)));
    const std::int64_t x_stride = layout_.bytes();
    const int group = static_cast<int>(weights.group_size);
    reg sums[Rows];
    TESSERA_UNROLL
    for (int i = 0; i < Rows; ++i) sums[i] = vec::load(lanes + i * vec::width);
    const auto add_block = [&](typename bytes::reg packed, std::int64_t column, reg scale) {
      typename bytes::reg unpacked[registers];
      if constexpr (Codes == byte_codes::bytes) {
        unpacked[0] = packed;
      } else {
        unpacked[0] = bytes::lower_codes(packed);
        unpacked[1] = bytes::upper_codes(packed);
      }
      if constexpr (Codes == byte_codes::e2m1) {
        unpacked[0] = bytes::look_up(table, unpacked[0]);
        unpacked[1] = bytes::look_up(table, unpacked[1]);
      }
      reg products[Rows];
      bytes::whole_sums(unpacked, x + column * bytes::digits, x_stride, products);
      TESSERA_UNROLL
      for (int i = 0; i < Rows; ++i) sums[i] = vec::fma(products[i], scale, sums[i]);
    };
    numbers_of_groups numbers;
    const std::int64_t piece = columns_of_piece(Rows);
    for (std::int64_t at = first; at < end; at += piece) {
      const auto count = static_cast<int>(std::min(piece, end - at));
      const int groups = count / group;
      reader.read_numbers(row, at, count, numbers);
      if (groups % vec::width != 0) vec::store(numbers.scales + groups, vec::zero());
      const std::byte* from = codes + at / block * bytes::width;
      for (int of = 0; of < groups; of += vec::width) {
        const int own = std::min(vec::width, groups - of);
        const reg offset = offsets_of<Codes>(numbers, of, own);
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          const float* const x_sum = x_sums + i * layout_.sums() + at / group + of;
          sums[i] = vec::fma(offset, vec::load(x_sum), sums[i]);
        }
        const reg scales = vec::load(numbers.scales + of);
        auto columns = bytes::columns_of_lanes(block / bytes::lanes);
        const int last = (of + own) * group;
        int column = of * group;
        for (; column + block <= last; column += block, from += bytes::width) {
          TESSERA_PREFETCH(from + bytes_ahead);
          add_block(bytes::load(from), at + column, bytes::spread(scales, columns, shift));
          columns = bytes::later(columns, block);
        }
        if (column < last) {
          add_block(bytes::load_n(from, (last - column) / (block / bytes::width)), at + column,
                    bytes::spread(scales, columns, shift));
        }
      }
    }
    TESSERA_UNROLL
    for (int i = 0; i < Rows; ++i) vec::store(lanes + i * vec::width, sums[i]);
  }

  /// What sums of groups are multiplied by; zeros behind the last group.
  template <byte_codes Codes>
  TESSERA_INLINE reg offsets_of(const numbers_of_groups& numbers, int of, int count) const {
    const reg scales = vec::load_n(numbers.scales + of, count);
    if constexpr (Codes == byte_codes::e2m1) return vec::mul(scales, vec::broadcast(e2m1_zero));
    const reg zeros = vec::load_n(numbers.zeros + of, count);
    return is_biased(weights_) ? zeros : vec::mul(scales, zeros);
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;  ///< sizes and forms of all matrices are the same
  const strided_matrix& a_;
  const strided_matrix& out_;
  fixed_row_layout layout_;
};

}  // namespace tessera::kernels::quantized::cpu
