#include "lengths.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/spec/check_contents.hpp>

#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {
namespace {

std::int64_t dim_of(const bound_call& call, std::int8_t dim) {
  return call.dims[static_cast<std::size_t>(dim)];
}

void put(const tensor_view& list, std::int64_t at, std::int64_t number) {
  reference::store(list, at * list.stride[0], static_cast<double>(number));
}

/// Where each of `count` parts of `tokens` tokens begins, and the end.
std::vector<std::int64_t> cut(std::int64_t tokens, std::int64_t count, length_profile profile,
                              std::uint64_t seed) {
  support::random_source random(seed);
  std::vector<double> ends{0};
  // Zipf: the sequence at place n has rank (7 n + 3) mod count, so that long and short ones mix.
  const std::int64_t step = count % 7 == 0 ? 1 : 7;
  for (std::int64_t n = 0; n < count; ++n) {
    double share = 1;
    if (profile == length_profile::zipf) {
      share = 1.0 / static_cast<double>((n * step + 3) % count + 1);
    }
    if (profile == length_profile::ragged) share = std::exp(2.2 * random.uniform() - 1.1);
    ends.push_back(ends.back() + share);
  }
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t n = 1; n <= count; ++n) {
    const double share = ends[static_cast<std::size_t>(n)] / ends.back();
    offsets.push_back(profile == length_profile::equal
                          ? tokens * n / count
                          : std::llround(static_cast<double>(tokens) * share));
  }
  return offsets;
}

/// Ragged ones are full in the first entry, as the longest of a padded batch is.
void fill_with_lengths(const tensor_view& list, std::int64_t longest, length_profile profile,
                       std::uint64_t seed) {
  support::random_source random(seed);
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    const bool full = profile != length_profile::ragged || n == 0;
    put(list, n, full ? longest : random.between((longest + 1) / 2, longest));
  }
}

/// Numbers from the first one on; those that lie apart from others end with the last one.
void fill_with_indices(const tensor_view& list, std::int64_t counted, bool apart) {
  const std::int64_t first = apart ? std::max<std::int64_t>(counted - list.extent[0], 0) : 0;
  const std::int64_t last = std::max<std::int64_t>(counted - 1, 0);
  for (std::int64_t n = 0; n < list.extent[0]; ++n) put(list, n, std::min(first + n, last));
}

/// Slots of a token have numbers that are as far apart as there is room for.
void fill_with_spread_indices(const tensor_view& lists, std::int64_t counted) {
  const std::int64_t slots = lists.extent[static_cast<std::size_t>(lists.rank - 1)];
  reference::for_each_element(lists, [&](std::int64_t n, std::int64_t offset) {
    const std::int64_t slot = n % slots;
    const std::int64_t number = slots <= counted ? slot * counted / slots : slot;
    reference::store(lists, offset, static_cast<double>(number < counted ? number : -1));
  });
}

/// Entry i of the table is page i of a shuffled pool; pools that are too small are shared.
void fill_with_pages(const bound_call& call, std::size_t tensor, length_profile profile,
                     std::uint64_t seed) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& table = call.tensors[tensor];
  const std::int64_t pages = dim_of(call, form.counts);
  support::random_source random(seed);
  std::vector<std::int64_t> order(static_cast<std::size_t>(std::max<std::int64_t>(pages, 1)));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  support::shuffle(order, random);
  reference::for_each_element(table, [&](std::int64_t n, std::int64_t offset) {
    const auto page = static_cast<double>(order[static_cast<std::size_t>(n) % order.size()]);
    reference::store(table, offset, page);
  });
  const auto used_by = static_cast<std::size_t>(form.used_by);
  if (!call.has(used_by)) return;
  const std::int8_t within = call.form().tensors[used_by].counts;
  std::int64_t most = pages > 0 ? table.extent[1] * dim_of(call, form.page) : 0;
  if (within >= 0) most = std::min(most, dim_of(call, within));
  const tensor_view& lengths = call.tensors[used_by];
  fill_with_lengths(lengths, most, profile, seed);
  const std::int8_t covered = call.form().tensors[used_by].covers;
  if (covered < 0 || !call.has(static_cast<std::size_t>(covered))) return;  // one row each at most
  const std::vector<double> offsets =
      reference::to_doubles(call.tensors[static_cast<std::size_t>(covered)]);
  const std::vector<double> filled = reference::to_doubles(lengths);
  for (std::size_t n = 0; n < filled.size(); ++n) {
    const double rows = offsets[n + 1] - offsets[n];
    if (filled[n] < rows)
      put(lengths, static_cast<std::int64_t>(n), static_cast<std::int64_t>(rows));
  }
}

/// The sequences of a group share eight ninths of the pages before their rows.
void share_pages(const bound_call& call, std::size_t list) {
  const tensor_form& form = call.form().tensors[list];
  const tensor_view& groups = call.tensors[static_cast<std::size_t>(form.used_by)];
  const checks::used_pages used =
      checks::pages_of_table(call, static_cast<std::size_t>(form.apart));
  for (std::int64_t g = 0; g < call.tensors[list].extent[0]; ++g) {
    const std::int64_t first = checks::number_in(groups, g), end = checks::number_in(groups, g + 1);
    std::int64_t pages = used.table.extent[1];
    for (std::int64_t n = first; n < end; ++n) {
      const std::int64_t rows = form.covers < 0
                                    ? 1
                                    : checks::number_in(call.tensors[form.covers], n + 1) -
                                          checks::number_in(call.tensors[form.covers], n);
      pages = std::min(pages, std::max<std::int64_t>(used.length(n) - rows, 0) / used.page);
    }
    pages = pages * 8 / 9;
    put(call.tensors[list], g, pages);
    for (std::int64_t n = first + 1; n < end; ++n) {
      for (std::int64_t m = 0; m < pages; ++m) {
        reference::store(used.table, n * used.table.stride[0] + m * used.table.stride[1],
                         static_cast<double>(used.number(first, m)));
      }
    }
  }
}

}  // namespace

void fill_lengths(const bound_call& call, length_profile profile, std::uint64_t seed) {
  const signature& form = call.form();
  // Pages come last: they also decide how many of them are used.
  std::vector<std::size_t> tables, shared;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const tensor_form& what = form.tensors[i];
    const tensor_view& list = call.tensors[i];
    if (!call.has(i) || what.counts < 0) continue;
    if (what.holds == tensor_contents::page_numbers) {
      tables.push_back(i);
      continue;
    }
    if (what.holds == tensor_contents::shared_pages) {
      shared.push_back(i);
      continue;
    }
    if (what.holds == tensor_contents::count) {
      for (std::int64_t n = 0; n < list.extent[0]; ++n) put(list, n, dim_of(call, what.counts));
      continue;
    }
    const std::int64_t counted = dim_of(call, what.counts);
    if (what.holds == tensor_contents::indices || what.holds == tensor_contents::slots) {
      fill_with_indices(list, counted, what.apart >= 0);
      continue;
    }
    if (what.holds == tensor_contents::indices_or_none) {
      fill_with_spread_indices(list, counted);
      continue;
    }
    if (what.holds == tensor_contents::lengths) {
      fill_with_lengths(list, counted, profile, seed);
      continue;
    }
    const bool sizes = what.holds == tensor_contents::group_sizes;
    const auto offsets = cut(counted, list.extent[0] - (sizes ? 0 : 1), profile, seed);
    for (std::size_t n = 0; n < static_cast<std::size_t>(list.extent[0]); ++n) {
      put(list, static_cast<std::int64_t>(n), sizes ? offsets[n + 1] - offsets[n] : offsets[n]);
    }
  }
  for (const std::size_t table : tables) fill_with_pages(call, table, profile, seed);
  for (const std::size_t list : shared) share_pages(call, list);
}

}  // namespace tessera::bench
