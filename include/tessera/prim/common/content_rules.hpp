// The rules of numbers that decide what memory a kernel touches, one entry at a time: what counts
// faults of tensors in a GPU's memory, where nobody refuses them. A tensor has a fault exactly
// where the check of host memory refuses it (spec/check_contents.hpp). Host and device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::prim {

/// Numbers of a tensor as they lie; absent without data.
struct number_list {
  const void* data = nullptr;
  int rank = 0;
  std::int64_t extent[max_rank]{};
  std::int64_t stride[max_rank]{};

  TESSERA_HD bool present() const noexcept { return data != nullptr; }
  TESSERA_HD std::int64_t entries() const noexcept {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= extent[axis];
    return count;
  }
  TESSERA_HD std::int64_t at(std::int64_t n, std::int64_t m = 0) const noexcept {
    return static_cast<const std::int32_t*>(data)[n * stride[0] + m * stride[1]];
  }
  /// The entry's element in row-major order.
  template <class Element>
  TESSERA_HD Element element(std::int64_t entry) const noexcept {
    std::int64_t offset = 0;
    for (int axis = rank; axis-- > 0; entry /= extent[axis]) {
      offset += entry % extent[axis] * stride[axis];
    }
    return static_cast<const Element*>(data)[offset];
  }
};

/// What entries of a tensor have to be, with the tensors that its declaration names for that.
struct content_rule {
  tensor_contents holds = tensor_contents::values;
  bool of_lengths = false;  ///< the lengths that say how much of `numbers`, a table, is used
  bool written = false;     ///< of a table: pages of the last tokens are written
  number_list numbers{};
  number_list used_by{}, covers{}, apart{};
  number_list table{};      ///< shared pages: the table and the lengths that say what is used of it
  number_list lengths{};    ///< shared pages
  number_list sequences{};  ///< says how many entries are looked at, where present
  std::int64_t beyond = 0;  ///< entries that are looked at besides
  std::int64_t limit = 0;   ///< the dim that numbers lie in
  std::int64_t page = 1;    ///< tokens of a page
  /// Of each page of a written pool, the entries in use that hold it; null: entries are compared.
  const std::uint32_t* uses = nullptr;
  /// Of each number of a list whose numbers are there once, the first entry in use that holds it;
  /// -1: the list `apart` does. Null: entries are compared.
  const std::int32_t* first_uses = nullptr;
};

namespace content_rules {

TESSERA_HD constexpr std::int64_t clamped(std::int64_t value, std::int64_t most) noexcept {
  return value < 0 ? 0 : value < most ? value : most;
}

/// Entries, of so many, that are looked at.
TESSERA_HD inline std::int64_t entries_in_use(const content_rule& rule, std::int64_t entries,
                                              std::int64_t beyond) noexcept {
  if (!rule.sequences.present()) return entries;
  const std::int64_t last = rule.sequences.extent[0] - 1;
  const std::int64_t used = rule.sequences.at(last);
  return clamped((used < 0 ? 0 : used) + beyond, entries);
}

/// Rows of a sequence: without offsets one.
TESSERA_HD inline std::int64_t rows_of(const number_list& offsets, std::int64_t n) noexcept {
  return offsets.present() ? offsets.at(n + 1) - offsets.at(n) : 1;
}

TESSERA_HD inline bool is_wrong_offset(const content_rule& rule, std::int64_t n) noexcept {
  const std::int64_t value = rule.numbers.at(n);
  return (n == 0 ? value != 0 : value < rule.numbers.at(n - 1)) || value > rule.limit;
}

/// Sizes up to this one are more than there are rows, or it is negative.
TESSERA_HD inline bool is_wrong_size(const content_rule& rule, std::int64_t g) noexcept {
  if (rule.numbers.at(g) < 0) return true;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i <= g; ++i) sum += rule.numbers.at(i) < 0 ? 0 : rule.numbers.at(i);
  return sum > rule.limit;
}

TESSERA_HD inline bool is_wrong_index(const content_rule& rule, std::int64_t n) noexcept {
  const std::int64_t number = rule.numbers.at(n);
  if (number < 0 || number >= rule.limit) return true;
  if (!rule.apart.present()) return false;
  if (rule.first_uses != nullptr) return rule.first_uses[number] < n;
  for (std::int64_t i = 0; i < rule.apart.extent[0]; ++i) {
    if (rule.apart.at(i) == number) return true;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (rule.numbers.at(i) == number) return true;
  }
  return false;
}

TESSERA_HD inline bool is_wrong_slot(const content_rule& rule, std::int64_t n) noexcept {
  if (rows_of(rule.used_by, n) <= 0) return false;
  const std::int64_t slot = rule.numbers.at(n);
  if (slot < 0 || slot >= rule.limit) return true;
  if (rule.first_uses != nullptr) return rule.first_uses[slot] < n;
  for (std::int64_t i = 0; i < n; ++i) {
    if (rows_of(rule.used_by, i) > 0 && rule.numbers.at(i) == slot) return true;
  }
  return false;
}

/// Tokens of a sequence, at most those that its line of the table has pages for.
TESSERA_HD inline std::int64_t tokens_of(const number_list& table, const number_list& lengths,
                                         std::int64_t page, std::int64_t n) noexcept {
  return clamped(lengths.at(n), table.extent[1] * page);
}

TESSERA_HD inline bool is_wrong_length(const content_rule& rule, std::int64_t n) noexcept {
  const std::int64_t length = rule.used_by.at(n);
  return length < 0 || length > rule.numbers.extent[1] * rule.page ||
         (rule.written && rows_of(rule.covers, n) > length);
}

/// Another entry in use has the number of this one, which is a page of the pool.
TESSERA_HD inline bool is_shared(const content_rule& rule, std::int64_t sequences, std::int64_t n,
                                 std::int64_t m) noexcept {
  if (rule.uses != nullptr) return rule.uses[rule.numbers.at(n, m)] > 1;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const std::int64_t length = tokens_of(rule.numbers, rule.used_by, rule.page, i);
    for (std::int64_t j = 0; j * rule.page < length; ++j) {
      if ((i != n || j != m) && rule.numbers.at(i, j) == rule.numbers.at(n, m)) return true;
    }
  }
  return false;
}

/// The page that entry m of a sequence holds; -1 where it is not in use or holds none.
TESSERA_HD inline std::int64_t page_in_use(const content_rule& rule, std::int64_t n,
                                           std::int64_t m) noexcept {
  if (m * rule.page >= tokens_of(rule.numbers, rule.used_by, rule.page, n)) return -1;
  const std::int64_t number = rule.numbers.at(n, m);
  return number < rule.limit ? number : -1;
}

TESSERA_HD inline bool is_wrong_page(const content_rule& rule, std::int64_t sequences,
                                     std::int64_t n, std::int64_t m) noexcept {
  const std::int64_t length = tokens_of(rule.numbers, rule.used_by, rule.page, n);
  if (m * rule.page >= length) return false;
  const std::int64_t number = rule.numbers.at(n, m);
  if (number < 0 || number >= rule.limit) return true;
  const std::int64_t rows = rule.written ? clamped(rows_of(rule.covers, n), length) : 0;
  const bool is_written = rows > 0 && m >= (length - rows) / rule.page;
  return is_written && is_shared(rule, sequences, n, m);
}

/// The sequences of group g do not have that many pages in common before their rows.
TESSERA_HD inline bool is_wrong_prefix(const content_rule& rule, std::int64_t g) noexcept {
  const std::int64_t pages = rule.numbers.at(g);
  if (pages < 0) return true;
  const std::int64_t used = entries_in_use(rule, rule.table.extent[0], 0);
  const std::int64_t first = rule.used_by.at(g);
  if (first < 0) return false;  // a fault of the groups
  for (std::int64_t n = first; n < clamped(rule.used_by.at(g + 1), used); ++n) {
    const std::int64_t rows = rows_of(rule.covers, n);
    const std::int64_t length = tokens_of(rule.table, rule.lengths, rule.page, n);
    if (pages > (rows < length ? (length - (rows < 0 ? 0 : rows)) / rule.page : 0)) return true;
    for (std::int64_t m = 0; m < pages; ++m) {
      if (rule.table.at(n, m) != rule.table.at(first, m)) return true;
    }
  }
  return false;
}

TESSERA_HD inline bool is_wrong_number(const content_rule& rule, std::int64_t entry) noexcept {
  const auto number = rule.numbers.element<std::int32_t>(entry);
  if (rule.holds == tensor_contents::indices_or_none) return number < -1 || number >= rule.limit;
  return number < 0 || number > rule.limit;
}

TESSERA_HD inline bool is_not_positive(const content_rule& rule, std::int64_t entry) noexcept {
  const auto number = rule.numbers.element<float>(entry);
  return !(number > 0 && number <= 0x1.fffffep+127f);
}

}  // namespace content_rules

/// Entries that `is_fault` can be asked of.
TESSERA_HD inline std::int64_t entries_of(const content_rule& rule) noexcept {
  return rule.of_lengths ? rule.numbers.extent[0] : rule.numbers.entries();
}

/// Whether an entry breaks its rule. Reads nothing outside the tensors, whatever they hold.
TESSERA_HD inline bool is_fault(const content_rule& rule, std::int64_t entry) noexcept {
  using namespace content_rules;  // NOLINT: a rule each
  const std::int64_t used = entries_in_use(rule, rule.numbers.extent[0], rule.beyond);
  switch (rule.holds) {
    case tensor_contents::values:
      return false;
    case tensor_contents::positive:
      return is_not_positive(rule, entry);
    case tensor_contents::offsets:
    case tensor_contents::groups:
      return entry < used && is_wrong_offset(rule, entry);
    case tensor_contents::lengths:
      return entry < used && is_wrong_number(rule, entry);
    case tensor_contents::page_numbers: {
      const std::int64_t slots = rule.numbers.extent[1];
      if (rule.of_lengths) return entry < used && is_wrong_length(rule, entry);
      return entry / slots < used && is_wrong_page(rule, used, entry / slots, entry % slots);
    }
    case tensor_contents::shared_pages:
      return is_wrong_prefix(rule, entry);
    case tensor_contents::group_sizes:
      return is_wrong_size(rule, entry);
    case tensor_contents::indices:
      return is_wrong_index(rule, entry);
    case tensor_contents::slots:
      return is_wrong_slot(rule, entry);
    case tensor_contents::count:
      return entry + 1 == rule.numbers.entries() && is_wrong_number(rule, entry);
    case tensor_contents::indices_or_none:
      return is_wrong_number(rule, entry);
  }
  return false;
}

/// The numbers of a tensor of a call; none where it is absent or named by nobody.
inline number_list numbers_in(const bound_call& call, int tensor) noexcept {
  number_list list;
  if (tensor < 0 || !call.has(static_cast<std::size_t>(tensor))) return list;
  const tensor_view& view = call.tensors[tensor];
  list.data = view.data;
  list.rank = view.rank;
  for (int axis = 0; axis < view.rank; ++axis) {
    list.extent[axis] = view.extent[static_cast<std::size_t>(axis)];
    list.stride[axis] = view.stride[static_cast<std::size_t>(axis)];
  }
  return list;
}

/// The rule of a present tensor whose numbers are looked at.
inline content_rule rule_of(const bound_call& call, std::size_t tensor) noexcept {
  const tensor_form& form = call.form().tensors[tensor];
  content_rule rule{.holds = form.holds, .numbers = numbers_in(call, static_cast<int>(tensor))};
  rule.used_by = numbers_in(call, form.used_by);
  rule.covers = numbers_in(call, form.covers);
  rule.apart = numbers_in(call, form.apart);
  if (form.counts >= 0) rule.limit = call.dims[static_cast<std::size_t>(form.counts)];
  std::size_t listed = tensor, table = tensor;
  if (form.holds == tensor_contents::shared_pages) {
    table = static_cast<std::size_t>(form.apart);
    rule.table = rule.apart;
    rule.lengths = numbers_in(call, call.form().tensors[table].used_by);
    listed = table;
  } else if (form.holds == tensor_contents::page_numbers) {
    const std::int8_t covers = call.form().tensors[static_cast<std::size_t>(form.used_by)].covers;
    rule.written = covers >= 0;
    rule.covers = numbers_in(call, covers);
  }
  const std::int8_t page = call.form().tensors[table].page;
  if (page >= 0) rule.page = call.dims[static_cast<std::size_t>(page)];
  const bool counted =
      form.holds == tensor_contents::offsets || form.holds == tensor_contents::lengths ||
      form.holds == tensor_contents::page_numbers || form.holds == tensor_contents::shared_pages;
  if (!counted) return rule;
  const axis_form& axis = call.form().shape(listed, call.layout).axes[0];
  rule.beyond = axis.plus;
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
    const tensor_form& other = call.form().tensors[i];
    if (other.holds != tensor_contents::count || other.counts != axis.dim || !call.has(i)) continue;
    rule.sequences = numbers_in(call, static_cast<int>(i));
    break;
  }
  return rule;
}

/// `visit(tensor, rule)`: every rule of a call, with the tensor whose entries it is about.
template <class Visit>
void for_each_content_rule(const bound_call& call, const Visit& visit) {
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    const tensor_form& form = call.form().tensors[tensor];
    if (!call.has(tensor) || form.holds == tensor_contents::values) continue;
    const bool table = form.holds == tensor_contents::page_numbers;
    if (table && !call.has(static_cast<std::size_t>(form.used_by))) continue;
    content_rule rule = rule_of(call, tensor);
    if (entries_of(rule) > 0) visit(tensor, rule);
    rule.of_lengths = true;
    if (table && entries_of(rule) > 0) visit(static_cast<std::size_t>(form.used_by), rule);
  }
}

}  // namespace tessera::prim
