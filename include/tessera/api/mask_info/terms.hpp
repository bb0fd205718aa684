// The predicates a mask is made of. Each says which keys j a row i of batch entry b (and head h)
// may see; a mask is the AND of its terms. All but `dense` take O(Sq + Sk) memory or none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

/// What a tile of the score matrix needs: nothing, no masking, or masking.
enum class tile_state : std::uint8_t { skip, full, partial };

namespace masks {

/// A number for all batch entries, or one for each.
class per_batch {
 public:
  per_batch(std::int64_t all = 0) : values_{all} {}                        // NOLINT
  per_batch(std::vector<std::int64_t> each) : values_(std::move(each)) {}  // NOLINT
  per_batch(std::initializer_list<std::int64_t> each) : values_(each) {}   // NOLINT
  std::int64_t operator[](std::int64_t entry) const noexcept {
    return values_[values_.size() == 1 ? 0 : static_cast<std::size_t>(entry)];
  }
  std::size_t size() const noexcept { return values_.size(); }

 private:
  std::vector<std::int64_t> values_;
};

/// Beyond every sum of sizes and offsets that a mask accepts (each below 2^31).
inline constexpr std::int64_t no_bound = std::int64_t{1} << 60;

/// i + low <= j <= i + high: causal masks and windows, whose diagonals may differ per entry.
struct band {
  per_batch low{-no_bound};
  per_batch high{no_bound};
};

/// Rows [q_begin, q_end) see keys [kv_begin, kv_end): lengths.
struct box {
  per_batch q_begin{}, q_end{}, kv_begin{}, kv_end{};
};

/// Rows and keys of the same chunk: floor((i + q_offset) / size) = floor((j + kv_offset) / size).
struct chunk {
  std::int64_t size = 1;
  per_batch q_offset{}, kv_offset{};
};

using shared_ids = std::shared_ptr<const std::vector<std::int32_t>>;

/// Rows and keys of equal id; negative ids see nothing and are seen by nobody. [B,Sq], [B,Sk].
struct same_id {
  shared_ids q, kv;
};

/// Causal by explicit positions: kv <= q. [B,Sq], [B,Sk].
struct not_after {
  shared_ids q, kv;
};

/// A tensor, nonzero = visible; extents [B or 1, H or 1, Sq or 1, Sk or 1], row-major.
struct dense {
  std::shared_ptr<const std::vector<std::uint8_t>> visible;
  std::array<std::int64_t, 4> extent{};

  const std::uint8_t* row(std::int64_t b, std::int64_t h, std::int64_t i) const noexcept {
    const std::int64_t index =
        ((extent[0] > 1 ? b : 0) * extent[1] + (extent[1] > 1 ? h : 0)) * extent[2] +
        (extent[2] > 1 ? i : 0);
    return visible->data() + index * extent[3];
  }
};

struct term;
/// Visible where all terms of at least one of the lists say so.
struct any_of {
  std::vector<std::vector<term>> alternatives;
};

struct term {
  std::variant<band, box, chunk, same_id, not_after, dense, any_of> is;
};

/// Extents that the terms of one mask share.
struct sizes {
  std::int64_t batch = 0, heads = 1, q_len = 0, kv_len = 0;
};

/// Keys [begin, end) of row i of entry b and head h.
struct row_piece {
  std::int64_t b = 0, h = 0, i = 0, begin = 0, end = 0;
};

/// Rows [q_begin, q_end) by keys [kv_begin, kv_end) of entry b and head h; not empty.
struct tile {
  std::int64_t b = 0, h = 0, q_begin = 0, q_end = 0, kv_begin = 0, kv_end = 0;
};

struct interval {
  std::int64_t begin = 0, end = 0;
};

constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

// The terms that are intervals of keys. Of `band` and `chunk` both ends grow with i, which is what
// the tile test rests on.
inline interval keys_of(const band& edges, std::int64_t b, std::int64_t i) noexcept {
  return {i + edges.low[b], i + edges.high[b] + 1};
}
inline interval keys_of(const chunk& chunks, std::int64_t b, std::int64_t i) noexcept {
  const std::int64_t first = floor_divide(i + chunks.q_offset[b], chunks.size) * chunks.size;
  return {first - chunks.kv_offset[b], first - chunks.kv_offset[b] + chunks.size};
}
inline interval keys_of(const box& lengths, std::int64_t b, std::int64_t i) noexcept {
  if (i < lengths.q_begin[b] || i >= lengths.q_end[b]) return {};
  return {lengths.kv_begin[b], lengths.kv_end[b]};
}

/// Clears in `visible` (one byte per key of the piece) what the term hides.
template <class Interval>
void and_row(const Interval& bounds, const sizes&, const row_piece& at, std::uint8_t* visible) {
  const interval keys = keys_of(bounds, at.b, at.i);
  const std::int64_t begin = std::clamp(keys.begin, at.begin, at.end);
  const std::int64_t end = std::clamp(keys.end, begin, at.end);
  std::fill(visible, visible + (begin - at.begin), std::uint8_t{0});
  std::fill(visible + (end - at.begin), visible + (at.end - at.begin), std::uint8_t{0});
}

inline void and_row(const same_id& pair, const sizes& of, const row_piece& at,
                    std::uint8_t* visible) {
  const std::int32_t own = (*pair.q)[static_cast<std::size_t>(at.b * of.q_len + at.i)];
  const std::int32_t* kv = pair.kv->data() + at.b * of.kv_len;
  for (std::int64_t j = at.begin; j < at.end; ++j) {
    visible[j - at.begin] &= static_cast<std::uint8_t>(own >= 0 && kv[j] == own);
  }
}

inline void and_row(const not_after& pair, const sizes& of, const row_piece& at,
                    std::uint8_t* visible) {
  const std::int32_t own = (*pair.q)[static_cast<std::size_t>(at.b * of.q_len + at.i)];
  const std::int32_t* kv = pair.kv->data() + at.b * of.kv_len;
  for (std::int64_t j = at.begin; j < at.end; ++j) {
    visible[j - at.begin] &= static_cast<std::uint8_t>(kv[j] <= own);
  }
}

inline void and_row(const dense& visible_pairs, const sizes&, const row_piece& at,
                    std::uint8_t* visible) {
  const std::uint8_t* row = visible_pairs.row(at.b, at.h, at.i);
  const std::int64_t step = visible_pairs.extent[3] > 1 ? 1 : 0;
  for (std::int64_t j = at.begin; j < at.end; ++j) {
    visible[j - at.begin] &= static_cast<std::uint8_t>(row[j * step] != 0);
  }
}

inline void and_row(const any_of& choice, const sizes& of, const row_piece& at,
                    std::uint8_t* visible);

inline void and_row(const term& condition, const sizes& of, const row_piece& at,
                    std::uint8_t* visible) {
  std::visit([&](const auto& kind) { and_row(kind, of, at, visible); }, condition.is);
}

inline void and_row(const any_of& choice, const sizes& of, const row_piece& at,
                    std::uint8_t* visible) {
  const auto count = static_cast<std::size_t>(at.end - at.begin);
  std::vector<std::uint8_t> any(count, 0), own(count);
  for (const auto& terms : choice.alternatives) {
    std::fill(own.begin(), own.end(), std::uint8_t{1});
    for (const term& each : terms) and_row(each, of, at, own.data());
    for (std::size_t j = 0; j < count; ++j) any[j] |= own[j];
  }
  for (std::size_t j = 0; j < count; ++j) visible[j] &= any[j];
}

/// Band and chunk: by the first and the last row, between which the interval only moves up.
template <class Interval>
tile_state classify(const Interval& bounds, const sizes&, const tile& at) {
  const interval first = keys_of(bounds, at.b, at.q_begin);
  const interval last = keys_of(bounds, at.b, at.q_end - 1);
  if (last.end <= at.kv_begin || first.begin >= at.kv_end) return tile_state::skip;
  if (last.begin <= at.kv_begin && first.end >= at.kv_end) return tile_state::full;
  return tile_state::partial;
}

inline tile_state classify(const box& lengths, const sizes&, const tile& at) {
  const std::int64_t b = at.b;
  if (at.q_end <= lengths.q_begin[b] || at.q_begin >= lengths.q_end[b] ||
      at.kv_end <= lengths.kv_begin[b] || at.kv_begin >= lengths.kv_end[b]) {
    return tile_state::skip;
  }
  const bool inside = at.q_begin >= lengths.q_begin[b] && at.q_end <= lengths.q_end[b] &&
                      at.kv_begin >= lengths.kv_begin[b] && at.kv_end <= lengths.kv_end[b];
  return inside ? tile_state::full : tile_state::partial;
}

/// Least and greatest of ids[begin, end) that are at least `least`; begin > end where none is.
inline interval range_of(const std::vector<std::int32_t>& ids, std::int64_t begin, std::int64_t end,
                         std::int64_t least) {
  interval range{no_bound, -no_bound};
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t id = ids[static_cast<std::size_t>(index)];
    if (id < least) continue;
    range = {std::min(range.begin, id), std::max(range.end, id)};
  }
  return range;
}

inline tile_state classify(const same_id& pair, const sizes& of, const tile& at) {
  const std::int64_t q = at.b * of.q_len, kv = at.b * of.kv_len;
  const interval rows = range_of(*pair.q, q + at.q_begin, q + at.q_end, -no_bound);
  const interval keys = range_of(*pair.kv, kv + at.kv_begin, kv + at.kv_end, -no_bound);
  if (rows.end < 0 || keys.end < 0 || std::max<std::int64_t>(rows.begin, 0) > keys.end ||
      std::max<std::int64_t>(keys.begin, 0) > rows.end) {
    return tile_state::skip;
  }
  const bool one_id = rows.begin == rows.end && keys.begin == keys.end && rows.begin == keys.begin;
  return one_id ? tile_state::full : tile_state::partial;
}

inline tile_state classify(const not_after& pair, const sizes& of, const tile& at) {
  const std::int64_t q = at.b * of.q_len, kv = at.b * of.kv_len;
  const interval rows = range_of(*pair.q, q + at.q_begin, q + at.q_end, -no_bound);
  const interval keys = range_of(*pair.kv, kv + at.kv_begin, kv + at.kv_end, -no_bound);
  if (keys.begin > rows.end) return tile_state::skip;
  return keys.end <= rows.begin ? tile_state::full : tile_state::partial;
}

inline tile_state classify(const dense& visible_pairs, const sizes&, const tile& at) {
  bool some = false, all = true;
  const std::int64_t step = visible_pairs.extent[3] > 1 ? 1 : 0;
  for (std::int64_t i = at.q_begin; i < at.q_end && !(some && !all); ++i) {
    const std::uint8_t* row = visible_pairs.row(at.b, at.h, i);
    for (std::int64_t j = at.kv_begin; j < at.kv_end; ++j) {
      const bool seen = row[j * step] != 0;
      some = some || seen;
      all = all && seen;
    }
  }
  if (!some) return tile_state::skip;
  return all ? tile_state::full : tile_state::partial;
}

inline tile_state classify(const any_of& choice, const sizes& of, const tile& at);

/// The AND of the terms.
inline tile_state classify(const std::vector<term>& terms, const sizes& of, const tile& at) {
  tile_state all = tile_state::full;
  for (const term& condition : terms) {
    const auto own =
        std::visit([&](const auto& kind) { return classify(kind, of, at); }, condition.is);
    if (own == tile_state::skip) return own;
    if (own == tile_state::partial) all = own;
  }
  return all;
}

inline tile_state classify(const any_of& choice, const sizes& of, const tile& at) {
  tile_state any = tile_state::skip;
  for (const auto& terms : choice.alternatives) {
    const tile_state own = classify(terms, of, at);
    if (own == tile_state::full) return own;
    if (own == tile_state::partial) any = own;
  }
  return any;
}

}  // namespace masks
}  // namespace tessera
