// The operand A of a product whose summed axis may be of any length: rows of floats, cut into
// slabs of columns. Rows of a slab are a constant distance apart, as the microkernel wants it, and
// no running sum is longer than a slab.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/code_rows.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Elements side by side as floats, of 8 bits too; anything behind them, up to a whole register and
/// a whole block of codes.
template <class Isa>
void load_elements(const latent_rows& from, std::int64_t offset, std::int64_t count, float* to) {
  const auto widen = [&]<class Code>(Code*) {
    prim::widen_row<Isa>(static_cast<const Code*>(from.data) + offset, static_cast<int>(count), to);
  };
  if (from.type == dtype::f8_e4m3) return widen(static_cast<f8_e4m3*>(nullptr));
  if (from.type == dtype::f8_e5m2) return widen(static_cast<f8_e5m2*>(nullptr));
  prim::load_row<Isa>(from, offset, count, to);
}
/// Floats of a row that is written by `load_elements`.
constexpr std::int64_t elements_stride(std::int64_t count) {
  return (count + prim::code_block - 1) / prim::code_block * prim::code_block;
}

/// Rows of A in slabs, as `Words`.
template <class Kernel, class Words = typename traits<Kernel>::words>
class slabs {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  static constexpr int most_words = 128;  ///< of a slab

 public:
  static constexpr int depth = most_words * Words::k_pack;  ///< columns of a slab
  static constexpr int stride = most_words + 16;            ///< words
  /// Of a row in memory.
  using element = std::conditional_t<Words::k_pack == 1, float, bf16>;

  /// Floats of `rows` rows of `columns` columns.
  static constexpr std::int64_t floats(int rows, std::int64_t columns) {
    return (columns + depth - 1) / depth * rows * stride;
  }

  slabs() = default;
  /// Memory for `most` rows.
  slabs(float* data, int most, std::int64_t columns)
      : data_(data), most_(most), columns_(static_cast<int>(columns)) {}

  /// Row `r` is the first elements at `offset` of a tensor.
  void load(int r, const latent_rows& from, std::int64_t offset) const {
    load_columns(r, {0, columns_}, from, offset);
  }
  /// Columns [begin, end) of row `r` are the elements at `offset` of a tensor, of the words' type
  /// unless that is f32. Zeros follow up to a whole register, or word.
  void load_columns(int r, prim::product_range columns, const latent_rows& from,
                    std::int64_t offset) const {
    if constexpr (Words::k_pack == 1) {
      prim::with_elements<isa_type>(from, [&](const auto* elements) {
        for_each_slab(columns, [&](int begin, int count) {
          prim::load_row<isa_type>(elements + offset + begin - columns.begin, count, at(r, begin));
        });
      });
    } else {
      const element* const elements = static_cast<const element*>(from.data) + offset;
      for_each_slab(columns, [&](int begin, int count) {
        element* const to = at(r, begin);
        if (begin % Words::k_pack == 0) {
          prim::pack_a<isa_type, Words>(elements + begin - columns.begin, count,
                                        reinterpret_cast<float*>(to));
        } else {
          std::copy_n(elements + begin - columns.begin, count, to);
          to[count] = {};
        }
      });
    }
  }
  /// Row `r` is a row of floats.
  void load(int r, const float* from) const {
    for_each_slab({0, columns_}, [&](int begin, int count) {
      prim::load_row<isa_type>(from + begin, count, at(r, begin));
    });
  }

  /// Element `column` of row `r`; those of its slab lie side by side.
  TESSERA_INLINE element* at(int r, int column) const {
    return reinterpret_cast<element*>(row(column / depth, r)) + column % depth;
  }

  /// C (+)= A B for the first `rows` rows of A and the columns [0, columns) of B, in whole
  /// registers. See prim::nothing_beside for what goes on beside.
  template <prim::product_kind Kind, class Beside = prim::nothing_beside>
  void multiply(int rows, const typename shape::panels& b, std::int64_t columns, float* c,
                std::int64_t c_stride, const Beside& beside = {}) const {
    using enum prim::product_kind;
    for_each_slab({0, columns_}, [&](int begin, int count) {
      const slab_words part{begin, prim::words_for<Words>(count)};
      if (Kind == overwrite && begin == 0) {
        multiply_slab<overwrite>(part, rows, b, columns, c, c_stride, beside);
      } else {
        multiply_slab<add>(part, rows, b, columns, c, c_stride, beside);
      }
    });
  }
  /// Calls of what goes on beside that, at least.
  int steps_beside(int rows, std::int64_t columns) const {
    const int tiles = (rows + shape::mr - 1) / shape::mr *
                      std::max(static_cast<int>(columns) / shape::panels::nr, 1);
    int steps = 0;
    for_each_slab({0, columns_}, [&](int, int count) {
      steps += tiles * prim::steps_beside(prim::words_for<Words>(count), prim::any_length);
    });
    return steps;
  }

 private:
  TESSERA_INLINE float* row(int slab, int r) const {
    return data_ + (std::int64_t{slab} * most_ + r) * stride;
  }
  /// What a slab has of a product.
  struct slab_words {
    int column = 0;  ///< of A, the first
    int words = 0;
  };
  template <prim::product_kind Kind, class Beside>
  void multiply_slab(slab_words part, int rows, const typename shape::panels& b,
                     std::int64_t columns, float* c, std::int64_t c_stride,
                     const Beside& beside) const {
    float unchanged[shape::mr];
    std::fill_n(unchanged, shape::mr, 1.0f);
    prim::for_each_register_tile<shape::mr>(
        rows, b, {0, static_cast<int>(columns)},
        [&]<int Rows, int Count, int BStride>(int first, int column) {
          using kernel = prim::microkernel<isa_type, Words, Rows, Count>;
          const float* const of_a = row(part.column / depth, first);
          const float* const of_b = b.at(part.column / Words::k_pack, column);
          float* const to = c + first * c_stride + column;
          if constexpr (Kind == prim::product_kind::overwrite) {
            kernel::template multiply<stride, BStride>(of_a, of_b, part.words, prim::any_length, to,
                                                       c_stride, beside);
          } else {
            kernel::template rescale_and_add<stride, BStride>(
                of_a, of_b, part.words, prim::any_length, unchanged, to, c_stride, beside);
          }
        });
  }

  /// Calls body(first column, number of columns) for what slabs have of a range.
  template <class Body>
  static TESSERA_INLINE void for_each_slab(prim::product_range columns, const Body& body) {
    for (int begin = columns.begin; begin < columns.end;) {
      const int count = std::min(depth - begin % depth, columns.end - begin);
      body(begin, count);
      begin += count;
    }
  }

  float* data_ = nullptr;
  int most_ = 0;
  int columns_ = 0;
};

}  // namespace tessera::kernels::latent_attention::cpu
