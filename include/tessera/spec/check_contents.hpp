// Validates the numbers stored in tensors of host memory that decide what a kernel touches:
// offsets, lengths, pages, sizes of groups; and those that have to be positive. See check.hpp.
// Shapes and memory have been checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/spec/check_indices.hpp>
#include <tessera/spec/check_numbers.hpp>
#include <tessera/spec/check_shapes.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::checks {

/// A count lies between none and all.
inline bool is_count(const bound_call& call, std::size_t tensor, std::string_view owner,
                     status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const auto counted = static_cast<std::size_t>(form.counts);
  const std::int32_t value = number_of(call.tensors[tensor]);
  if (value >= 0 && value <= call.dims[counted]) return true;
  return refuse(failure, form.name, ": is ", value, ", must be 0 to the ", call.dims[counted], " ",
                call.form().dims[counted].label, " of ", owner);
}

/// Offsets start at 0, never decrease and end inside the tensor. Gives the longest sequence.
inline bool are_offsets(std::string_view name, const tensor_view& offsets, std::int64_t sequences,
                        std::string_view owner, std::int64_t rows, std::int64_t& longest,
                        status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(offsets.data);
  longest = 0;
  if (value[0] != 0) return refuse(failure, name, ": entry 0 is ", value[0], ", must be 0");
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t length = std::int64_t{value[n + 1]} - value[n];
    if (length < 0) {
      return refuse(failure, name, ": entry ", n + 1, " is ", value[n + 1], ", entry ", n, " has ",
                    value[n], "; offsets never decrease");
    }
    longest = length > longest ? length : longest;
  }
  if (value[sequences] > rows) {
    return refuse(failure, name, ": the last entry is ", value[sequences], ", ", owner, " has ",
                  rows, " rows");
  }
  return true;
}

/// Every length is 0 to the rows of the tensor.
inline bool are_lengths(std::string_view name, const tensor_view& lengths, std::int64_t entries,
                        std::string_view owner, std::int64_t rows, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(lengths.data);
  for (std::int64_t b = 0; b < entries; ++b) {
    if (value[b] >= 0 && value[b] <= rows) continue;
    return refuse(failure, name, ": entry ", b, " is ", value[b], ", must be 0 to the ", rows,
                  " rows of ", owner);
  }
  return true;
}

/// Sizes are not negative and together no more than the rows there are.
inline bool are_group_sizes(std::string_view name, const tensor_view& sizes, std::string_view owner,
                            std::int64_t rows, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(sizes.data);
  std::int64_t sum = 0;
  for (std::int64_t g = 0; g < sizes.extent[0]; ++g) {
    const std::int32_t size = value[g * sizes.stride[0]];
    if (size < 0) {
      return refuse(failure, name, ": entry ", g, " is ", size, ", must be at least 0");
    }
    sum += size;
  }
  return sum <= rows || refuse(failure, name, ": the sum of the entries is ", sum, ", ", owner,
                               " has ", rows, " rows");
}

/// Every number is above 0 and finite.
inline bool are_positive(std::string_view name, const tensor_view& list, status& failure) {
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    const float number = static_cast<const float*>(list.data)[n * list.stride[0]];
    if (number > 0 && number <= std::numeric_limits<float>::max()) continue;
    return refuse(failure, name, ": entry ", n, " is ", static_cast<double>(number),
                  ", must be above 0 and finite");
  }
  return true;
}

/// Each is there once, and not in the other list, whose numbers have been checked.
inline bool are_apart(const bound_call& call, std::size_t tensor, std::int64_t limit,
                      status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const auto other = static_cast<std::size_t>(form.apart);
  const tensor_view &list = call.tensors[tensor], &others = call.tensors[other];
  const auto refuse_same = [&](std::int64_t entry, const tensor_view& in, std::string_view name) {
    std::int64_t same = 0;
    while (number_in(in, same) != number_in(list, entry)) ++same;
    return refuse(failure, form.name, ": entry ", entry, " is ", number_in(list, entry),
                  ", as is entry ", same, " of ", name);
  };
  number_marks marks(limit);
  for (std::int64_t n = 0; n < others.extent[0]; ++n) marks.mark(number_in(others, n));
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    if (marks.has(number_in(list, n)))
      return refuse_same(n, others, call.form().tensors[other].name);
  }
  number_marks own(limit);
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    if (own.has(number_in(list, n))) return refuse_same(n, list, form.name);
    own.mark(number_in(list, n));
  }
  return true;
}

/// Every number is that of something there is.
inline bool are_indices(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& list = call.tensors[tensor];
  const std::int64_t limit = call.dims[static_cast<std::size_t>(form.counts)];
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    const std::int32_t number = number_in(list, n);
    if (number >= 0 && number < limit) continue;
    return refuse(failure, form.name, ": entry ", n, " is ", number, ", must be 0 to ", limit - 1,
                  ": there are ", limit, " ",
                  call.form().dims[static_cast<std::size_t>(form.counts)].label);
  }
  return form.apart < 0 || are_apart(call, tensor, limit, failure);
}

/// Sequences with tokens have states of their own, which there are. Entries of the others are not
/// looked at.
inline bool are_slots(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& list = call.tensors[tensor];
  const auto counted = static_cast<std::size_t>(form.counts);
  const std::int64_t slots = call.dims[counted];
  const bool packed = form.used_by >= 0 && call.has(static_cast<std::size_t>(form.used_by));
  const auto* const begin =
      packed ? static_cast<const std::int32_t*>(call.tensors[form.used_by].data) : nullptr;
  const auto has_tokens = [&](std::int64_t n) { return !packed || begin[n + 1] > begin[n]; };
  number_marks taken(slots);
  for (std::int64_t n = 0; n < list.extent[0]; ++n) {
    if (!has_tokens(n)) continue;
    const std::int32_t slot = number_in(list, n);
    if (slot < 0 || slot >= slots) {
      return refuse(failure, form.name, ": entry ", n, " is ", slot, ", must be 0 to ", slots - 1,
                    ": there are ", slots, " ", call.form().dims[counted].label);
    }
    if (taken.has(slot)) {
      std::int64_t same = 0;
      while (!has_tokens(same) || number_in(list, same) != slot) ++same;
      return refuse(failure, form.name, ": entry ", n, " is ", slot, ", as is entry ", same,
                    "; sequences with tokens have states of their own");
    }
    taken.mark(slot);
  }
  return true;
}

/// The numbers of a table of pages, and the lengths that say how many of them are used.
struct used_pages {
  std::string_view name, lengths_name;
  const tensor_view& table;
  const tensor_view& lengths;
  std::int64_t sequences;  ///< that are looked at
  std::int64_t page;       ///< tokens of a page

  std::int64_t length(std::int64_t n) const noexcept {
    return static_cast<const std::int32_t*>(lengths.data)[n * lengths.stride[0]];
  }
  std::int32_t number(std::int64_t n, std::int64_t m) const noexcept {
    return static_cast<const std::int32_t*>(table.data)[n * table.stride[0] + m * table.stride[1]];
  }
};

/// Pages [n, m] that sequence n reaches are pages there are. Entries behind are not looked at.
inline bool are_pages(const used_pages& used, std::int64_t pages, status& failure) {
  const std::int64_t slots = used.table.extent[1], page = used.page;
  for (std::int64_t n = 0; n < used.sequences; ++n) {
    const std::int64_t length = used.length(n);
    if (length < 0 || length > slots * page) {
      return refuse(failure, used.lengths_name, ": entry ", n, " is ", length, ", must be 0 to ",
                    slots * page, ": ", used.name, " has ", slots, " pages of ", page, " tokens");
    }
    for (std::int64_t m = 0; m * page < length; ++m) {
      const std::int32_t number = used.number(n, m);
      if (number >= 0 && number < pages) continue;
      return refuse(failure, used.name, ": entry ", n, ",", m, " is ", number, ", must be 0 to ",
                    pages - 1, ": there are ", pages, " pages");
    }
  }
  return true;
}

[[gnu::cold, gnu::noinline]] inline bool refuse_shared_page(const used_pages& used, std::int64_t n,
                                                            std::int64_t m, status& failure) {
  const std::int32_t number = used.number(n, m);
  for (std::int64_t i = 0; i < used.sequences; ++i) {
    for (std::int64_t j = 0; j * used.page < used.length(i); ++j) {
      if ((i == n && j == m) || used.number(i, j) != number) continue;
      return refuse(failure, used.name, ": entry ", n, ",", m, " is ", number, ", as is entry ", i,
                    ",", j, "; a page that is written is in use once");
    }
  }
  return false;
}

/// The rows of `offsets` (absent: one each) are the last tokens of the sequences, and are written:
/// there are not more of them, and a page that gets some is in use once.
inline bool are_own_pages(const used_pages& used, std::string_view offsets_name,
                          const tensor_view& offsets, std::int64_t pages, status& failure) {
  number_marks written(pages);
  const auto* const begin = static_cast<const std::int32_t*>(offsets.data);
  const auto rows_of = [&](std::int64_t n) {
    return begin != nullptr ? std::int64_t{begin[n + 1]} - begin[n] : 1;
  };
  const auto first_written = [&](std::int64_t n) {
    const std::int64_t rows = rows_of(n), length = used.length(n);
    return rows == 0 ? (length + used.page - 1) / used.page : (length - rows) / used.page;
  };
  for (std::int64_t n = 0; n < used.sequences; ++n) {
    if (rows_of(n) > used.length(n)) {
      const bool given = begin != nullptr;
      return refuse(failure, used.lengths_name, ": entry ", n, " is ", used.length(n), ", ",
                    given ? offsets_name : used.name, " gives the sequence ", rows_of(n), " row",
                    rows_of(n) == 1 ? "" : "s");
    }
    for (std::int64_t m = first_written(n); m * used.page < used.length(n); ++m) {
      const std::int32_t page = used.number(n, m);
      if (written.has(page)) return refuse_shared_page(used, n, m, failure);
      written.mark(page);
    }
  }
  for (std::int64_t n = 0; n < used.sequences; ++n) {
    for (std::int64_t m = 0; m < first_written(n); ++m) {
      if (written.has(used.number(n, m))) return refuse_shared_page(used, n, m, failure);
    }
  }
  return true;
}

/// The table of pages `tensor`, whose lengths are given.
inline used_pages pages_of_table(const bound_call& call, std::size_t tensor) {
  const tensor_form& form = call.form().tensors[tensor];
  const auto used_by = static_cast<std::size_t>(form.used_by);
  return {form.name,
          call.form().tensors[used_by].name,
          call.tensors[tensor],
          call.tensors[used_by],
          entries_in_use(call, tensor),
          call.dims[static_cast<std::size_t>(form.page)]};
}

/// A table of pages, as far as lengths say that it is used.
inline bool is_table(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const auto used_by = static_cast<std::size_t>(form.used_by);
  if (!call.has(used_by)) return true;  // nobody says how many are used
  const tensor_form& of_lengths = call.form().tensors[used_by];
  const std::int64_t pages = call.dims[static_cast<std::size_t>(form.counts)];
  const used_pages used = pages_of_table(call, tensor);
  if (!are_pages(used, pages, failure)) return false;
  if (of_lengths.covers < 0) return true;
  const auto covered = static_cast<std::size_t>(of_lengths.covers);
  return are_own_pages(used, call.form().tensors[covered].name, call.tensors[covered], pages,
                       failure);
}

/// The sequences of each group have so many pages before their rows, and they are the same.
/// Groups, rows and table have been looked at.
inline bool are_shared_pages(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& list = call.tensors[tensor];
  const tensor_view& groups = call.tensors[form.used_by];
  const used_pages used = pages_of_table(call, static_cast<std::size_t>(form.apart));
  const auto rows_of = [&](std::int64_t n) {
    if (form.covers < 0) return std::int64_t{1};
    const tensor_view& offsets = call.tensors[form.covers];
    return std::int64_t{number_in(offsets, n + 1)} - number_in(offsets, n);
  };
  for (std::int64_t g = 0; g < list.extent[0]; ++g) {
    const std::int64_t pages = number_in(list, g);
    if (pages < 0)
      return refuse(failure, form.name, ": entry ", g, " is ", pages, ", must be at least 0");
    const std::int64_t first = number_in(groups, g);
    const std::int64_t end = std::min<std::int64_t>(number_in(groups, g + 1), used.sequences);
    for (std::int64_t n = first; n < end; ++n) {
      const std::int64_t before = used.length(n) - rows_of(n);
      const std::int64_t most = before > 0 ? before / used.page : 0;
      if (pages > most) {
        return refuse(failure, form.name, ": entry ", g, " is ", pages, ", sequence ", n, " has ",
                      most, " whole page", most == 1 ? "" : "s", " before its rows");
      }
      for (std::int64_t m = 0; m < pages; ++m) {
        if (used.number(n, m) == used.number(first, m)) continue;
        return refuse(failure, used.name, ": entry ", n, ",", m, " is ", used.number(n, m),
                      ", entry ", first, ",", m, " is ", used.number(first, m), "; ", form.name,
                      " says that they are the same");
      }
    }
  }
  return true;
}

[[gnu::noinline]] inline bool holds_what_it_says(bound_call& call, std::size_t tensor,
                                                 status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& view = call.tensors[tensor];
  if (form.holds == tensor_contents::positive) return are_positive(form.name, view, failure);
  const auto counted = static_cast<std::size_t>(form.counts);
  const std::string_view owner =
      call.form().tensors[static_cast<std::size_t>(call.owners[counted])].name;
  const std::int64_t rows = call.dims[counted];
  switch (form.holds) {
    case tensor_contents::values:
    case tensor_contents::positive:
      return true;
    case tensor_contents::groups: {
      std::int64_t longest = 0;
      return are_offsets(form.name, view, view.extent[0] - 1, owner, rows, longest, failure);
    }
    case tensor_contents::shared_pages:
      return are_shared_pages(call, tensor, failure);
    case tensor_contents::offsets: {
      std::int64_t longest = 0;
      const std::int64_t sequences = entries_in_use(call, tensor) - 1;
      if (!are_offsets(form.name, view, sequences, owner, rows, longest, failure)) return false;
      if (form.longest >= 0) {
        call.dims[static_cast<std::size_t>(form.longest)] = longest;
        call.owners[static_cast<std::size_t>(form.longest)] = static_cast<std::int8_t>(tensor);
      }
      return true;
    }
    case tensor_contents::lengths:
      return are_lengths(form.name, view, entries_in_use(call, tensor), owner, rows, failure);
    case tensor_contents::page_numbers:
      return is_table(call, tensor, failure);
    case tensor_contents::group_sizes:
      return are_group_sizes(form.name, view, owner, rows, failure);
    case tensor_contents::indices:
      return are_indices(call, tensor, failure);
    case tensor_contents::indices_or_none:
      return are_indices_or_none(form.name, view, owner, rows, failure);
    case tensor_contents::slots:
      return are_slots(call, tensor, failure);
    case tensor_contents::count:
      return is_count(call, tensor, owner, failure);
  }
  return false;
}

/// The numbers stored in tensors of host memory, which decide what memory a kernel touches, and the
/// axes that depend on them.
inline bool are_contents(bound_call& call, status& failure) {
  bool late = false;
  const unsigned layout = 1u << call.layout;
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    const tensor_form& form = call.form().tensors[tensor];
    late |= (form.late_layouts & layout) != 0;
    if (!call.has(tensor)) continue;
    if (form.holds != tensor_contents::values && !holds_what_it_says(call, tensor, failure)) {
      return false;
    }
  }
  if (!late) return true;
  const auto dims = call.form().dims;
  for (std::size_t index = 0; index < dims.size(); ++index) {
    if (dims[index].source != dim_source::contents || dims[index].value == nullptr) continue;
    call.dims[index] = dims[index].value(call);
    call.owners[index] = 0;
  }
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (!call.has(tensor) || (call.form().tensors[tensor].late_layouts & layout) == 0) continue;
    if (!has_axes(call, tensor, true, failure)) return false;
  }
  return true;
}

}  // namespace tessera::checks
