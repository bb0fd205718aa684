// x times packed weights: dot products with rows that have groups of inputs, outer products with
// rows that have groups of outputs.
#pragma once

#include <cstddef>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/column_product.hpp>
#include <tessera/kernels/quantized/cpu/row_product.hpp>
#include <tessera/prim/cpu/isa.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Kernel>
class forward {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;

  explicit forward(const quantized_kernel_args& args)
      : transposed_(args.transposed),
        by_columns_(args, args.x, args.out),
        by_rows_(args, args.x, args.out) {}

  std::size_t workspace_bytes(int threads) const {
    return transposed_ ? by_rows_.workspace_bytes(threads) : by_columns_.workspace_bytes(threads);
  }
  void run(std::byte* memory, int threads) const {
    return transposed_ ? by_rows_.run(memory, threads) : by_columns_.run(memory, threads);
  }

 private:
  bool transposed_;
  column_product<isa_type> by_columns_;
  row_product<isa_type> by_rows_;
};

}  // namespace tessera::kernels::quantized::cpu
