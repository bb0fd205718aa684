// Dense masks and segment ids: one to the other, ids to positions, masks to biases.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// A mask written out: u8, 1 = visible, row-major [batch, heads, q_len, kv_len].
struct dense_mask {
  std::vector<std::uint8_t> visible;
  std::int64_t batch = 0, heads = 1, q_len = 0, kv_len = 0;

  std::uint8_t at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const noexcept {
    return visible[static_cast<std::size_t>(((b * heads + h) * q_len + i) * kv_len + j)];
  }
  /// Valid as long as this object lives and is not changed.
  tensor_view view() const noexcept {
    return tessera::view(visible.data(), {batch, heads, q_len, kv_len});
  }
};

/// Ids of rows [batch, q_len] and of keys [batch, kv_len]; negative = padding.
struct segment_pair {
  std::vector<std::int32_t> q, kv;
  friend bool operator==(const segment_pair&, const segment_pair&) = default;
};

/// A position that no query reaches: that of a padding key.
inline constexpr std::int32_t padding_key_position = std::numeric_limits<std::int32_t>::max();

/// The position of each token inside its run of equal ids: 0 at every change of id along the row,
/// also where an id comes back. Negative ids have position `padding`: -1 for queries,
/// `padding_key_position` for keys. `ids` is [batch, length].
inline std::vector<std::int32_t> positions_of(std::span<const std::int32_t> ids,
                                              std::int64_t length, std::int32_t padding) {
  std::vector<std::int32_t> positions(ids.size(), padding);
  const auto row = static_cast<std::size_t>(length);
  for (std::size_t index = 0; index < ids.size(); ++index) {
    if (ids[index] < 0) continue;
    const bool continues = index % row != 0 && ids[index] == ids[index - 1];
    positions[index] = continues ? positions[index - 1] + 1 : 0;
  }
  return positions;
}

/// 0 where visible, -inf elsewhere; shaped like the mask.
inline std::vector<float> bias_of(const dense_mask& mask) {
  std::vector<float> bias(mask.visible.size());
  for (std::size_t index = 0; index < bias.size(); ++index) {
    bias[index] = mask.visible[index] != 0 ? 0.0f : -std::numeric_limits<float>::infinity();
  }
  return bias;
}

/// The segment ids that say the same as `mask`. Rows with the same keys share an id, numbered by
/// first occurrence from 0 in each batch entry; rows that see nothing and keys that nobody sees get
/// -1. Only masks that are blocks of such rows and keys (in any order, the same for every head)
/// have ids; others are refused with the first element that the ids would get wrong.
inline result<segment_pair> segment_ids_of(const dense_mask& mask) {
  segment_pair ids;
  ids.q.assign(static_cast<std::size_t>(mask.batch * mask.q_len), -1);
  ids.kv.assign(static_cast<std::size_t>(mask.batch * mask.kv_len), -1);
  const auto keys = static_cast<std::size_t>(mask.kv_len);
  for (std::int64_t b = 0; b < mask.batch && mask.heads > 0 && keys > 0; ++b) {
    std::int32_t* q = ids.q.data() + b * mask.q_len;
    std::int32_t* kv = ids.kv.data() + b * mask.kv_len;
    std::map<std::string_view, std::int32_t> known;  // a row's keys, as bytes, to its id
    for (std::int64_t i = 0; i < mask.q_len; ++i) {
      const std::uint8_t* row =
          mask.visible.data() + (b * mask.heads * mask.q_len + i) * mask.kv_len;
      const std::string_view seen(reinterpret_cast<const char*>(row), keys);
      if (seen.find_first_not_of('\0') == seen.npos) continue;
      q[i] = known.try_emplace(seen, static_cast<std::int32_t>(known.size())).first->second;
      for (std::size_t j = 0; j < keys; ++j) {
        if (row[j] != 0 && kv[j] < 0) kv[j] = q[i];
      }
    }
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      for (std::int64_t i = 0; i < mask.q_len; ++i) {
        for (std::int64_t j = 0; j < mask.kv_len; ++j) {
          const bool visible = mask.at(b, h, i, j) != 0;
          if (visible == (q[i] >= 0 && q[i] == kv[j])) continue;
          return status(status_code::invalid_argument,
                        "mask: element [" + std::to_string(b) + "," + std::to_string(h) + "," +
                            std::to_string(i) + "," + std::to_string(j) + "] is " +
                            (visible ? "1" : "0") + ", segment ids would make it " +
                            (visible ? "0" : "1"));
        }
      }
    }
  }
  return ids;
}

}  // namespace tessera
