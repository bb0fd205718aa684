// The table in memory: records sorted into groups, an index of keys, and per group the sizes as
// sorted points on logarithmic axes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/lookup/impl/hash_index.hpp>
#include <tessera/lookup/record.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace lookup_form {

/// What a table is asked for, and what its records are found by.
struct lookup_key {
  std::string_view family, device_class, identity, size;
  friend bool operator==(const lookup_key&, const lookup_key&) = default;
};

inline lookup_key key_of(const lookup_record& record) noexcept {
  return {record.family, record.device_class, record.identity, record.size};
}

/// A hash with one text more; where the texts end matters.
inline std::uint64_t hash_with(std::uint64_t hash, std::string_view text) noexcept {
  hash = (hash ^ std::hash<std::string_view>{}(text)) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

/// Of all but the size.
inline std::uint64_t hash_of_group(const lookup_key& key) noexcept {
  return hash_with(hash_with(hash_with(0, key.family), key.device_class), key.identity);
}

inline std::uint64_t hash_of(const lookup_key& key) noexcept {
  return hash_with(hash_of_group(key), key.size);
}

/// Most sizes that `nearest` compares; a record with more is found exactly or not at all.
constexpr std::size_t most_sizes = 16;

/// The values of a size text in order.
struct size_values {
  std::array<std::int64_t, most_sizes> value{};
  std::size_t count = 0;
  std::uint64_t names_hash = 0;
};

/// A hash with the name of one size more, by its length and first letters.
inline std::uint64_t hash_with_name(std::uint64_t hash, std::string_view name) noexcept {
  std::uint64_t letters = name.size();
  for (const char letter : name.substr(0, 7)) {
    letters = letters << 8 | static_cast<unsigned char>(letter);
  }
  return (hash ^ letters) * 0x9e3779b97f4a7c15u;
}

/// Reads "name=4096 name=1". False if the text has another form, a negative value or too many.
inline bool read_sizes(std::string_view list, size_values& sizes) noexcept {
  sizes.count = 0;
  sizes.names_hash = 0;
  for (;;) {
    const std::size_t space = list.find(' ');
    const std::string_view pair = list.substr(0, space);
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string_view::npos || sizes.count == most_sizes) return false;
    std::int64_t& value = sizes.value[sizes.count++];
    if (!text::read_number(pair.substr(equals + 1), value) || value < 0) return false;
    sizes.names_hash = hash_with_name(sizes.names_hash, pair.substr(0, equals));
    if (space == std::string_view::npos) return true;
    list.remove_prefix(space + 1);
  }
}

/// The name of the next size of a text that can be read; `rest` loses the size.
inline std::string_view next_name(std::string_view& rest) noexcept {
  const std::string_view pair = text::split_off(rest, ' ');
  return pair.substr(0, pair.find('='));
}

/// Order of the names of two size texts that can be read: 0 if they are the same.
inline int compare_names(std::string_view a, std::string_view b) noexcept {
  while (!a.empty() && !b.empty()) {
    const std::string_view name = next_name(a);
    if (const int order = name.compare(next_name(b)); order != 0) return order;
  }
  return static_cast<int>(b.empty()) - static_cast<int>(a.empty());
}

/// Hash of the group of a key with these sizes.
inline std::uint64_t hash_of_group(const lookup_key& key, const size_values& sizes) noexcept {
  const std::uint64_t hash = hash_of_group(key) ^ sizes.names_hash;
  return hash ^ hash >> 32;
}

/// Where a size lies on the scale of powers of two, as most are; 0 lies beyond all others.
inline float log2_of(std::int64_t size) noexcept {
  const auto bits = static_cast<std::uint64_t>(size);
  if (std::has_single_bit(bits)) return static_cast<float>(std::countr_zero(bits));
  return size == 0 ? -1e9f : static_cast<float>(std::log2(static_cast<double>(size)));
}

/// Search over the sorted points of a group: axis by axis, one step per distinct value, and never
/// further away than the best so far. With sizes in powers of two and a reach of one this looks at
/// a few dozen values whatever the number of points.
struct closest_point {
  const lookup_record* records = nullptr;  ///< of the group, sorted by their points
  const float* points = nullptr;           ///< `axes` values per record
  std::uint32_t axes = 0;
  const float* asked = nullptr;   ///< a value per axis
  std::string_view code_version;  ///< empty: any
  double reach = 0;               ///< in: the most that is allowed; out: the distance of `found`
  std::uint32_t found = hash_index::none;

  float at(std::uint32_t position, std::uint32_t axis) const noexcept {
    return points[std::size_t{position} * axes + axis];
  }
  bool improves(double distance) const noexcept {
    return distance < reach || (distance == reach && found == hash_index::none);
  }
  /// First position in [begin, end) whose value on the axis is not below `value`.
  std::uint32_t lower(std::uint32_t begin, std::uint32_t end, std::uint32_t axis,
                      double value) const noexcept {
    while (begin < end) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      const bool below = static_cast<double>(at(middle, axis)) < value;
      (below ? begin : end) = below ? middle + 1 : middle;
    }
    return begin;
  }

  /// Looks at the points of [begin, end), which agree on the axes before `axis` and are `distance`
  /// away on those. At most `most_sizes` calls deep.
  void search(std::uint32_t begin, std::uint32_t end, std::uint32_t axis,
              double distance) noexcept {
    if (axis == axes) {
      take(begin, end, distance);
      return;
    }
    const auto here = static_cast<double>(asked[axis]);
    std::uint32_t run = lower(begin, end, axis, here - (reach - distance));
    while (run < end) {
      const float value = at(run, axis);
      const double further = distance + std::abs(static_cast<double>(value) - here);
      if (static_cast<double>(value) > here && !improves(further)) return;
      const std::uint32_t next = lower(run, end, axis, std::nextafter(value, 1e30f));
      if (improves(further)) search(run, next, axis + 1, further);
      run = next;
    }
  }

  /// Records at one point, the last one first.
  void take(std::uint32_t begin, std::uint32_t end, double distance) noexcept {
    for (std::uint32_t position = end; position > begin; --position) {
      const lookup_record& record = records[position - 1];
      if (!code_version.empty() && record.code_version != code_version) continue;
      reach = distance;
      found = position - 1;
      return;
    }
  }
};

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
    const lookup_record& record = records[position];
    if (!fault_of(record).empty()) continue;
    const std::uint64_t hash = hash_of(key_of(record));
    const std::uint32_t later = seen.find(hash, [&](std::uint32_t other) {
      return same_version(records[other], record) && key_of(records[other]) == key_of(record);
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

/// Records that are sorted together: same family, device class and identity, and sizes that can be
/// read and have the same names. Among these `nearest` compares.
struct group {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t axes = 0;
  std::size_t first_point = 0;
};

/// True if the record is of the group of a key; the sizes of both can be read.
inline bool is_of_group(const lookup_record& record, const lookup_key& key) noexcept {
  return record.identity == key.identity && record.device_class == key.device_class &&
         record.family == key.family && compare_names(record.size, key.size) == 0;
}

/// Order of records: by the texts of their groups, those whose sizes can be read first, then by
/// sizes as numbers; 0 for records of one key.
[[gnu::cold]] inline int compare(const lookup_record& a, const size_values& a_sizes,
                                 const lookup_record& b, const size_values& b_sizes) noexcept {
  for (const auto text :
       {&lookup_record::family, &lookup_record::device_class, &lookup_record::identity}) {
    if (const int order = (a.*text).compare(b.*text); order != 0) return order;
  }
  if ((a_sizes.count > 0) != (b_sizes.count > 0)) return a_sizes.count > 0 ? -1 : 1;
  if (a_sizes.count > 0) {
    if (const int names = compare_names(a.size, b.size); names != 0) return names;
    if (a_sizes.value != b_sizes.value) return a_sizes.value < b_sizes.value ? -1 : 1;
  }
  return a.size.compare(b.size);
}

}  // namespace lookup_form

struct lookup_table::contents {
  std::vector<lookup_record> records;
  std::vector<lookup_file_state> files;
  std::vector<lookup_form::group> groups;
  std::vector<float> points;             ///< of the records of groups
  lookup_form::hash_index keys;          ///< to the last record of each key
  lookup_form::hash_index groups_index;  ///< to `groups`

  [[gnu::cold]] explicit contents(std::vector<lookup_record> unsorted,
                                  std::vector<lookup_file_state> from)
      : files(std::move(from)) {
    using namespace lookup_form;
    std::vector<std::uint32_t> order = records_that_hold(unsorted);
    count_superseded(order, files);
    std::vector<size_values> sizes(unsorted.size());
    for (const std::uint32_t at : order) {
      if (!read_sizes(unsorted[at].size, sizes[at])) sizes[at] = {};
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int by_key = compare(unsorted[a], sizes[a], unsorted[b], sizes[b]);
      return by_key != 0 ? by_key < 0 : a < b;
    });
    records.reserve(order.size());
    for (const std::uint32_t at : order) add(std::move(unsorted[at]), sizes[at]);
    index();
  }

 private:
  [[gnu::cold]] void add(lookup_record&& record, const lookup_form::size_values& sizes) {
    const auto position = static_cast<std::uint32_t>(records.size());
    records.push_back(std::move(record));
    if (sizes.count == 0) return;
    const lookup_record& added = records.back();
    const bool is_of_last =
        !groups.empty() &&
        lookup_form::is_of_group(records[groups.back().begin], lookup_form::key_of(added));
    const auto axes = static_cast<std::uint32_t>(sizes.count);
    if (!is_of_last) groups.push_back({position, position, axes, points.size()});
    groups.back().end = position + 1;
    for (std::size_t axis = 0; axis < sizes.count; ++axis) {
      points.push_back(lookup_form::log2_of(sizes.value[axis]));
    }
  }

  [[gnu::cold]] void index() {
    using namespace lookup_form;
    keys.reset(records.size());
    for (std::uint32_t position = 0; position < records.size(); ++position) {
      const lookup_key key = key_of(records[position]);
      const bool last = position + 1 == records.size() || key != key_of(records[position + 1]);
      if (last) keys.insert(hash_of(key), position);
    }
    groups_index.reset(groups.size());
    for (std::uint32_t number = 0; number < groups.size(); ++number) {
      const lookup_key key = key_of(records[groups[number].begin]);
      size_values sizes;
      if (read_sizes(key.size, sizes)) groups_index.insert(hash_of_group(key, sizes), number);
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
  using namespace lookup_form;
  if (!contents_) return nullptr;
  const std::vector<lookup_record>& all = contents_->records;
  const lookup_key key{family, device_class, identity, size};
  const auto matches = [&](std::uint32_t position) { return key_of(all[position]) == key; };
  const std::uint32_t last = contents_->keys.find(hash_of(key), matches);
  if (last == hash_index::none) return nullptr;
  if (!code_version.empty()) {
    for (std::uint32_t at = last;; --at) {
      if (all[at].code_version == code_version) return &all[at];
      if (at == 0 || !matches(at - 1)) break;
    }
  }
  return &all[last];
}

nearest_record lookup_table::nearest(std::string_view family, std::string_view device_class,
                                     std::string_view identity, std::string_view size,
                                     double max_log2_distance,
                                     std::string_view code_version) const noexcept {
  using namespace lookup_form;
  size_values sizes;
  if (!contents_ || !(max_log2_distance >= 0) || !read_sizes(size, sizes)) return {};
  const lookup_key key{family, device_class, identity, size};
  const std::uint32_t number =
      contents_->groups_index.find(hash_of_group(key, sizes), [&](std::uint32_t at) {
        return is_of_group(contents_->records[contents_->groups[at].begin], key);
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
