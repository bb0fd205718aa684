// Who sees whom, as far as it follows from lengths, the causal diagonal and the window: an interval
// of keys per query row. All arithmetic of intervals in the library is here, for every backend and
// for the cost model.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/mask_mode.hpp>

namespace tessera::prim {

/// One batch entry, or one packed sequence.
struct sequence {
  std::int64_t index = 0;    ///< b or n
  std::int64_t q_begin = 0;  ///< first row in the packed tensor; 0 when dense
  std::int64_t k_begin = 0;
  std::int64_t q_len = 0;  ///< used rows
  std::int64_t k_len = 0;  ///< used keys
};

/// Keys [begin, end).
struct key_interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  TESSERA_HD constexpr bool empty() const noexcept { return begin >= end; }
  TESSERA_HD constexpr bool contains(key_interval other) const noexcept {
    return begin <= other.begin && other.end <= end;
  }
  friend constexpr bool operator==(key_interval, key_interval) = default;
};

TESSERA_HD constexpr key_interval intersection(key_interval a, key_interval b) noexcept {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

/// Rows [begin, end) of a sequence, which may lie outside of it.
struct row_interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Diagonal and window of one sequence: row r stands at key position r + offset and sees the keys
/// from `left` before it to `right` behind it, where INT64_MAX is no bound. `causal` hides all
/// behind it.
struct mask_interval {
  bool causal = false;
  std::int64_t left = INT64_MAX;
  std::int64_t right = INT64_MAX;
  std::int64_t offset = 0;

  /// Of `k_len` keys those that row `row` sees; `Mode` is what the numbers may ask for.
  template <mask_mode Mode = mask_mode::window>
  TESSERA_HD constexpr key_interval keys_of(std::int64_t row, std::int64_t k_len) const noexcept {
    key_interval keys{0, k_len};
    if constexpr (Mode == mask_mode::full) return keys;
    const std::int64_t position = row + offset;
    if (causal && position + 1 < keys.end) keys.end = position + 1;
    if constexpr (Mode == mask_mode::window) {
      // No difference overflows, whether or not it is used: compilers compute it beforehand.
      const std::int64_t behind = keys.end - 1 - position;
      keys.end = position + 1 + (right < behind ? right : behind);
      keys.begin = position - (left < position ? left : position);
      if (keys.begin > k_len) keys.begin = k_len;
    }
    if (keys.end < keys.begin) keys.end = keys.begin;
    return keys;
  }

  /// Rows that see some of `keys`, which are neighbours and not none.
  TESSERA_HD constexpr row_interval rows_that_see(key_interval keys) const noexcept {
    return {keys.begin - behind() - offset, keys.end + reach(left) - offset};
  }
  /// Rows that see all of them.
  TESSERA_HD constexpr row_interval rows_that_see_all(key_interval keys) const noexcept {
    return {keys.end - 1 - behind() - offset, keys.begin + 1 + reach(left) - offset};
  }

  /// Mean number of keys that the rows [0, rows) see. In double: sizes of problems without memory
  /// may be anything.
  constexpr double mean_keys(std::int64_t rows, std::int64_t k_len) const noexcept {
    if (rows <= 0 || k_len <= 0) return 0.0;
    const auto count = static_cast<double>(rows);
    const auto keys = static_cast<double>(k_len);
    const auto origin = static_cast<double>(offset);
    const std::int64_t behind = causal ? 0 : right;
    const double ends = behind == INT64_MAX
                            ? count * keys
                            : sum_of_line(origin + static_cast<double>(behind) + 1, count, keys);
    const double begins =
        left == INT64_MAX ? 0.0 : sum_of_line(origin - static_cast<double>(left), count, keys);
    return (ends - begins) / count;
  }

 private:
  /// A bound as a distance that lengths can be added to.
  static TESSERA_HD constexpr std::int64_t reach(std::int64_t bound) noexcept {
    return bound < INT64_MAX / 4 ? bound : INT64_MAX / 4;
  }
  /// How far a row sees behind its position.
  TESSERA_HD constexpr std::int64_t behind() const noexcept {
    return reach(causal && right > 0 ? 0 : right);
  }
  /// The sum of r + first over r in [0, count), each term cut to [0, most].
  static constexpr double sum_of_line(double first, double count, double most) noexcept {
    const auto cut = [count](double row) { return row < 0 ? 0.0 : row < count ? row : count; };
    const double low = cut(-first);
    const double high = cut(most - first);
    return (high - low) * (low + high - 1 + 2 * first) / 2 + (count - high) * most;
  }
};

/// Keys that some, and keys that all of a block of rows see.
struct block_intervals {
  key_interval some;
  key_interval all;  ///< may be empty by end < begin
};

/// Row -> interval of visible keys of one sequence, for rows and keys local to it.
template <mask_mode Mode>
struct row_visibility {
  std::int64_t k_len = 0;
  mask_interval mask{};

  TESSERA_HD constexpr key_interval keys_of(std::int64_t row) const noexcept {
    return mask.template keys_of<Mode>(row, k_len);
  }
  /// Both ends of an interval grow with the row, so a block of rows is known from its ends.
  TESSERA_HD constexpr block_intervals keys_of(std::int64_t first_row,
                                               std::int64_t last_row) const noexcept {
    const key_interval first = keys_of(first_row);
    const key_interval last = keys_of(last_row);
    return {{first.begin, last.end}, {last.begin, first.end}};
  }
};

/// How much of a tile is visible.
enum class tile_visibility : std::uint8_t { skip, partial, full };

/// Of a tile that two masks look at, of which nobody knows whether they hide the same.
TESSERA_HD constexpr tile_visibility both(tile_visibility a, tile_visibility b) noexcept {
  if (a == tile_visibility::skip || b == tile_visibility::skip) return tile_visibility::skip;
  return a == b ? a : tile_visibility::partial;
}

/// Query rows x keys of one tile, local to the sequence, for a range of query heads.
struct score_tile {
  std::int64_t entry = 0;  ///< batch entry or sequence number
  int head_begin = 0, head_end = 0;
  std::int64_t query_begin = 0, query_end = 0;
  std::int64_t key_begin = 0, key_end = 0;
};

}  // namespace tessera::prim
