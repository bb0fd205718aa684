// The table in memory: records sorted into groups, an index of keys, and per group the sizes as
// sorted points on logarithmic axes.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/runtime/lookup/record.hpp>
#include <tessera/runtime/lookup/table.hpp>

namespace tessera::lookup_form {

/// Hash of several texts; their lengths enter, so that ("ab", "c") differs from ("a", "bc").
inline std::uint64_t hash_texts(std::initializer_list<std::string_view> texts) noexcept {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = 0;
  const auto stir = [&](std::uint64_t word) {
    hash = (hash ^ word) * odd;
    hash ^= hash >> 32;
  };
  for (const std::string_view text : texts) {
    std::size_t at = 0;
    for (; at + 8 <= text.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, 8);
      stir(word);
    }
    std::uint64_t rest = 0;
    if (at < text.size()) std::memcpy(&rest, text.data() + at, text.size() - at);
    stir(rest);
    stir(text.size());
  }
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 32);
}

/// From hashes to positions: open addressing, at most half full.
class hash_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Makes room for `count` positions; forgets those it had.
  void reset(std::size_t count) {
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.assign(size, {});
  }

  /// The position stored under the hash for which `same(position)` holds, or `none`.
  template <class Same>
  std::uint32_t find(std::uint64_t hash, Same same) const noexcept {
    if (slots_.empty()) return none;
    for (std::size_t at = first(hash);; at = (at + 1) & (slots_.size() - 1)) {
      const slot& one = slots_[at];
      if (one.position == none) return none;
      if (one.tag == tag_of(hash) && same(one.position)) return one.position;
    }
  }

  void insert(std::uint64_t hash, std::uint32_t position) noexcept {
    std::size_t at = first(hash);
    while (slots_[at].position != none) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {tag_of(hash), position};
  }

 private:
  struct slot {
    std::uint32_t tag = 0;
    std::uint32_t position = none;
  };
  static std::uint32_t tag_of(std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(hash >> 32);
  }
  std::size_t first(std::uint64_t hash) const noexcept { return hash & (slots_.size() - 1); }

  std::vector<slot> slots_;
};

/// Most sizes that `nearest` compares; a record with more is found exactly or not at all.
constexpr std::size_t most_sizes = 16;

/// The values of a size text in order.
struct size_values {
  std::array<std::int64_t, most_sizes> value{};
  std::size_t count = 0;
};

/// Reads "name=4096 name=1". False if the text has another form, a negative value or too many.
inline bool read_sizes(std::string_view text, size_values& sizes) noexcept {
  sizes.count = 0;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(' '));
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string_view::npos || sizes.count == most_sizes) return false;
    const char* const end = pair.data() + pair.size();
    std::int64_t& value = sizes.value[sizes.count++];
    const auto [stop, error] = std::from_chars(pair.data() + equals + 1, end, value);
    if (error != std::errc{} || stop != end || value < 0) return false;
    text.remove_prefix(pair.size());
    if (text.empty()) return true;
    text.remove_prefix(1);
    if (text.empty()) return false;
  }
  return false;
}

/// Order of the names of two size texts that can be read: 0 if they are the same.
inline int compare_names(std::string_view a, std::string_view b) noexcept {
  while (true) {
    const std::string_view a_pair = a.substr(0, a.find(' '));
    const std::string_view b_pair = b.substr(0, b.find(' '));
    const int order =
        a_pair.substr(0, a_pair.find('=')).compare(b_pair.substr(0, b_pair.find('=')));
    if (order != 0) return order;
    const bool a_last = a_pair.size() == a.size();
    const bool b_last = b_pair.size() == b.size();
    if (a_last || b_last) return static_cast<int>(b_last) - static_cast<int>(a_last);
    a.remove_prefix(a_pair.size() + 1);
    b.remove_prefix(b_pair.size() + 1);
  }
}

/// Hash of the names of a size text.
inline std::uint64_t hash_names(std::string_view sizes) noexcept {
  std::uint64_t hash = 0;
  while (!sizes.empty()) {
    const std::string_view pair = sizes.substr(0, sizes.find(' '));
    hash = hash * 31 + hash_texts({pair.substr(0, pair.find('='))});
    sizes.remove_prefix(pair.size());
    if (!sizes.empty()) sizes.remove_prefix(1);
  }
  return hash;
}

/// Where a size lies on the scale of powers of two; 0 lies beyond all others.
inline float log2_of(std::int64_t size) noexcept {
  return size == 0 ? -1e9f : static_cast<float>(std::log2(static_cast<double>(size)));
}

/// Search over the sorted points of a group: axis by axis, one step per distinct value, and never
/// further away than the best so far. With sizes in powers of two and a reach of one this looks at
/// a few dozen values whatever the number of points.
struct closest_point {
  const lookup_record* records = nullptr;  ///< of the group, sorted by their points
  const float* points = nullptr;           ///< `axes` values per record
  std::uint32_t axes = 0;
  const float* asked = nullptr;   ///< one value per axis
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
      if (static_cast<double>(at(middle, axis)) < value) {
        begin = middle + 1;
      } else {
        end = middle;
      }
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
      const std::uint32_t next =
          lower(run, end, axis, static_cast<double>(std::nextafter(value, 1e30f)));
      if (improves(further)) search(run, next, axis + 1, further);
      run = next;
    }
  }

  /// Records at one point, the last one first.
  void take(std::uint32_t begin, std::uint32_t end, double distance) noexcept {
    for (std::uint32_t position = end; position > begin; --position) {
      const lookup_record& one = records[position - 1];
      if (!code_version.empty() && one.code_version != code_version) continue;
      reach = distance;
      found = position - 1;
      return;
    }
  }
};

}  // namespace tessera::lookup_form

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
