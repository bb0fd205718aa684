// How a `mask_info` is restricted, united and cut.
#pragma once

#include <algorithm>
#include <string>

#include <tessera/api/mask_info/build.hpp>
#include <tessera/api/mask_info/declaration.hpp>

namespace tessera {

inline status mask_info::check_offsets(const masks::per_batch& offsets, const char* name) const {
  if (offsets.size() != 1 && offsets.size() != static_cast<std::size_t>(sizes_.batch)) {
    return masks::refusal(std::string(name) + ": has " + std::to_string(offsets.size()) +
                          " numbers, batch is " + std::to_string(sizes_.batch));
  }
  for (std::size_t b = 0; b < offsets.size(); ++b) {
    const std::int64_t offset = offsets[static_cast<std::int64_t>(b)];
    if (offset < -masks::most || offset > masks::most) {
      return masks::refusal(std::string(name) + ": is " + std::to_string(offset) +
                            ", its magnitude can be " + std::to_string(masks::most));
    }
  }
  return {};
}

inline status mask_info::apply_causal(const masks::per_batch& offset) {
  if (auto done = check_offsets(offset, "offset"); !done) return done;
  terms_.push_back({masks::band{-masks::no_bound, offset}});
  return {};
}

inline status mask_info::apply_causal(alignment aligned) {
  if (aligned == alignment::top_left) return apply_causal(masks::per_batch(0));
  std::vector<std::int64_t> diagonal(static_cast<std::size_t>(sizes_.batch),
                                     sizes_.kv_len - sizes_.q_len);
  for (std::size_t b = 0; b < diagonal.size(); ++b) {
    std::int64_t q = sizes_.q_len, kv = sizes_.kv_len;
    for (const masks::term& condition : terms_) {
      const auto* lengths = std::get_if<masks::box>(&condition.is);
      if (lengths == nullptr) continue;
      q = std::min(q, lengths->q_end[static_cast<std::int64_t>(b)]);
      kv = std::min(kv, lengths->kv_end[static_cast<std::int64_t>(b)]);
    }
    diagonal[b] = kv - q;
  }
  if (diagonal.empty()) return {};
  return apply_causal(masks::per_batch(std::move(diagonal)));
}

inline status mask_info::apply_sliding_window(std::optional<std::int64_t> left,
                                              std::optional<std::int64_t> right,
                                              const masks::per_batch& offset) {
  if (auto done = check_offsets(offset, "offset"); !done) return done;
  for (const auto& [side, name] : {std::pair{left, "window_left"}, {right, "window_right"}}) {
    if (side && (*side < 0 || *side > masks::most)) {
      return masks::refusal(std::string(name) + ": is " + std::to_string(*side) +
                            ", it can be 0 to " + std::to_string(masks::most));
    }
  }
  const auto count = static_cast<std::int64_t>(offset.size());
  masks::band window;
  if (left) window.low = masks::combined(count, [&](auto b) { return offset[b] - *left; });
  if (right) window.high = masks::combined(count, [&](auto b) { return offset[b] + *right; });
  terms_.push_back({std::move(window)});
  return {};
}

inline status mask_info::apply_chunked(std::int64_t size, const masks::per_batch& offset) {
  if (size < 1 || size > masks::most) {
    return masks::refusal("chunk_size: is " + std::to_string(size) + ", it can be 1 to " +
                          std::to_string(masks::most));
  }
  if (auto done = apply_causal(offset); !done) return done;
  terms_.push_back({masks::chunk{size, offset, 0}});
  return {};
}

inline status mask_info::apply_segments(const tensor_view& q_ids, const tensor_view& kv_ids) {
  auto read = read_pair(q_ids, kv_ids, "q_segment_ids", "kv_segment_ids");
  if (!read) return read.failure();
  terms_.push_back({*read});
  if (!segments_) segments_ = *std::move(read);
  return {};
}

inline status mask_info::apply_causal_positions() {
  if (positions_) {
    terms_.push_back({masks::not_after{positions_->q, positions_->kv}});
    return {};
  }
  segment_pair computed = positions();
  const auto share = [](std::vector<std::int32_t>& ids) {
    return std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
  };
  terms_.push_back({masks::not_after{share(computed.q), share(computed.kv)}});
  return {};
}

inline status mask_info::apply_mask(const tensor_view& mask) {
  if (auto done = masks::check_mask_type(mask, "mask"); !done) return done;
  if (auto done = masks::check_rank(mask, 4, "mask"); !done) return done;
  const std::int64_t heads = mask.extent[1];
  const std::array<std::int64_t, 4> expected{sizes_.batch, sizes_.heads > 1 ? sizes_.heads : heads,
                                             sizes_.q_len, sizes_.kv_len};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (mask.extent[axis] == expected[axis] || mask.extent[axis] == 1) continue;
    return masks::refusal("mask: axis " + std::to_string(axis) + " is " +
                          std::to_string(mask.extent[axis]) + ", expected " +
                          std::to_string(expected[axis]) + " or 1");
  }
  if (heads == 0) return masks::refusal("mask: axis 1 is 0, the least number of heads is 1");
  sizes_.heads = std::max(sizes_.heads, heads);
  terms_.push_back({masks::read_dense(mask)});
  return {};
}

inline status mask_info::apply_lengths(const std::optional<masks::per_batch>& q_lengths,
                                       const std::optional<masks::per_batch>& kv_lengths) {
  const auto check = [&](const std::optional<masks::per_batch>& lengths, const char* name,
                         std::int64_t most) -> status {
    if (!lengths) return {};
    if (auto done = check_offsets(*lengths, name); !done) return done;
    for (std::size_t b = 0; b < lengths->size(); ++b) {
      const std::int64_t length = (*lengths)[static_cast<std::int64_t>(b)];
      if (length >= 0 && length <= most) continue;
      return masks::refusal(std::string(name) + ": entry " + std::to_string(b) + " is " +
                            std::to_string(length) + ", it can be 0 to " + std::to_string(most));
    }
    return {};
  };
  if (auto done = check(q_lengths, "seqlens_q", sizes_.q_len); !done) return done;
  if (auto done = check(kv_lengths, "seqlens_k", sizes_.kv_len); !done) return done;
  terms_.push_back(
      {masks::box{0, q_lengths.value_or(sizes_.q_len), 0, kv_lengths.value_or(sizes_.kv_len)}});
  return {};
}

namespace masks {

/// The heads of both masks together, or the extents that differ.
inline result<sizes> common_sizes(const sizes& own, const sizes& other) {
  const auto refuse = [](const char* name, std::int64_t a, std::int64_t b) {
    return refusal("mask_info: " + std::string(name) + " is " + std::to_string(a) +
                   ", the other mask has " + std::to_string(b));
  };
  if (own.batch != other.batch) return refuse("batch", own.batch, other.batch);
  if (own.q_len != other.q_len) return refuse("q_len", own.q_len, other.q_len);
  if (own.kv_len != other.kv_len) return refuse("kv_len", own.kv_len, other.kv_len);
  if (own.heads != other.heads && own.heads != 1 && other.heads != 1) {
    return refuse("number of heads", own.heads, other.heads);
  }
  return sizes{own.batch, std::max(own.heads, other.heads), own.q_len, own.kv_len};
}

}  // namespace masks

inline status mask_info::apply(const mask_info& other) {
  const auto common = masks::common_sizes(sizes_, other.sizes_);
  if (!common) return common.failure();
  const std::vector<masks::term> added = other.terms_;  // `other` may be this one
  sizes_ = *common;
  terms_.insert(terms_.end(), added.begin(), added.end());
  if (!segments_) segments_ = other.segments_;
  if (!positions_) positions_ = other.positions_;
  return {};
}

inline status mask_info::unite(const mask_info& other) {
  const auto common = masks::common_sizes(sizes_, other.sizes_);
  if (!common) return common.failure();
  masks::any_of either;
  either.alternatives = {terms_, other.terms_};
  sizes_ = *common;
  terms_.clear();
  terms_.push_back({std::move(either)});
  return {};
}

inline status mask_info::apply_token_type_ids(const tensor_view& q_types,
                                              const tensor_view& kv_types,
                                              token_type_combine combine, zero_token_type zero) {
  auto types = read_pair(q_types, kv_types, "q_token_types", "kv_token_types");
  if (!types) return types.failure();
  const auto without_zero = [](masks::shared_ids& ids) {
    std::vector<std::int32_t> kept = *ids;
    std::replace(kept.begin(), kept.end(), 0, -1);
    ids = std::make_shared<const std::vector<std::int32_t>>(std::move(kept));
  };
  const bool in_both = zero == zero_token_type::masked_in_both;
  if (in_both || zero == zero_token_type::masked_in_q) without_zero(types->q);
  if (in_both || zero == zero_token_type::masked_in_kv) without_zero(types->kv);
  switch (combine) {
    case token_type_combine::union_with: {
      mask_info same(masks::sizes{sizes_.batch, 1, sizes_.q_len, sizes_.kv_len});
      same.terms_.push_back({*std::move(types)});
      return unite(same);
    }
    case token_type_combine::intersect:
      terms_.push_back({*std::move(types)});
      return {};
    case token_type_combine::replace:
      sizes_.heads = 1;
      terms_.assign(1, {*types});
      segments_ = *std::move(types);
      positions_.reset();
      return {};
  }
  return masks::refusal("combine: is " + std::to_string(static_cast<int>(combine)) +
                        ", it can be 0 to 2");
}

inline void mask_info::keep_part(const masks::part& part) {
  // A part reaches outside only in apply_kv_lengths, whose box of lengths hides what is there.
  terms_ = masks::slice(terms_, sizes_, part);
  if (segments_) {
    segments_ = std::get<masks::same_id>(masks::slice(*segments_, sizes_, part).is);
  }
  if (positions_) {
    const masks::not_after old{positions_->q, positions_->kv};
    auto kept = std::get<masks::not_after>(masks::slice(old, sizes_, part).is);
    positions_ = id_pair{std::move(kept.q), std::move(kept.kv)};
  }
  sizes_.q_len = part.q_len;
  sizes_.kv_len = part.kv_len;
}

inline status mask_info::apply_kv_lengths(const masks::per_batch& kv_lengths, std::int64_t q_len,
                                          std::optional<std::int64_t> sliding_window) {
  if (q_len < 0 || q_len > sizes_.q_len) {
    return masks::refusal("q_len: is " + std::to_string(q_len) + ", the mask has " +
                          std::to_string(sizes_.q_len) + " rows");
  }
  if (sliding_window && (*sliding_window < 1 || *sliding_window > masks::most)) {
    return masks::refusal("sliding_window: is " + std::to_string(*sliding_window) +
                          ", it can be 1 to " + std::to_string(masks::most));
  }
  for (std::size_t b = 0; b < kv_lengths.size(); ++b) {
    const std::int64_t length = kv_lengths[static_cast<std::int64_t>(b)];
    if (length <= sizes_.q_len) continue;
    return masks::refusal("kv_lengths: entry " + std::to_string(b) + " is " +
                          std::to_string(length) + ", the mask has " +
                          std::to_string(sizes_.q_len) + " rows");
  }
  if (auto done = apply_lengths(std::nullopt, kv_lengths); !done) return done;
  masks::part part;
  const auto count = static_cast<std::int64_t>(kv_lengths.size());
  part.q_begin = masks::combined(count, [&](auto b) { return kv_lengths[b] - q_len; });
  part.q_len = q_len;
  part.kv_len = sliding_window ? std::min(*sliding_window, sizes_.kv_len) : sizes_.kv_len;
  if (sliding_window) {
    part.kv_begin = masks::combined(count, [&](auto b) {
      return std::clamp<std::int64_t>(kv_lengths[b] - part.kv_len, 0, sizes_.kv_len - part.kv_len);
    });
  }
  keep_part(part);
  return {};
}

inline status mask_info::keep_decode_row(std::int64_t index, std::int64_t left,
                                         std::int64_t right) {
  if (index < 0 || index >= sizes_.q_len) {
    return masks::refusal("index: is " + std::to_string(index) + ", the mask has " +
                          std::to_string(sizes_.q_len) + " rows");
  }
  if (auto done = apply_sliding_window(left, right); !done) return done;
  masks::part part;
  part.q_begin = index;
  part.q_len = 1;
  part.kv_len = std::min(left + right + 1, sizes_.kv_len);
  part.kv_begin = std::clamp<std::int64_t>(index - left, 0, sizes_.kv_len - part.kv_len);
  keep_part(part);
  return {};
}

inline status mask_info::keep_last_keys(std::int64_t count) {
  if (count < 0 || count > sizes_.kv_len) {
    return masks::refusal("count: is " + std::to_string(count) + ", the mask has " +
                          std::to_string(sizes_.kv_len) + " keys");
  }
  masks::part part;
  part.q_len = sizes_.q_len;
  part.kv_begin = sizes_.kv_len - count;
  part.kv_len = count;
  keep_part(part);
  return {};
}

}  // namespace tessera
