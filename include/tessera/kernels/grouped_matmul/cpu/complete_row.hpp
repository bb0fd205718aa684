// What the options of a product make of a row of its result: the activation, its scale, the
// multiplier and the residual.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// The activation of `count` floats, up to whole registers.
template <class Kernel>
void activate_row(product_activation how, float* row, int count) {
  using isa_type = typename traits<Kernel>::isa_type;
  using vec = typename traits<Kernel>::vec;
  using reg = typename vec::reg;
  const auto each = [&](const auto& function) {
    for (int at = 0; at < count; at += vec::width) {
      vec::store(row + at, function(vec::load(row + at)));
    }
  };
  const reg zero = vec::zero();
  switch (how) {
    case product_activation::none:
      return;
    case product_activation::relu:
      return each([&](reg x) { return vec::select_below(x, zero, zero, x); });
    case product_activation::silu:
      return each([](reg x) { return vec::mul(x, prim::sigmoid_of<isa_type>(x)); });
    case product_activation::gelu_tanh:
      // (1 + tanh(u)) / 2 is the sigmoid of 2 u.
      return each([](reg x) {
        const reg twice = vec::broadcast(2 * epilogue::gelu_tanh::slope);
        const reg cubic =
            vec::broadcast(2 * epilogue::gelu_tanh::slope * epilogue::gelu_tanh::cubic);
        const reg u = vec::mul(x, vec::fma(vec::mul(x, x), cubic, twice));
        return vec::mul(x, prim::sigmoid_of<isa_type>(u));
      });
    case product_activation::gelu:
      for (int at = 0; at < count; ++at) row[at] = epilogue::gelu{}(row[at], {});
      return;
  }
}

/// Columns of row `row` of matrix `matrix`; `scratch` has room for as many.
template <class Kernel>
void complete_row(const grouped_matmul_kernel_args& args, std::int64_t matrix, std::int64_t row,
                  part_of_axis columns, float* scratch, float* sums) {
  using isa_type = typename traits<Kernel>::isa_type;
  activate_row<Kernel>(args.activation, sums, columns.count);
  if (args.out_scale != 1) scale_part<Kernel>(sums, args.out_scale, columns.count);
  const auto load = [&](const grouped_matrix& beside) {
    prim::load_row<isa_type>(beside, beside.offset(matrix, row, columns.first), columns.count,
                             scratch);
  };
  if (args.multiplier.data != nullptr) {
    load(args.multiplier);
    multiply_row<Kernel>(sums, scratch, columns.count);
  }
  if (args.residual.data != nullptr) {
    load(args.residual);
    add_row<Kernel>(sums, scratch, columns.count);
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
