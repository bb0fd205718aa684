// Launches of the kernels of quantised weights on the CPU.
#pragma once

#include <type_traits>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/quantized/cpu/any_layout.hpp>
#include <tessera/kernels/quantized/cpu/backward.hpp>
#include <tessera/kernels/quantized/cpu/code_product.hpp>
#include <tessera/kernels/quantized/cpu/dequantize.hpp>
#include <tessera/kernels/quantized/cpu/fixed_rows.hpp>
#include <tessera/kernels/quantized/cpu/forward.hpp>
#include <tessera/kernels/quantized/cpu/pair_rows.hpp>
#include <tessera/kernels/quantized/cpu/quantize.hpp>
#include <tessera/kernels/quantized/cpu/tile_product.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/isa.hpp>

namespace tessera::kernels::quantized::cpu {

/// The launch of a row's pass.
template <class Kernel>
struct launcher {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = quantized_kernel_args;

  using isa_type = typename isa::of<Kernel::config.target>::type;

  static auto of(const args_type& args) {
    return any_layout<isa_type, decltype(&of_rows)>(args, Kernel::config.pass, &of_rows);
  }

 private:
  static auto of_rows(const args_type& args) {
    if constexpr (Kernel::config.pass == quantized_pass::quantize) {
      return quantize<Kernel>(args);
    } else if constexpr (Kernel::config.pass == quantized_pass::dequantize) {
      return dequantize<Kernel>(args);
    } else if constexpr (multiplies_tiles(Kernel::config)) {
      return tile_product<prim::tiles, isa_type>(args, args.x, args.out);
    } else if constexpr (multiplies_codes(Kernel::config)) {
      return code_product<isa_type, fixed_rows<isa_type>>(args, args.x, args.out);
    } else if constexpr (multiplies_pairs(Kernel::config)) {
      return code_product<isa_type, pair_rows<isa_type>>(args, args.x, args.out);
    } else if constexpr (Kernel::config.pass == quantized_pass::forward) {
      return forward<Kernel>(args);
    } else {
      return backward<Kernel>(args);
    }
  }
};

}  // namespace tessera::kernels::quantized::cpu
