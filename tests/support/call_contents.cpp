#include "call_contents.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/spec/check_contents.hpp>

#include "../reference/operations.hpp"
#include "../reference/store.hpp"
#include "call_numbers.hpp"
#include "call_pages.hpp"

namespace tessera::support {

namespace {

using reference::for_each_element;
using reference::store;

/// `parts` sizes that are together at most `total`, some of them 0; without `random` equal ones.
std::vector<std::int64_t> cut(std::int64_t total, std::int64_t parts, random_source* random) {
  std::vector<double> ends{0.0};
  double used = static_cast<double>(total);
  if (random != nullptr && random->chance(0.4)) used -= used / 2 * random->uniform();
  for (std::int64_t n = 0; n < parts; ++n) {
    const double share = random == nullptr     ? 1.0
                         : random->chance(0.2) ? 0.0
                                               : 0.2 + random->uniform();
    ends.push_back(ends.back() + share);
  }
  std::vector<std::int64_t> sizes;
  const auto place = [&](double end) {
    return ends.back() > 0 ? static_cast<std::int64_t>(used * end / ends.back()) : 0;
  };
  for (std::size_t n = 1; n < ends.size(); ++n)
    sizes.push_back(place(ends[n]) - place(ends[n - 1]));
  return sizes;
}

/// Tokens that the pages of a sequence have room for, of offsets whose rows are written there.
std::int64_t room_for_rows(const bound_call& call, std::size_t offsets) {
  std::int64_t room = std::numeric_limits<std::int64_t>::max();
  for (std::size_t list = 0; list < call.form().tensors.size(); ++list) {
    const tensor_form& form = call.form().tensors[list];
    if (form.holds != tensor_contents::page_numbers || !call.has(list)) continue;
    const tensor_form& lengths = call.form().tensors[static_cast<std::size_t>(form.used_by)];
    if (lengths.covers != static_cast<int>(offsets)) continue;
    const tensor_view& table = call.tensors[list];
    const bool for_all = dim_of(call, form.counts) >= table.elements();
    room = std::min(room, for_all ? table.extent[1] * dim_of(call, form.page) : 0);
  }
  return room;
}

/// Sequences that have a row each, which no offsets say, and no page for it.
bool lacks_room(const bound_call& call) {
  return std::ranges::any_of(call.form().tensors, [&](const tensor_form& lengths) {
    const auto covered = static_cast<std::size_t>(std::max<int>(lengths.covers, 0));
    return lengths.covers >= 0 && !call.has(covered) && room_for_rows(call, covered) == 0;
  });
}

/// Behind the entries that are looked at: anything at all.
void scramble_unused(const bound_call& call, std::size_t tensor, random_source& random) {
  const tensor_view& view = call.tensors[tensor];
  const std::int64_t used = checks::entries_in_use(call, tensor);
  for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
    const std::int64_t entry = n / (view.elements() / view.extent[0]);
    if (entry < used) return;
    store(view, offset, static_cast<double>(random.pick({-1, 0, 5, INT32_MAX, INT32_MIN})));
  });
}

/// Whether the sequence of a slot has tokens.
bool has_tokens(const bound_call& call, std::size_t slots, std::int64_t n) {
  const std::int8_t used_by = call.form().tensors[slots].used_by;
  if (used_by < 0 || !call.has(static_cast<std::size_t>(used_by))) return true;
  const tensor_view& offsets = call.tensors[used_by];
  return reference::at(offsets, n + 1) > reference::at(offsets, n);
}

/// Slots of their own in any order for the sequences that have tokens, anything for the others.
void fill_slots(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& view = call.tensors[tensor];
  std::vector<std::int64_t> slots(static_cast<std::size_t>(dim_of(call, form.counts)));
  std::iota(slots.begin(), slots.end(), 0);
  if (random != nullptr) shuffle(slots, *random);
  std::size_t taken = 0;
  for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
    std::int64_t slot = -1;
    if (has_tokens(call, tensor, n)) {
      if (taken < slots.size()) slot = slots[taken++];
    } else if (random != nullptr) {
      slot = random->pick<std::int64_t>({-1, 0, 3, INT32_MAX, INT32_MIN});
    }
    store(view, offset, static_cast<double>(slot));
  });
}

/// How many sequences of these offsets may have tokens: as many as there are slots for them.
std::int64_t room_for_sequences(const bound_call& call, std::size_t offsets) {
  std::int64_t room = std::numeric_limits<std::int64_t>::max();
  for (std::size_t list = 0; list < call.form().tensors.size(); ++list) {
    const tensor_form& form = call.form().tensors[list];
    if (form.holds != tensor_contents::slots || !call.has(list)) continue;
    if (form.used_by == static_cast<int>(offsets)) room = dim_of(call, form.counts);
  }
  return room;
}

/// Numbers of what there is; those that lie apart from others are the last of a shuffled list.
void fill_indices(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& view = call.tensors[tensor];
  const std::int64_t counted = dim_of(call, form.counts);
  if (form.apart < 0) {
    for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
      const std::int64_t last = std::max<std::int64_t>(counted - 1, 0);
      store(view, offset,
            static_cast<double>(random != nullptr ? random->below(last + 1) : std::min(n, last)));
    });
    return;
  }
  std::vector<bool> is_taken(static_cast<std::size_t>(std::max<std::int64_t>(counted, 1)));
  for (const std::int64_t other : numbers_in(call.tensors[static_cast<std::size_t>(form.apart)])) {
    is_taken[static_cast<std::size_t>(other)] = true;
  }
  std::vector<std::int64_t> left;
  for (std::int64_t n = 0; n < counted; ++n) {
    if (!is_taken[static_cast<std::size_t>(n)]) left.push_back(n);
  }
  if (random != nullptr) shuffle(left, *random);
  for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
    const auto at = static_cast<std::size_t>(n);
    store(view, offset, static_cast<double>(at < left.size() ? left[at] : -1));
  });
}

/// Numbers of what there is, and none; of many slots most have none, or each token would look at
/// all others again and again.
void fill_indices_or_none(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_view& view = call.tensors[tensor];
  const std::int64_t counted = dim_of(call, call.form().tensors[tensor].counts);
  const std::int64_t slots = view.extent[static_cast<std::size_t>(view.rank - 1)];
  const double missing = std::max(0.2, 1.0 - 24.0 / static_cast<double>(slots));
  for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
    std::int64_t number = n % slots < counted ? n % slots : -1;
    if (random != nullptr) number = random->chance(missing) ? -1 : random->below(counted);
    store(view, offset, static_cast<double>(number));
  });
}

void fill_list(const bound_call& call, std::size_t tensor, random_source* random) {
  const tensor_form& form = call.form().tensors[tensor];
  using contents = tensor_contents;
  if (form.holds == contents::indices) return fill_indices(call, tensor, random);
  if (form.holds == contents::indices_or_none) return fill_indices_or_none(call, tensor, random);
  if (form.holds == contents::slots) return fill_slots(call, tensor, random);
  const tensor_view& view = call.tensors[tensor];
  const std::int64_t counted = dim_of(call, form.counts), entries = view.extent[0];
  const bool offsets =
      form.holds == tensor_contents::offsets || form.holds == tensor_contents::groups;
  std::vector<std::int64_t> sizes = cut(counted, offsets ? entries - 1 : entries, random);
  for (std::int64_t& size : sizes) size = std::min(size, room_for_rows(call, tensor));
  const std::int64_t most = room_for_sequences(call, tensor);
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    if (static_cast<std::int64_t>(n) >= most) sizes[n] = 0;
  }
  std::int64_t sum = 0;
  for_each_element(view, [&](std::int64_t n, std::int64_t offset) {
    const auto at = static_cast<std::size_t>(n);
    std::int64_t number = 0;
    const bool drawn =
        form.holds == tensor_contents::lengths || form.holds == tensor_contents::count;
    if (drawn) number = drawn_length(counted, random);
    if (form.holds == tensor_contents::count && lacks_room(call)) number = 0;
    if (form.holds == tensor_contents::group_sizes) number = sizes[at];
    if (offsets) number = n == 0 ? 0 : sum += sizes[at - 1];
    store(view, offset, static_cast<double>(number));
  });
}

using position = std::array<std::int64_t, max_rank>;
/// Whether an element may be looked at.
using condition = std::function<bool(const position&)>;

/// Where a tensor has a dim; -1: nowhere, or it broadcasts there.
int axis_of(const bound_call& call, std::size_t tensor, std::int8_t dim) {
  const shape_form& shape = call.form().shape(tensor, call.layout);
  for (int at = 0; at < shape.rank; ++at) {
    const axis_form& axis = shape.axes[static_cast<std::size_t>(at)];
    const bool whole = axis.rule == extent_rule::exact ||
                       call.tensors[tensor].extent[static_cast<std::size_t>(at)] != 1;
    if (dim >= 0 && axis.dim == dim && whole) return at;
  }
  return -1;
}

/// An index below a number of the list: that of the sequence, or the largest where the tensor has
/// no axis of sequences.
void require_below(const bound_call& call, std::size_t tensor, std::int8_t dim, std::size_t list,
                   std::vector<std::int64_t> lengths, std::vector<condition>& all) {
  const int axis = axis_of(call, tensor, dim);
  if (axis < 0) return;
  const std::int8_t sequences = call.form().shape(list, call.layout).axes[0].dim;
  const int of_sequence = axis_of(call, tensor, sequences);
  const std::int64_t most = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  all.push_back([=, lengths = std::move(lengths)](const position& at) {
    const std::int64_t index = at[static_cast<std::size_t>(axis)];
    if (of_sequence < 0) return index < most;
    const auto sequence = static_cast<std::size_t>(at[static_cast<std::size_t>(of_sequence)]);
    return sequence < lengths.size() && index < lengths[sequence];
  });
}

/// Slots of pages that some sequence uses.
void require_used_page(const bound_call& call, std::size_t tensor, std::size_t list,
                       std::vector<condition>& all) {
  const tensor_form& form = call.form().tensors[list];
  const tensor_view& lengths = call.tensors[static_cast<std::size_t>(form.used_by)];
  const int page_axis = axis_of(call, tensor, form.counts);
  const int token_axis = axis_of(call, tensor, form.page);
  if (page_axis < 0 || !lengths.present()) return;
  const std::vector<std::int64_t> numbers = numbers_in(call.tensors[list]);
  const std::vector<std::int64_t> used =
      used_numbers_in(call, static_cast<std::size_t>(form.used_by));
  const std::int64_t page = dim_of(call, form.page), slots = call.tensors[list].extent[1];
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(dim_of(call, form.counts)), 0);
  for (std::size_t entry = 0; entry < used.size() * static_cast<std::size_t>(slots); ++entry) {
    const auto at = static_cast<std::int64_t>(entry);
    const std::int64_t left = used[static_cast<std::size_t>(at / slots)] - at % slots * page;
    if (left <= 0) continue;
    std::int64_t& seen = tokens[static_cast<std::size_t>(numbers[entry])];
    seen = std::max(seen, std::min(left, page));
  }
  all.push_back([=, tokens = std::move(tokens)](const position& at) {
    const std::int64_t count =
        tokens[static_cast<std::size_t>(at[static_cast<std::size_t>(page_axis)])];
    return count > (token_axis < 0 ? 0 : at[static_cast<std::size_t>(token_axis)]);
  });
}

/// States of sequences that have tokens.
void require_taken_slot(const bound_call& call, std::size_t tensor, std::size_t list,
                        std::vector<condition>& all) {
  const int axis = axis_of(call, tensor, call.form().tensors[list].counts);
  if (axis < 0) return;
  std::vector<std::int64_t> slots;
  const std::vector<std::int64_t> numbers = numbers_in(call.tensors[list]);
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (has_tokens(call, list, static_cast<std::int64_t>(n))) slots.push_back(numbers[n]);
  }
  all.push_back([=, slots = std::move(slots)](const position& at) {
    return std::ranges::find(slots, at[static_cast<std::size_t>(axis)]) != slots.end();
  });
}

void require_what_list_says(const bound_call& call, std::size_t tensor, std::size_t list,
                            std::vector<condition>& all) {
  const tensor_form& form = call.form().tensors[list];
  const auto used_numbers = [&] { return used_numbers_in(call, list); };  // of lists alone
  const auto require_total = [&](std::int64_t total) {
    const int axis = axis_of(call, tensor, form.counts);
    if (axis < 0) return;
    all.push_back([=](const position& at) { return at[static_cast<std::size_t>(axis)] < total; });
  };
  switch (form.holds) {
    case tensor_contents::values:
    case tensor_contents::positive:
    case tensor_contents::indices:
    case tensor_contents::indices_or_none:
    case tensor_contents::count:
    case tensor_contents::groups:
    case tensor_contents::shared_pages:
      return;
    case tensor_contents::offsets: {
      std::vector<std::int64_t> numbers = used_numbers();
      require_total(numbers.back());
      for (std::size_t n = 0; n + 1 < numbers.size(); ++n) numbers[n] = numbers[n + 1] - numbers[n];
      numbers.pop_back();
      return require_below(call, tensor, form.longest, list, std::move(numbers), all);
    }
    case tensor_contents::lengths:
      return require_below(call, tensor, form.counts, list, used_numbers(), all);
    case tensor_contents::page_numbers:
      return require_used_page(call, tensor, list, all);
    case tensor_contents::slots:
      return require_taken_slot(call, tensor, list, all);
    case tensor_contents::group_sizes: {
      const std::vector<std::int64_t> numbers = used_numbers();
      return require_total(std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0}));
    }
  }
}

}  // namespace

void fill_contents(const bound_call& call, random_source* random) {
  const signature& form = call.form();
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    if (!call.has(i) || form.tensors[i].counts < 0) continue;
    const bool late = form.tensors[i].holds == tensor_contents::page_numbers ||
                      form.tensors[i].holds == tensor_contents::shared_pages;
    if (!late) fill_list(call, i, random);
  }
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const bool pages = form.tensors[i].holds == tensor_contents::page_numbers;
    if (call.has(i) && pages) fill_pages(call, i, random);
  }
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const bool shared = form.tensors[i].holds == tensor_contents::shared_pages;
    if (call.has(i) && shared) fill_shared_pages(call, i, random);
  }
  for (std::size_t i = 0; random != nullptr && i < form.tensors.size(); ++i) {
    const bool list = reference::decides_what_is_read(form, i);
    if (call.has(i) && list && form.tensors[i].holds != tensor_contents::count) {
      scramble_unused(call, i, *random);
    }
  }
}

reference::seen_elements seen_by_contents(const bound_call& call, std::size_t tensor) {
  reference::seen_elements seen(call.tensors[tensor]);
  std::vector<condition> all;
  for (std::size_t list = 0; list < call.form().tensors.size(); ++list) {
    if (call.has(list)) require_what_list_says(call, tensor, list, all);
  }
  const tensor_view& view = call.tensors[tensor];
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    position at{};
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<std::size_t>(axis);
      at[a] = flat % view.extent[a];
      flat /= view.extent[a];
    }
    if (std::ranges::all_of(all, [&](const condition& holds) { return holds(at); })) {
      seen.mark(offset);
    }
  });
  return seen;
}

}  // namespace tessera::support
