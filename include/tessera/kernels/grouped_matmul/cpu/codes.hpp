// Rows of elements of 8 bits and of their scales, as floats, and back.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/cpu/code_rows.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// A part of a row as floats, and zeros up to a whole block of codes.
template <class Kernel>
void load_codes(const grouped_matrix& codes, std::int64_t matrix, std::int64_t row,
                part_of_axis inside, float* to) {
  using isa_type = typename traits<Kernel>::isa_type;
  const std::int64_t offset = codes.offset(matrix, row, inside.first);
  if (codes.type == dtype::i8) {
    return prim::widen_row<isa_type>(static_cast<const std::int8_t*>(codes.data) + offset,
                                     inside.count, to);
  }
  if (codes.type == dtype::f8_e5m2) {
    return prim::widen_row<isa_type>(static_cast<const f8_e5m2*>(codes.data) + offset, inside.count,
                                     to);
  }
  prim::widen_row<isa_type>(static_cast<const f8_e4m3*>(codes.data) + offset, inside.count, to);
}

/// Multiplies such a part by its scales, which lie in row `row_of_scales` of theirs.
template <class Kernel>
void scale_codes(const grouped_matrix& scales, product_scales how, std::int64_t matrix,
                 std::int64_t row_of_scales, part_of_axis inside, float* to) {
  const float* const row =
      static_cast<const float*>(scales.data) + scales.offset(matrix, row_of_scales, 0);
  if (how == product_scales::rows) return scale_part<Kernel>(to, row[0], inside.count);
  for_each_scale_block(inside, scale_block, [&](std::int64_t block, int first, int count) {
    scale_part<Kernel>(to + first, row[block], count);
  });
}

/// The first `count` floats as the elements of 8 bits next to them.
template <class Kernel>
void store_codes(const grouped_matrix& to, std::int64_t offset, int count, const float* from) {
  const auto store = [&]<class Code>(Code* codes) {
    for (int at = 0; at < count; ++at) codes[offset + at] = prim::nearest<Code>(from[at]);
  };
  if (to.type == dtype::i8) return store(static_cast<std::int8_t*>(to.data));
  if (to.type == dtype::f8_e5m2) return store(static_cast<f8_e5m2*>(to.data));
  store(static_cast<f8_e4m3*>(to.data));
}

}  // namespace tessera::kernels::grouped_matmul::cpu
