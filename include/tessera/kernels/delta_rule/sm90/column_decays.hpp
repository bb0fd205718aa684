// Decays of columns on their way to the item that they scale.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// Starts to copy those of `count` tokens from step `from` on, which may begin before the first,
/// and of `columns` from `first` on, four at a time by the threads that make operands; false if
/// they do not lie at multiples of 16 bytes.
template <class Shape>
__device__ __forceinline__ bool copy_column_decays(const delta_rule_input& decay,
                                                   const ordered_rows& rows, std::int64_t from,
                                                   int count, std::int64_t first,
                                                   std::int64_t columns, walk_item<Shape>& item) {
  const auto* const data = static_cast<const float*>(decay.data) + rows.first + first;
  if (decay.type != dtype::f32 || rows.step % 4 != 0 ||
      reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    return false;
  }
  constexpr int fours = Shape::columns / 4, apart = Shape::maker_threads / fours;
  const auto thread = static_cast<int>(prim::cuda::thread_index());
  const int column = thread % fours * 4, row = thread / fours;
  const auto left = static_cast<int>(min(columns - column, std::int64_t{4}));
  const auto bytes = static_cast<std::uint32_t>(max(left, 0)) * 4;
  const float* next = data + (from + row) * rows.step + column;
#pragma unroll 8
  for (int token = row; token < Shape::tokens; token += apart, next += apart * rows.step) {
    const bool used = token < count && from + token >= 0 && bytes > 0;
    prim::cuda::copy_async_16(prim::cuda::shared_address(item.factor_at(token, column)),
                              used ? next : data, used ? bytes : 0);
  }
  prim::cuda::commit_copies();
  return true;
}

}  // namespace tessera::kernels::delta_rule::sm90
