// What follows from a mean pooling row's config on the CPU.
#pragma once

#include <cstdint>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::mean_pooling::cpu {

/// Compile-time shape of a row's kernel.
template <class Row>
struct traits {
  static_assert(cpu_row_is_legal<Row, broken_rule(Row::config)>::value);
  static constexpr mean_pooling_config config = resolved(Row::config);
  using isa_type = typename isa::of<config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  using element = element_t<config.type>;

  static constexpr int width = vec::width;
  /// Elements that a step over the columns takes of each token: a cache line, whose loads are
  /// written out; portable code, whose conversions are long, takes a register.
  static constexpr int line =
      config.target == backend::cpu_generic ? width : 64 / static_cast<int>(sizeof(element));
  /// Columns that are summed together: their sums, 16 KiB, stay in the first-level cache.
  static constexpr std::int64_t block_columns = 4096;
};

/// Element (entry, row, head) of a tensor of rows.
template <class Row, class Element, class Data>
TESSERA_INLINE Element* row_at(Data* data, const pooling_strides& strides, std::int64_t entry,
                               std::int64_t row, std::int64_t head) {
  return static_cast<Element*>(data) + entry * strides.entry + row * strides.row +
         head * strides.head;
}

/// Weight of a token of a masked launch.
template <class Row>
TESSERA_INLINE float weight_of(const mean_pooling_kernel_args& args, std::int64_t entry,
                               std::int64_t token) {
  const std::int64_t at = entry * args.mask_entry + token * args.mask_token;
  switch (args.mask_type) {
    case dtype::f32:
      return static_cast<const float*>(args.mask)[at];
    case dtype::f16:
      return static_cast<float>(static_cast<const f16*>(args.mask)[at]);
    case dtype::bf16:
      return static_cast<float>(static_cast<const bf16*>(args.mask)[at]);
    default:
      return static_cast<float>(static_cast<const std::uint8_t*>(args.mask)[at]);
  }
}

}  // namespace tessera::kernels::mean_pooling::cpu
