// What products of i8 with scales share, on vectors and on tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Whether sums are whole numbers until they are complete: they fit into 32 bits then, and may
/// wrap around on the way.
inline bool sums_stay_whole(const grouped_matmul_kernel_args& args) {
  constexpr std::int64_t longest = 1 << 16;
  return args.scales != product_scales::blocks && args.k > 0 && args.k <= longest;
}

/// The scale of each column where each has its own, zeros up to a whole panel.
template <class Kernel>
void load_scales_of_columns(const grouped_matmul_kernel_args& args, std::int64_t group,
                            part_of_axis columns, float* to) {
  using shape = traits<Kernel>;
  const auto* const scales = static_cast<const float*>(args.rhs_scale.data);
  std::fill_n(to, shape::up_to(columns.count, shape::panels::nr), 0.0f);
  for (int column = 0; column < columns.count; ++column) {
    to[column] = scales[args.rhs_scale.offset(group, columns.first + column, 0)];
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
