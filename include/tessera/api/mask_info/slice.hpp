// A part of a mask as a mask of its own: row i and key j of the part are row q_begin[b] + i and key
// kv_begin[b] + j of the whole. What lies outside the whole sees nothing and is seen by nobody.
#pragma once

#include <limits>
#include <utility>

#include <tessera/api/mask_info/terms.hpp>

namespace tessera::masks {

struct part {
  per_batch q_begin{};
  std::int64_t q_len = 0;
  per_batch kv_begin{};
  std::int64_t kv_len = 0;
};

/// `one` - `less` and so on, entry by entry; bounds that are none stay none.
template <class Combine>
per_batch combined(std::int64_t batch, const Combine& combine) {
  std::vector<std::int64_t> each;
  each.reserve(static_cast<std::size_t>(batch));
  for (std::int64_t b = 0; b < batch; ++b) each.push_back(combine(b));
  return each;
}

inline std::int64_t moved(std::int64_t bound, std::int64_t by) noexcept {
  return bound <= -no_bound / 2 || bound >= no_bound / 2 ? bound : bound + by;
}

/// Rows of `length` from `ids` [B,old_length]; `outside` where there are none.
inline shared_ids slice_ids(const shared_ids& ids, std::int64_t batch, std::int64_t old_length,
                            const per_batch& begin, std::int64_t length, std::int32_t outside) {
  std::vector<std::int32_t> kept(static_cast<std::size_t>(batch * length), outside);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t old = begin[b] + i;
      if (old < 0 || old >= old_length) continue;
      kept[static_cast<std::size_t>(b * length + i)] =
          (*ids)[static_cast<std::size_t>(b * old_length + old)];
    }
  }
  return std::make_shared<const std::vector<std::int32_t>>(std::move(kept));
}

inline term slice(const band& edges, const sizes& of, const part& to) {
  const auto shift = [&](std::int64_t b) { return to.q_begin[b] - to.kv_begin[b]; };
  return {band{combined(of.batch, [&](auto b) { return moved(edges.low[b], shift(b)); }),
               combined(of.batch, [&](auto b) { return moved(edges.high[b], shift(b)); })}};
}

inline term slice(const box& lengths, const sizes& of, const part& to) {
  const auto less = [&](const per_batch& bound, const per_batch& begin) {
    return combined(of.batch, [&](auto b) { return bound[b] - begin[b]; });
  };
  return {box{less(lengths.q_begin, to.q_begin), less(lengths.q_end, to.q_begin),
              less(lengths.kv_begin, to.kv_begin), less(lengths.kv_end, to.kv_begin)}};
}

inline term slice(const chunk& chunks, const sizes& of, const part& to) {
  const auto more = [&](const per_batch& offset, const per_batch& begin) {
    return combined(of.batch, [&](auto b) { return offset[b] + begin[b]; });
  };
  return {
      chunk{chunks.size, more(chunks.q_offset, to.q_begin), more(chunks.kv_offset, to.kv_begin)}};
}

inline term slice(const same_id& pair, const sizes& of, const part& to) {
  return {same_id{slice_ids(pair.q, of.batch, of.q_len, to.q_begin, to.q_len, -1),
                  slice_ids(pair.kv, of.batch, of.kv_len, to.kv_begin, to.kv_len, -1)}};
}

inline term slice(const not_after& pair, const sizes& of, const part& to) {
  constexpr std::int32_t last = std::numeric_limits<std::int32_t>::max();
  return {not_after{slice_ids(pair.q, of.batch, of.q_len, to.q_begin, to.q_len, -1),
                    slice_ids(pair.kv, of.batch, of.kv_len, to.kv_begin, to.kv_len, last)}};
}

inline term slice(const dense& visible_pairs, const sizes& of, const part& to) {
  dense kept;
  const bool rows = visible_pairs.extent[2] > 1, keys = visible_pairs.extent[3] > 1;
  kept.extent = {rows || keys ? of.batch : visible_pairs.extent[0], visible_pairs.extent[1],
                 rows ? to.q_len : 1, keys ? to.kv_len : 1};
  const auto& [batch, heads, q_len, kv_len] = kept.extent;
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(batch * heads * q_len * kv_len), 0);
  std::uint8_t* out = visible.data();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < q_len; ++i, out += kv_len) {
        const std::int64_t row = rows ? to.q_begin[b] + i : 0;
        if (row < 0 || row >= visible_pairs.extent[2]) continue;
        const std::uint8_t* old = visible_pairs.row(b, h, row);
        for (std::int64_t j = 0; j < kv_len; ++j) {
          const std::int64_t key = keys ? to.kv_begin[b] + j : 0;
          if (key >= 0 && key < visible_pairs.extent[3]) out[j] = old[key];
        }
      }
    }
  }
  kept.visible = std::make_shared<const std::vector<std::uint8_t>>(std::move(visible));
  return {std::move(kept)};
}

inline term slice(const any_of& choice, const sizes& of, const part& to);

inline std::vector<term> slice(const std::vector<term>& terms, const sizes& of, const part& to) {
  std::vector<term> kept;
  kept.reserve(terms.size());
  for (const term& condition : terms) {
    kept.push_back(std::visit([&](const auto& kind) { return slice(kind, of, to); }, condition.is));
  }
  return kept;
}

inline term slice(const any_of& choice, const sizes& of, const part& to) {
  any_of kept;
  for (const auto& terms : choice.alternatives) kept.alternatives.push_back(slice(terms, of, to));
  return {std::move(kept)};
}

}  // namespace tessera::masks
