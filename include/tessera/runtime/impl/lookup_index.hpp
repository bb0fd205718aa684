// Parts of a table in memory: hashing of key texts, an index of hashes, sizes as numbers.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <vector>

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

}  // namespace tessera::lookup_form
