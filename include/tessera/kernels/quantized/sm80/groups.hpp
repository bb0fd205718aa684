// Rows of groups as products of matrices know them.
#pragma once

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/quantized/kernel_args.hpp>

namespace tessera::kernels::quantized::sm80 {

/// A product of the batch with as many matrices, but for its operands.
inline grouped_matmul_kernel_args groups_of(const quantized_kernel_args& call) {
  grouped_matmul_kernel_args product;
  product.m = call.batch;
  product.groups = call.matrices;
  product.group_sizes = call.group_sizes;
  product.all_groups = call.all_groups;
  product.group_offset = call.group_offset;
  product.local_rows = call.local_rows;
  return product;
}

}  // namespace tessera::kernels::quantized::sm80
