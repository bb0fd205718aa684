// Which sequences of a step have the same first pages: attention can be told of them, and reads
// these pages once for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "page_pool.hpp"

namespace tessera::replay {

struct token_range;

/// Ranges of a step, neighbours, that have the same first pages. The first group begins with the
/// first range, each other one where the one before ends.
struct page_group {
  std::size_t end = 0;     ///< one behind its last range
  std::int64_t pages = 0;  ///< that are the same, all before the tokens of the step
};

/// Puts ranges with the same first page side by side, in the order of the first of them, before
/// those that share nothing. The first `generating` ranges stay the first ones.
void sort_by_first_page(std::span<token_range> ranges, std::size_t generating);

/// The groups of sorted ranges up to the last one that shares pages.
std::vector<page_group> page_groups_of(std::span<const token_range> ranges, std::size_t generating,
                                       std::int64_t page_size);

}  // namespace tessera::replay
