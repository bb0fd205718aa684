// What a `mask_info` says: elements, dense forms, segment ids, positions, validity.
#pragma once

#include <algorithm>

#include <tessera/api/mask_info/declaration.hpp>

namespace tessera {

inline bool mask_info::is_self_attention() const noexcept {
  if (sizes_.q_len != sizes_.kv_len) return false;
  return !segments_ || segments_->q == segments_->kv || *segments_->q == *segments_->kv;
}

inline bool mask_info::visible(std::int64_t b, std::int64_t h, std::int64_t i,
                               std::int64_t j) const {
  const auto inside = [](std::int64_t at, std::int64_t extent) { return at >= 0 && at < extent; };
  if (!inside(b, sizes_.batch) || !inside(i, sizes_.q_len) || !inside(j, sizes_.kv_len) || h < 0 ||
      (sizes_.heads > 1 && h >= sizes_.heads)) {
    return false;
  }
  std::uint8_t seen = 1;
  for (const masks::term& condition : terms_) {
    masks::and_row(condition, sizes_, {b, h, i, j, j + 1}, &seen);
    if (seen == 0) return false;
  }
  return true;
}

namespace masks {

/// The AND of `terms`, written out.
inline dense_mask written_out(const std::vector<term>& terms, const sizes& of) {
  dense_mask mask{{}, of.batch, of.heads, of.q_len, of.kv_len};
  mask.visible.assign(static_cast<std::size_t>(of.batch * of.heads * of.q_len * of.kv_len), 1);
  std::uint8_t* row = mask.visible.data();
  for (std::int64_t b = 0; b < of.batch; ++b) {
    for (std::int64_t h = 0; h < of.heads; ++h) {
      for (std::int64_t i = 0; i < of.q_len; ++i, row += of.kv_len) {
        for (const term& condition : terms) and_row(condition, of, {b, h, i, 0, of.kv_len}, row);
      }
    }
  }
  return mask;
}

}  // namespace masks

inline dense_mask mask_info::attention_mask() const {
  return masks::written_out(terms_, sizes_);
}

inline mask_info::validity mask_info::valid() const {
  validity valid;
  valid.q.assign(static_cast<std::size_t>(sizes_.batch * sizes_.q_len), 1);
  valid.kv.assign(static_cast<std::size_t>(sizes_.batch * sizes_.kv_len), 1);
  const auto keep = [&](std::vector<std::uint8_t>& side, std::int64_t length, const auto& holds) {
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      for (std::int64_t at = 0; at < length; ++at) {
        if (!holds(b, at)) side[static_cast<std::size_t>(b * length + at)] = 0;
      }
    }
  };
  const auto keep_ids = [](std::vector<std::uint8_t>& side, const std::vector<std::int32_t>& ids) {
    for (std::size_t at = 0; at < side.size(); ++at) {
      if (ids[at] < 0) side[at] = 0;
    }
  };
  if (segments_) {
    keep_ids(valid.q, *segments_->q);
    keep_ids(valid.kv, *segments_->kv);
  }
  std::vector<masks::term>
      written;  // those that say which rows and keys exist only when written out
  for (const masks::term& condition : terms_) {
    if (const auto* lengths = std::get_if<masks::box>(&condition.is)) {
      keep(valid.q, sizes_.q_len,
           [&](auto b, auto i) { return i >= lengths->q_begin[b] && i < lengths->q_end[b]; });
      keep(valid.kv, sizes_.kv_len,
           [&](auto b, auto j) { return j >= lengths->kv_begin[b] && j < lengths->kv_end[b]; });
    } else if (std::holds_alternative<masks::dense>(condition.is) ||
               std::holds_alternative<masks::any_of>(condition.is)) {
      written.push_back(condition);
    }
  }
  if (written.empty()) return valid;
  const dense_mask mask = masks::written_out(written, sizes_);
  validity seen{std::vector<std::uint8_t>(valid.q.size(), 0),
                std::vector<std::uint8_t>(valid.kv.size(), 0)};
  for (std::size_t at = 0; at < mask.visible.size(); ++at) {
    const auto row = static_cast<std::int64_t>(at) / sizes_.kv_len;  // (b * heads + h) * q_len + i
    const std::int64_t b = row / (sizes_.heads * sizes_.q_len);
    seen.q[static_cast<std::size_t>(b * sizes_.q_len + row % sizes_.q_len)] |= mask.visible[at];
    seen.kv[static_cast<std::size_t>(b * sizes_.kv_len) +
            at % static_cast<std::size_t>(sizes_.kv_len)] |= mask.visible[at];
  }
  for (std::size_t at = 0; at < seen.q.size(); ++at) valid.q[at] &= seen.q[at];
  for (std::size_t at = 0; at < seen.kv.size(); ++at) valid.kv[at] &= seen.kv[at];
  return valid;
}

inline std::vector<std::uint8_t> mask_info::q_valid() const {
  return valid().q;
}
inline std::vector<std::uint8_t> mask_info::kv_valid() const {
  return valid().kv;
}

inline segment_pair mask_info::segment_ids() const {
  if (segments_) return {*segments_->q, *segments_->kv};
  const validity known = valid();
  segment_pair ids;
  for (const std::uint8_t used : known.q) ids.q.push_back(used != 0 ? 0 : -1);
  for (const std::uint8_t used : known.kv) ids.kv.push_back(used != 0 ? 0 : -1);
  return ids;
}

inline segment_pair mask_info::positions() const {
  if (positions_) return {*positions_->q, *positions_->kv};
  const segment_pair ids = segment_ids();
  return {positions_of(ids.q, sizes_.q_len, -1),
          positions_of(ids.kv, sizes_.kv_len, padding_key_position)};
}

inline std::vector<std::int32_t> mask_info::q_position_ids() const {
  const std::vector<std::uint8_t> known = q_valid();
  std::vector<std::int32_t> index(known.size());
  for (std::int64_t b = 0; b < sizes_.batch; ++b) {
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < sizes_.q_len; ++i) {
      const auto at = static_cast<std::size_t>(b * sizes_.q_len + i);
      count += known[at] != 0 ? 1 : 0;
      index[at] = std::max(count - 1, 0);
    }
  }
  return index;
}

}  // namespace tessera
