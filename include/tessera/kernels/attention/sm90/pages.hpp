// Keys and values in pages: where tokens lie, and boxes of them for the copy unit. Nobody has
// looked at tables in device memory: numbers of no page are taken to be one.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>

namespace tessera::kernels::attention::sm90 {

/// Where a token lies in a pool.
struct token_place {
  int page;
  int slot;
};
__device__ __forceinline__ token_place place_of(const launch_args& args, int sequence, int token) {
  const page_table& pages = args.call.pages;
  const int index = args.page.quotient(token);
  const auto number = static_cast<std::uint32_t>(pages.numbers[sequence * pages.row + index]);
  return {static_cast<int>(min(number, static_cast<std::uint32_t>(pages.page_count - 1))),
          token - index * static_cast<int>(args.page.value)};
}

/// Element (key of the work tile's sequence, head of its keys, 0) of k or v.
template <class Traits>
__device__ __forceinline__ typename Traits::stored* key_row(const launch_args& args,
                                                            const work_tile& work, const void* data,
                                                            const row_strides& strides, int key) {
  using stored = typename Traits::stored;
  if constexpr (Traits::paged) {
    const token_place place = place_of(args, work.sequence, key);
    return token_row<stored>(data, strides, place.page, place.slot, work.kv_head);
  }
  return token_row<stored>(data, strides, entry_of(args.call, work), work.k_begin + key,
                           work.kv_head);
}

}  // namespace tessera::kernels::attention::sm90
