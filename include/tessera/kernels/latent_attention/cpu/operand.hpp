// The operand A of a product whose summed axis may be of any length: rows of floats, cut into
// slabs of columns. Rows of a slab are a constant distance apart, as the microkernel wants it, and
// no running sum is longer than a slab.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Rows of A in slabs.
template <class Kernel>
class slabs {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  static constexpr int depth = 128;  ///< columns of a slab
  static constexpr int stride = depth + 16;

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
    prim::with_elements<isa_type>(from, [&](const auto* elements) {
      for_each_slab([&](int begin, int count) {
        prim::load_row<isa_type>(elements + offset + begin, count, row(begin / depth, r));
      });
    });
  }
  /// Row `r` is a row of floats.
  void load(int r, const float* from) const {
    for_each_slab([&](int begin, int count) {
      prim::load_row<isa_type>(from + begin, count, row(begin / depth, r));
    });
  }

  /// C (+)= A B for the first `rows` rows of A and the columns [0, columns) of B, in whole
  /// registers.
  template <prim::product_kind Kind>
  void multiply(int rows, const typename shape::panels& b, std::int64_t columns, float* c,
                std::int64_t c_stride) const {
    using enum prim::product_kind;
    for_each_slab([&](int begin, int count) {
      const float* const a = row(begin / depth, 0) - begin;
      const prim::product_range words{begin, begin + count}, all{0, static_cast<int>(columns)};
      if (Kind == overwrite && begin == 0) {
        prim::product<overwrite, typename shape::words, shape::mr, stride>(a, rows, b, words, all,
                                                                           c, c_stride);
      } else {
        prim::product<add, typename shape::words, shape::mr, stride>(a, rows, b, words, all, c,
                                                                     c_stride);
      }
    });
  }

 private:
  TESSERA_INLINE float* row(int slab, int r) const {
    return data_ + (std::int64_t{slab} * most_ + r) * stride;
  }
  /// Calls body(first column, number of columns).
  template <class Body>
  TESSERA_INLINE void for_each_slab(const Body& body) const {
    for (int begin = 0; begin < columns_; begin += depth) {
      body(begin, std::min(depth, columns_ - begin));
    }
  }

  float* data_ = nullptr;
  int most_ = 0;
  int columns_ = 0;
};

}  // namespace tessera::kernels::latent_attention::cpu
