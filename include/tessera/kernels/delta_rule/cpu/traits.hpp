// What follows from a delta rule row's config on the CPU, and the assertion that stops an illegal
// or mis-compiled row.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Compile-time shape of a row's kernel.
template <class Row>
struct traits {
  static_assert(cpu_row_is_legal<Row, broken_rule(Row::config)>::value);
  static constexpr delta_rule_config config = resolved(Row::config);
  using isa_type = typename isa::of<config.target>::type;
  using vec = prim::simd<isa_type>;
  using reg = typename vec::reg;
  using element = element_t<config.type>;

  static constexpr int width = vec::width;
  static constexpr int registers = config.columns / width;  ///< of a whole tile's row
};

/// Floats of a row of `count` that ends where a register ends, and a cache line.
constexpr std::int64_t padded(std::int64_t count) noexcept {
  return (count + 15) / 16 * 16;
}

/// Calls body(std::integral_constant<int, registers>) with as many registers as hold `columns`.
template <class Row, int Registers = traits<Row>::registers, class Body>
TESSERA_INLINE void with_registers(std::int64_t columns, const Body& body) {
  if constexpr (Registers > 1) {
    if (columns <= (Registers - 1) * traits<Row>::width) {
      return with_registers<Row, Registers - 1>(columns, body);
    }
  }
  body(std::integral_constant<int, Registers>{});
}

}  // namespace tessera::kernels::delta_rule::cpu
