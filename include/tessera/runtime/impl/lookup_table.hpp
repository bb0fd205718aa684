// The table in memory: records sorted into groups, an index of keys, and per group the sizes as
// sorted points on logarithmic axes.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/runtime/impl/lookup_index.hpp>
#include <tessera/runtime/impl/lookup_nearest.hpp>
#include <tessera/runtime/lookup/table.hpp>

namespace tessera {

namespace lookup_form {

inline std::uint64_t hash_key(const lookup_record& record) noexcept {
  return hash_texts({record.family, record.device_class, record.identity, record.size});
}

inline bool same_key(const lookup_record& a, const lookup_record& b) noexcept {
  return a.size == b.size && a.identity == b.identity && a.device_class == b.device_class &&
         a.family == b.family;
}

inline bool same_version(const lookup_record& a, const lookup_record& b) noexcept {
  return a.code_version == b.code_version && a.semantic_version == b.semantic_version;
}

/// Positions of the records that hold: without a fault, and the last of their key and version.
[[gnu::cold]] inline std::vector<std::uint32_t> records_that_hold(
    const std::vector<lookup_record>& records) {
  hash_index seen;
  seen.reset(records.size());
  std::vector<std::uint32_t> holding;
  for (std::size_t back = records.size(); back > 0; --back) {
    const auto position = static_cast<std::uint32_t>(back - 1);
    const lookup_record& one = records[position];
    if (!fault_of(one).empty()) continue;
    const std::uint64_t hash = hash_key(one);
    const std::uint32_t later = seen.find(hash, [&](std::uint32_t other) {
      return same_version(records[other], one) && same_key(records[other], one);
    });
    if (later != hash_index::none) continue;
    seen.insert(hash, position);
    holding.push_back(position);
  }
  std::reverse(holding.begin(), holding.end());
  return holding;
}

/// Counts the records of each file that do not hold. The records of the files lie one file after
/// the other.
[[gnu::cold]] inline void count_superseded(const std::vector<std::uint32_t>& holding,
                                           std::vector<lookup_file_state>& files) {
  std::size_t at = 0;
  std::int64_t end = 0;
  for (lookup_file_state& file : files) {
    end += file.rows;
    file.superseded = file.rows;
    for (; at < holding.size() && holding[at] < end; ++at) --file.superseded;
  }
}

/// Records that are sorted together: same family, device class and identity. Those with sizes that
/// can be read, and the same names of them, are what `nearest` may compare.
struct group {
  std::uint32_t begin = 0;  ///< of the sorted records; before sorting, any record of the group
  std::uint32_t end = 0;
  std::uint32_t axes = 0;       ///< 0: sizes cannot be read
  std::size_t first_point = 0;  ///< where their points begin
};

inline std::uint64_t hash_group(std::string_view family, std::string_view device_class,
                                std::string_view identity, std::string_view size) noexcept {
  return hash_texts({family, device_class, identity}) ^ hash_names(size);
}

/// True if a record belongs to the group of these texts; `size` is empty for the group whose sizes
/// cannot be read.
inline bool is_of_group(const lookup_record& one, std::string_view family,
                        std::string_view device_class, std::string_view identity,
                        std::string_view size) noexcept {
  return one.identity == identity && one.device_class == device_class && one.family == family &&
         compare_names(one.size, size) == 0;
}

/// What a record is sorted by: its group, then its sizes.
struct place {
  std::uint32_t group = 0;
  size_values sizes{};  ///< none where they cannot be read
};

/// Finds the groups of the records that hold.
class grouping {
 public:
  [[gnu::cold]] grouping(const std::vector<lookup_record>& records,
                         std::vector<std::uint32_t> holding)
      : records_(records), holding_(std::move(holding)), places_(records.size()) {
    index_.reset(holding_.size());
    for (const std::uint32_t at : holding_) add(at);
    sort_groups();
  }

  /// Their positions in order: by the texts of their groups, then sizes as numbers, then as they
  /// came.
  [[gnu::cold]] const std::vector<std::uint32_t>& sorted() {
    sort(holding_, &grouping::is_before);
    return holding_;
  }
  const place& of(std::uint32_t record) const { return places_[record]; }

 private:
  /// Once for both orders: sorting is a lot of code.
  [[gnu::cold, gnu::noinline]] void sort(std::vector<std::uint32_t>& numbers,
                                         bool (grouping::*before)(std::uint32_t, std::uint32_t)
                                             const noexcept) const {
    std::sort(numbers.begin(), numbers.end(),
              [&](std::uint32_t a, std::uint32_t b) { return (this->*before)(a, b); });
  }

  [[gnu::cold]] bool is_before(std::uint32_t a, std::uint32_t b) const noexcept {
    const place& first = places_[a];
    const place& second = places_[b];
    if (first.group != second.group) return first.group < second.group;
    if (first.sizes.value != second.sizes.value) return first.sizes.value < second.sizes.value;
    const int by_text = records_[a].size.compare(records_[b].size);
    return by_text != 0 ? by_text < 0 : a < b;
  }

  [[gnu::cold]] bool is_group_before(std::uint32_t a, std::uint32_t b) const noexcept {
    const lookup_record& first = records_[groups_[a].begin];
    const lookup_record& second = records_[groups_[b].begin];
    const auto texts = [](const lookup_record& one) {
      return std::tie(one.family, one.device_class, one.identity);
    };
    if (texts(first) != texts(second)) return texts(first) < texts(second);
    const bool a_readable = groups_[a].axes > 0;
    if (a_readable != (groups_[b].axes > 0)) return a_readable;
    return a_readable && compare_names(first.size, second.size) < 0;
  }

  [[gnu::cold]] void add(std::uint32_t at) {
    const lookup_record& one = records_[at];
    place& mine = places_[at];
    const bool readable = read_sizes(one.size, mine.sizes);
    if (!readable) mine.sizes = {};
    const std::string_view size = readable ? std::string_view(one.size) : std::string_view();
    const std::uint64_t hash = hash_group(one.family, one.device_class, one.identity, size);
    mine.group = index_.find(hash, [&](std::uint32_t number) {
      const group& other = groups_[number];
      const lookup_record& first = records_[other.begin];
      return (other.axes > 0) == readable &&
             (readable ? is_of_group(first, one.family, one.device_class, one.identity, size)
                       : same_texts(first, one));
    });
    if (mine.group != hash_index::none) return;
    mine.group = static_cast<std::uint32_t>(groups_.size());
    index_.insert(hash, mine.group);
    groups_.push_back({at, at, static_cast<std::uint32_t>(mine.sizes.count), 0});
  }

  static bool same_texts(const lookup_record& a, const lookup_record& b) noexcept {
    return a.identity == b.identity && a.device_class == b.device_class && a.family == b.family;
  }

  /// Numbers the groups anew in the order of their texts.
  [[gnu::cold]] void sort_groups() {
    std::vector<std::uint32_t> order(groups_.size());
    std::iota(order.begin(), order.end(), 0u);
    sort(order, &grouping::is_group_before);
    std::vector<std::uint32_t> rank(groups_.size());
    for (std::uint32_t at = 0; at < order.size(); ++at) rank[order[at]] = at;
    for (const std::uint32_t at : holding_) places_[at].group = rank[places_[at].group];
  }

  const std::vector<lookup_record>& records_;
  std::vector<std::uint32_t> holding_;
  std::vector<place> places_;  ///< of `records_`
  std::vector<group> groups_;
  hash_index index_;
};

/// The texts that questions are compared with, one after the other: a question touches these few
/// neighbouring lines of memory, not the strings of a record.
class key_texts {
 public:
  [[gnu::cold]] void add(const lookup_record& one) {
    for (const std::string* text :
         {&one.family, &one.device_class, &one.identity, &one.size, &one.code_version}) {
      text_ += *text;
      ends_.push_back(text_.size());
    }
  }
  bool is_key(std::uint32_t position, std::string_view family, std::string_view device_class,
              std::string_view identity, std::string_view size) const noexcept {
    return text(position, 3) == size && text(position, 2) == identity &&
           text(position, 1) == device_class && text(position, 0) == family;
  }
  std::string_view code_version(std::uint32_t position) const noexcept { return text(position, 4); }

 private:
  std::string_view text(std::uint32_t position, std::uint32_t part) const noexcept {
    const std::size_t at = std::size_t{position} * 5 + part;
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return {text_.data() + begin, ends_[at] - begin};
  }

  std::string text_;
  std::vector<std::size_t> ends_;
};

}  // namespace lookup_form

struct lookup_table::contents {
  std::vector<lookup_record> records;
  std::vector<lookup_file_state> files;
  std::vector<lookup_form::group> groups;  ///< those with axes
  std::vector<float> points;
  lookup_form::key_texts key_texts;      ///< of `records`
  lookup_form::hash_index keys;          ///< to the last record of each key
  lookup_form::hash_index groups_index;  ///< to `groups`

  [[gnu::cold]] explicit contents(std::vector<lookup_record> unsorted,
                                  std::vector<lookup_file_state> from)
      : files(std::move(from)) {
    std::vector<std::uint32_t> holding = lookup_form::records_that_hold(unsorted);
    lookup_form::count_superseded(holding, files);
    records.reserve(holding.size());
    lookup_form::grouping grouped(unsorted, std::move(holding));
    std::uint32_t before = lookup_form::hash_index::none;
    for (const std::uint32_t number : grouped.sorted()) {
      const lookup_form::place& one = grouped.of(number);
      records.push_back(std::move(unsorted[number]));
      key_texts.add(records.back());
      if (one.sizes.count > 0) add_point(one.sizes, one.group != before);
      before = one.group;
    }
    index();
  }

 private:
  [[gnu::cold]] void add_point(const lookup_form::size_values& sizes, bool is_first_of_group) {
    const auto end = static_cast<std::uint32_t>(records.size());
    if (is_first_of_group) {
      groups.push_back({end - 1, end, static_cast<std::uint32_t>(sizes.count), points.size()});
    }
    groups.back().end = end;
    for (std::size_t axis = 0; axis < sizes.count; ++axis) {
      points.push_back(lookup_form::log2_of(sizes.value[axis]));
    }
  }

  [[gnu::cold]] void index() {
    keys.reset(records.size());
    for (std::uint32_t position = 0; position < records.size(); ++position) {
      const lookup_record& one = records[position];
      const bool last =
          position + 1 == records.size() || !lookup_form::same_key(one, records[position + 1]);
      if (last) keys.insert(lookup_form::hash_key(one), position);
    }
    groups_index.reset(groups.size());
    for (std::uint32_t number = 0; number < groups.size(); ++number) {
      const lookup_record& one = records[groups[number].begin];
      groups_index.insert(
          lookup_form::hash_group(one.family, one.device_class, one.identity, one.size), number);
    }
  }
};

lookup_table::lookup_table() = default;
[[gnu::cold]] lookup_table::lookup_table(std::vector<lookup_record> records,
                                         std::vector<lookup_file_state> files)
    : contents_(std::make_unique<const contents>(std::move(records), std::move(files))) {}
lookup_table::lookup_table(lookup_table&&) noexcept = default;
lookup_table& lookup_table::operator=(lookup_table&&) noexcept = default;
[[gnu::cold]] lookup_table::~lookup_table() = default;

std::span<const lookup_record> lookup_table::records() const noexcept {
  return contents_ ? std::span<const lookup_record>(contents_->records)
                   : std::span<const lookup_record>();
}

std::span<const lookup_file_state> lookup_table::files() const noexcept {
  return contents_ ? std::span<const lookup_file_state>(contents_->files)
                   : std::span<const lookup_file_state>();
}

const lookup_record* lookup_table::exact(std::string_view family, std::string_view device_class,
                                         std::string_view identity, std::string_view size,
                                         std::string_view code_version) const noexcept {
  if (!contents_) return nullptr;
  const contents& all = *contents_;
  const auto matches = [&](std::uint32_t position) {
    return all.key_texts.is_key(position, family, device_class, identity, size);
  };
  const std::uint64_t hash = lookup_form::hash_texts({family, device_class, identity, size});
  const std::uint32_t last = all.keys.find(hash, matches);
  if (last == lookup_form::hash_index::none) return nullptr;
  if (!code_version.empty()) {
    for (std::uint32_t at = last;; --at) {
      if (all.key_texts.code_version(at) == code_version) return &all.records[at];
      if (at == 0 || !matches(at - 1)) break;
    }
  }
  return &all.records[last];
}

nearest_record lookup_table::nearest(std::string_view family, std::string_view device_class,
                                     std::string_view identity, std::string_view size,
                                     double max_log2_distance,
                                     std::string_view code_version) const noexcept {
  using namespace lookup_form;
  size_values sizes;
  if (!contents_ || !(max_log2_distance >= 0) || !read_sizes(size, sizes)) return {};
  const std::uint32_t number =
      contents_->groups_index.find(hash_group(family, device_class, identity, size), [&](auto at) {
        return is_of_group(contents_->records[contents_->groups[at].begin], family, device_class,
                           identity, size);
      });
  if (number == hash_index::none) return {};
  const group& among = contents_->groups[number];
  std::array<float, most_sizes> asked{};
  for (std::size_t axis = 0; axis < sizes.count; ++axis) asked[axis] = log2_of(sizes.value[axis]);
  // Logarithms are rounded: what is as far as allowed must not fall out by a digit. Nothing that
  // differs from 0 is within the largest reach of it.
  constexpr double rounding = 1e-5;
  constexpr double farthest = 1e6;
  closest_point search{.records = contents_->records.data() + among.begin,
                       .points = contents_->points.data() + among.first_point,
                       .axes = among.axes,
                       .asked = asked.data(),
                       .code_version = code_version,
                       .reach = std::min(max_log2_distance, farthest) + rounding};
  search.search(0, among.end - among.begin, 0, 0);
  if (search.found == hash_index::none) return {};
  return {search.records + search.found, search.reach};
}

}  // namespace tessera
