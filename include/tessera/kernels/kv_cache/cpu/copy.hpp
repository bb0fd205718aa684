// Pages of a pool onto other pages of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::kv_cache::cpu {

template <class Isa>
void copy_page(const page_runs& runs, const std::byte* from, std::byte* to) {
  for (std::int64_t i = 0; i < runs.extents[0]; ++i) {
    for (std::int64_t j = 0; j < runs.extents[1]; ++j) {
      for (std::int64_t k = 0; k < runs.extents[2]; ++k) {
        const std::int64_t at = i * runs.strides[0] + j * runs.strides[1] + k * runs.strides[2];
        std::memcpy(to + at, from + at, static_cast<std::size_t>(runs.run));
      }
    }
  }
}

/// Copies the pages. Their numbers have been checked: no page is written twice, or written and
/// read.
template <class Isa>
void copy(const kv_copy_args& args, int threads) {
  const std::int64_t pools = args.v != nullptr ? 2 : 1;
  prim::parallel_items<Isa>(args.copies * pools, threads, [&](std::int64_t item, int) {
    const bool values = item >= args.copies;
    const std::int64_t pair = values ? item - args.copies : item;
    const page_runs& runs = values ? args.v_runs : args.k_runs;
    auto* const pool = static_cast<std::byte*>(values ? args.v : args.k);
    copy_page<Isa>(runs, pool + args.source_pages[pair] * runs.page,
                   pool + args.target_pages[pair] * runs.page);
  });
}

}  // namespace tessera::kernels::kv_cache::cpu
