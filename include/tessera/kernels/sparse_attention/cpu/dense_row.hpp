// The row of attention under a row of sparse attention with a type: its loops, or its products.
#pragma once

#include <tessera/families/attention/config.hpp>
#include <tessera/families/sparse_attention/dense_config.hpp>

namespace tessera::kernels::sparse_attention::cpu {

template <class Kernel>
struct dense_row {
  static constexpr attention_config config = dense_config(Kernel::config);
};

}  // namespace tessera::kernels::sparse_attention::cpu
