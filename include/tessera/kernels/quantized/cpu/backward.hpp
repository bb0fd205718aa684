// d_x = d_out times packed weights the other way round, and the gradients of scales and zeros.
#pragma once

#include <algorithm>
#include <cstddef>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/column_product.hpp>
#include <tessera/kernels/quantized/cpu/row_product.hpp>
#include <tessera/kernels/quantized/cpu/scale_gradients.hpp>
#include <tessera/prim/cpu/isa.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Kernel>
class backward {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;

  explicit backward(const quantized_kernel_args& args)
      : transposed_(args.transposed),
        by_columns_(args, args.d_out, args.d_x),
        by_rows_(args, args.d_out, args.d_x),
        of_scales_(args, args.transposed ? args.x : args.d_out,
                   args.transposed ? args.d_out : args.x) {}

  /// The two parts use the same memory one after the other.
  std::size_t workspace_bytes(int threads) const {
    const std::size_t product =
        transposed_ ? by_columns_.workspace_bytes(threads) : by_rows_.workspace_bytes(threads);
    return std::max(product, of_scales_.workspace_bytes(threads));
  }
  void run(std::byte* memory, int threads) const {
    if (transposed_) {
      by_columns_.run(memory, threads);
    } else {
      by_rows_.run(memory, threads);
    }
    of_scales_.run(memory, threads);
  }

 private:
  bool transposed_;
  column_product<isa_type> by_columns_;
  row_product<isa_type> by_rows_;
  scale_gradients<isa_type> of_scales_;
};

}  // namespace tessera::kernels::quantized::cpu
