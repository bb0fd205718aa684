#include "call_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/spec/check_contents.hpp>

#include "../reference/store.hpp"
#include "call_numbers.hpp"

namespace tessera::support {

using reference::store;

void fill_pages(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& table = call.tensors[tensor];
  const auto used_by = static_cast<std::size_t>(form.used_by);
  const tensor_view& lengths = call.tensors[used_by];
  const tensor_form& of_lengths = call.form().tensors[used_by];
  const std::int64_t pages = dim_of(call, form.counts), page = dim_of(call, form.page);
  std::vector<std::int64_t> unused(static_cast<std::size_t>(pages));
  std::iota(unused.begin(), unused.end(), 0);
  if (random != nullptr) shuffle(unused, *random);
  std::int64_t taken = 0;
  const bool covers = of_lengths.covers >= 0;
  std::vector<std::int64_t> offsets;
  if (covers && call.has(static_cast<std::size_t>(of_lengths.covers))) {
    offsets = numbers_in(call.tensors[static_cast<std::size_t>(of_lengths.covers)]);
  }
  for (std::int64_t n = 0; n < table.extent[0]; ++n) {
    const std::int64_t room = (pages - taken) * page;
    std::int64_t most = std::min(table.extent[1] * page, room);
    if (of_lengths.counts >= 0) most = std::min(most, dim_of(call, of_lengths.counts));
    std::int64_t length = lengths.present() ? drawn_length(most, random) : most;
    if (covers) {
      const auto at = static_cast<std::size_t>(n);
      const std::int64_t rows = offsets.empty() ? 1 : offsets[at + 1] - offsets[at];
      length = std::max(length, std::min(rows, most));
    }
    if (lengths.present()) store(lengths, n * lengths.stride[0], static_cast<double>(length));
    for (std::int64_t m = 0; m < table.extent[1]; ++m) {
      std::int64_t number = -1;
      if (m * page < length) {
        number = unused[static_cast<std::size_t>(taken++)];
      } else if (random != nullptr) {
        number =
            random->pick<std::int64_t>({-1, 0, pages - 1, pages, pages + 7, INT32_MAX, INT32_MIN});
      }
      store(table, n * table.stride[0] + m * table.stride[1], static_cast<double>(number));
    }
  }
}

void fill_shared_pages(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& list = call.tensors[tensor];
  const tensor_view& table = call.tensors[static_cast<std::size_t>(form.apart)];
  const checks::used_pages used =
      checks::pages_of_table(call, static_cast<std::size_t>(form.apart));
  const auto groups = numbers_in(call.tensors[static_cast<std::size_t>(form.used_by)]);
  std::vector<std::int64_t> offsets;
  if (form.covers >= 0) offsets = numbers_in(call.tensors[static_cast<std::size_t>(form.covers)]);
  for (std::int64_t g = 0; g < list.extent[0]; ++g) {
    const auto at = static_cast<std::size_t>(g);
    const std::int64_t end = std::min(groups[at + 1], used.sequences);
    std::int64_t pages = table.extent[1];
    for (std::int64_t n = groups[at]; n < end; ++n) {
      const auto row = static_cast<std::size_t>(n);
      const std::int64_t rows = offsets.empty() ? 1 : offsets[row + 1] - offsets[row];
      pages = std::min(pages, std::max<std::int64_t>(used.length(n) - rows, 0) / used.page);
    }
    if (random != nullptr && random->chance(0.3)) pages = random->below(pages + 1);
    store(list, g * list.stride[0], static_cast<double>(pages));
    for (std::int64_t n = groups[at] + 1; n < end; ++n) {
      for (std::int64_t m = 0; m < pages; ++m) {
        store(table, n * table.stride[0] + m * table.stride[1],
              static_cast<double>(used.number(groups[at], m)));
      }
    }
  }
}

}  // namespace tessera::support
