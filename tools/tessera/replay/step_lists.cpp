#include "step_lists.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <initializer_list>

namespace tessera::tool {
namespace {

std::int64_t rounded(std::int64_t count, std::int64_t most) {
  return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count))),
                  most);
}

std::span<std::int32_t> numbers(run_place& place, std::int64_t count) {
  const std::span<std::byte> bytes =
      place.block(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  return {reinterpret_cast<std::int32_t*>(bytes.data()), static_cast<std::size_t>(count)};
}

}  // namespace

step_lists::step_lists(const replay::serving_limits& limits, std::int64_t longest_table,
                       run_place& place)
    : limits_(limits),
      longest_table_(longest_table),
      place_(place),
      shape_{limits.tokens, limits.sequences, longest_table, 0},
      table_(numbers(place, limits.sequences * longest_table)),
      lengths_(numbers(place, limits.sequences)),
      starts_(numbers(place, limits.sequences + 1)),
      counts_(numbers(place, 3)),
      group_starts_(numbers(place, limits.sequences + 1)),
      group_pages_(numbers(place, limits.sequences)) {}

/// Groups behind those of the step have no sequences.
void step_lists::load_groups(const replay::step& step) {
  const auto count = static_cast<std::int64_t>(step.groups.size());
  shape_.groups = count > 0 ? rounded(count, limits_.sequences) : 0;
  const auto last = count > 0 ? static_cast<std::int32_t>(step.groups.back().end) : 0;
  std::ranges::fill(group_starts_, last);
  std::ranges::fill(group_pages_, 0);
  group_starts_[0] = 0;
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    group_starts_[g + 1] = static_cast<std::int32_t>(step.groups[g].end);
    group_pages_[g] = static_cast<std::int32_t>(step.groups[g].pages);
  }
}

void step_lists::load(const replay::step& step) {
  const auto sequences = static_cast<std::int64_t>(step.ranges.size());
  std::size_t most_pages = 1;
  for (const replay::token_range& range : step.ranges) {
    most_pages = std::max(most_pages, range.pages.size());
  }
  shape_ = {.tokens = rounded(step.tokens, limits_.tokens),
            .sequences = rounded(sequences, limits_.sequences),
            .pages = rounded(static_cast<std::int64_t>(most_pages), longest_table_),
            .groups = 0};
  load_groups(step);
  // Nobody looks at entries behind those of the step: -1 is no page and no length.
  for (const std::span<std::int32_t> list : {table_, lengths_, starts_}) {
    std::ranges::fill(list, -1);
  }
  std::int32_t row = 0;
  starts_[0] = 0;
  for (std::size_t n = 0; n < step.ranges.size(); ++n) {
    const replay::token_range& range = step.ranges[n];
    std::ranges::copy(range.pages, table_.begin() + static_cast<std::int64_t>(n) * shape_.pages);
    lengths_[n] = static_cast<std::int32_t>(range.keys());
    row += static_cast<std::int32_t>(range.tokens);
    starts_[n + 1] = row;
  }
  counts_[0] = counts_[1] = static_cast<std::int32_t>(step.generating);
  counts_[2] = static_cast<std::int32_t>(sequences);
  for (const std::span<std::int32_t> list :
       {table_, lengths_, starts_, counts_, group_starts_, group_pages_}) {
    place_.send(std::as_bytes(list));
  }
}

}  // namespace tessera::tool
