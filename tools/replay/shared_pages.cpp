#include "shared_pages.hpp"

#include <algorithm>
#include <map>

#include "scheduler.hpp"

namespace tessera::replay {
namespace {

/// One half of a step: those that generate, or the others.
void sort_half(std::span<token_range> ranges) {
  struct users {
    std::size_t first = 0, count = 0;
  };
  std::map<page_number, users> of_page;
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    users& known = of_page[ranges[n].pages.front()];
    if (known.count++ == 0) known.first = n;
  }
  const auto place = [&](const token_range& range) {
    const users& known = of_page[range.pages.front()];
    return known.count > 1 ? known.first : ranges.size();
  };
  std::ranges::stable_sort(ranges, {}, place);
}

/// First pages that are the same in all of these ranges, and hold none of their tokens.
std::int64_t common_pages(std::span<const token_range> ranges, std::int64_t page_size) {
  const std::vector<page_number>& first = ranges.front().pages;
  auto common = static_cast<std::int64_t>(first.size());
  for (const token_range& range : ranges) {
    const auto differ = std::ranges::mismatch(first, range.pages).in1;
    common = std::min(
        {common, static_cast<std::int64_t>(differ - first.begin()), range.begin / page_size});
  }
  return common;
}

}  // namespace

void sort_by_first_page(std::span<token_range> ranges, std::size_t generating) {
  sort_half(ranges.first(generating));
  sort_half(ranges.subspan(generating));
}

std::vector<page_group> page_groups_of(std::span<const token_range> ranges, std::size_t generating,
                                       std::int64_t page_size) {
  std::vector<page_group> groups;
  std::size_t last_shared = 0;  // groups up to the last one with pages
  for (std::size_t begin = 0; begin < ranges.size();) {
    const std::size_t half = begin < generating ? generating : ranges.size();
    std::size_t end = begin + 1;
    while (end < half && ranges[end].pages.front() == ranges[begin].pages.front()) ++end;
    const std::int64_t pages =
        end - begin > 1 ? common_pages(ranges.subspan(begin, end - begin), page_size) : 0;
    const bool joins = pages == 0 && !groups.empty() && groups.back().pages == 0;
    if (joins) {
      groups.back().end = end;
    } else {
      groups.push_back({.end = end, .pages = pages});
    }
    if (pages > 0) last_shared = groups.size();
    begin = end;
  }
  groups.resize(last_shared);
  return groups;
}

}  // namespace tessera::replay
