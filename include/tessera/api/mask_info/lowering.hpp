// How a `mask_info` enters a call: what an op has as an option or as vectors of length S becomes
// that, the rest becomes one u8 mask.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include <tessera/api/mask_info/build.hpp>
#include <tessera/api/mask_info/declaration.hpp>
#include <tessera/api/mask_info/query.hpp>

namespace tessera {

namespace masks {

/// The AND of all terms of a mask by kind.
struct merged_terms {
  std::vector<std::int64_t> low, high;                         // of the bands, per entry
  std::vector<std::int64_t> q_begin, q_end, kv_begin, kv_end;  // of the boxes, per entry
  std::vector<same_id> ids;
  std::vector<chunk> chunks;
  std::vector<term> rest;
};

inline merged_terms merge(const std::vector<term>& terms, const sizes& of) {
  const auto entries = static_cast<std::size_t>(of.batch);
  merged_terms merged;
  merged.low.assign(entries, -no_bound);
  merged.high.assign(entries, no_bound);
  merged.q_begin.assign(entries, 0);
  merged.kv_begin.assign(entries, 0);
  merged.q_end.assign(entries, of.q_len);
  merged.kv_end.assign(entries, of.kv_len);
  const auto raise = [&](std::vector<std::int64_t>& to, const per_batch& from) {
    for (std::size_t b = 0; b < entries; ++b) {
      to[b] = std::max(to[b], from[static_cast<std::int64_t>(b)]);
    }
  };
  const auto lower = [&](std::vector<std::int64_t>& to, const per_batch& from) {
    for (std::size_t b = 0; b < entries; ++b) {
      to[b] = std::min(to[b], from[static_cast<std::int64_t>(b)]);
    }
  };
  for (const term& condition : terms) {
    if (const auto* edges = std::get_if<band>(&condition.is)) {
      raise(merged.low, edges->low);
      lower(merged.high, edges->high);
    } else if (const auto* lengths = std::get_if<box>(&condition.is)) {
      raise(merged.q_begin, lengths->q_begin);
      raise(merged.kv_begin, lengths->kv_begin);
      lower(merged.q_end, lengths->q_end);
      lower(merged.kv_end, lengths->kv_end);
    } else if (const auto* pair = std::get_if<same_id>(&condition.is)) {
      merged.ids.push_back(*pair);
    } else if (const auto* chunks = std::get_if<chunk>(&condition.is)) {
      merged.chunks.push_back(*chunks);
    } else {
      merged.rest.push_back(condition);
    }
  }
  for (std::size_t b = 0; b < entries; ++b) {
    merged.q_end[b] = std::max<std::int64_t>(merged.q_end[b], 0);
    merged.kv_end[b] = std::max<std::int64_t>(merged.kv_end[b], 0);
  }
  return merged;
}

/// The chunk index of each row and key as ids, counted from the least, so that none is negative.
/// Only the side with the larger offset can be cut off at `most`, where the other side never is.
inline same_id ids_of(const chunk& chunks, const sizes& of) {
  const auto number = [&](std::int64_t length, const per_batch& offset) {
    std::vector<std::int32_t> ids;
    ids.reserve(static_cast<std::size_t>(of.batch * length));
    for (std::int64_t b = 0; b < of.batch; ++b) {
      const std::int64_t least =
          floor_divide(std::min(chunks.q_offset[b], chunks.kv_offset[b]), chunks.size);
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t index = floor_divide(i + offset[b], chunks.size) - least;
        ids.push_back(static_cast<std::int32_t>(std::min(index, most)));
      }
    }
    return std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
  };
  return {number(of.q_len, chunks.q_offset), number(of.kv_len, chunks.kv_offset)};
}

/// Ids that are equal where both pairs are: pairs of ids numbered by first occurrence.
inline same_id both(const same_id& a, const same_id& b, const sizes& of) {
  std::vector<std::int32_t> q(a.q->size()), kv(a.kv->size());
  for (std::int64_t entry = 0; entry < of.batch; ++entry) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
    const auto number = [&](const shared_ids& first, const shared_ids& second,
                            std::vector<std::int32_t>& out, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i) {
        const auto at = static_cast<std::size_t>(entry * length + i);
        const std::pair pair{(*first)[at], (*second)[at]};
        const bool padding = pair.first < 0 || pair.second < 0;
        out[at] =
            padding
                ? -1
                : known.try_emplace(pair, static_cast<std::int32_t>(known.size())).first->second;
      }
    };
    number(a.q, b.q, q, of.q_len);
    number(a.kv, b.kv, kv, of.kv_len);
  }
  return {std::make_shared<const std::vector<std::int32_t>>(std::move(q)),
          std::make_shared<const std::vector<std::int32_t>>(std::move(kv))};
}

/// The number that is in all of `values`, if it can be a window side or is no bound at all.
inline std::optional<std::int64_t> uniform_side(const std::vector<std::int64_t>& values) {
  if (values.empty()) return no_bound;
  const std::int64_t first = values.front();
  for (const std::int64_t each : values) {
    if (each != first && !(each >= no_bound / 2 && first >= no_bound / 2)) return std::nullopt;
  }
  if (first < 0) return std::nullopt;
  return first >= no_bound / 2 ? no_bound : first;
}

/// The sides of the band around one alignment's diagonal; unset where an op cannot express them.
struct band_sides {
  alignment aligned = alignment::bottom_right;
  std::optional<std::int64_t> left, right;

  int count() const noexcept { return (left ? 1 : 0) + (right ? 1 : 0); }
};

inline band_sides sides_of(const merged_terms& merged, alignment aligned) {
  std::vector<std::int64_t> left(merged.low.size()), right(merged.low.size());
  for (std::size_t b = 0; b < left.size(); ++b) {
    const std::int64_t diagonal =
        aligned == alignment::top_left ? 0 : merged.kv_end[b] - merged.q_end[b];
    left[b] = diagonal - merged.low[b];
    right[b] = merged.high[b] - diagonal;
  }
  return {aligned, uniform_side(left), uniform_side(right)};
}

inline status check_free(const flash_attention_args& args, const flash_attention_options& options) {
  for (const auto& [tensor, name] : {std::pair{&args.mask, "mask"},
                                     {&args.q_segment_ids, "q_segment_ids"},
                                     {&args.kv_segment_ids, "kv_segment_ids"},
                                     {&args.seqlens_q, "seqlens_q"},
                                     {&args.seqlens_k, "seqlens_k"},
                                     {&args.cu_seqlens_q, "cu_seqlens_q"},
                                     {&args.cu_seqlens_k, "cu_seqlens_k"}}) {
    if (tensor->present()) {
      return refusal(std::string(name) + ": is given besides a mask_info, which sets it or cannot");
    }
  }
  if (options.causal || options.window_left || options.window_right) {
    return refusal(std::string(options.causal        ? "causal"
                               : options.window_left ? "window_left"
                                                     : "window_right") +
                   ": is given besides a mask_info, which sets it");
  }
  return {};
}

inline status check_extents(const flash_attention_args& args, const sizes& of) {
  const auto differs = [](const char* tensor, const char* what, std::int64_t has,
                          std::int64_t mask) {
    return refusal(std::string(tensor) + ": " + what + " is " + std::to_string(has) +
                   ", the mask has " + std::to_string(mask));
  };
  if (args.q.rank != 4) return differs("q", "rank", args.q.rank, 4);
  if (args.k.rank != 4) return differs("k", "rank", args.k.rank, 4);
  const std::int64_t batch = args.q.extent[0], heads = args.q.extent[2];
  if (batch != of.batch && of.batch != 1) return differs("q", "batch", batch, of.batch);
  if (args.q.extent[1] != of.q_len) return differs("q", "length", args.q.extent[1], of.q_len);
  if (args.k.extent[1] != of.kv_len) return differs("k", "length", args.k.extent[1], of.kv_len);
  if (of.heads != 1 && heads != of.heads) return differs("q", "number of heads", heads, of.heads);
  return {};
}

/// Makes views that live as long as the storage; entries repeat where the mask has one.
class lowering {
 public:
  lowering(const sizes& of, std::int64_t batch, mask_storage& storage)
      : of_(of), batch_(batch), storage_(storage) {}

  tensor_view ids(const shared_ids& values, std::int64_t length) {
    const auto* data = storage_.keep<std::vector<std::int32_t>>(values)->data();
    return tessera::view(data, {batch_, length}, {of_.batch == 1 ? 0 : length, 1});
  }
  tensor_view lengths(const std::vector<std::int64_t>& each) {
    std::vector<std::int32_t> values;
    for (std::int64_t b = 0; b < batch_; ++b) {
      values.push_back(
          static_cast<std::int32_t>(each[of_.batch == 1 ? 0 : static_cast<std::size_t>(b)]));
    }
    const auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(values));
    return tessera::view(storage_.keep<std::vector<std::int32_t>>(kept)->data(), {batch_});
  }
  tensor_view mask(const dense& visible_pairs) {
    const auto* data = storage_.keep<std::vector<std::uint8_t>>(visible_pairs.visible)->data();
    const auto& [batch, heads, q_len, kv_len] = visible_pairs.extent;
    return tessera::view(data, {batch, heads, q_len, kv_len});
  }

 private:
  sizes of_;
  std::int64_t batch_;
  mask_storage& storage_;
};

/// What no option expresses, as one tensor: as it is where it is one already.
inline dense rest_of(const std::vector<term>& rest, const sizes& of) {
  if (rest.size() == 1) {
    if (const auto* only = std::get_if<dense>(&rest.front().is)) return *only;
  }
  dense_mask written = written_out(rest, of);
  return {std::make_shared<const std::vector<std::uint8_t>>(std::move(written.visible)),
          {of.batch, of.heads, of.q_len, of.kv_len}};
}

/// All equalities as one pair of ids. Chunks that hold every token say nothing and are left out.
inline std::optional<same_id> ids_of(const merged_terms& merged, const sizes& of) {
  std::vector<same_id> pairs = merged.ids;
  for (const chunk& chunks : merged.chunks) pairs.push_back(ids_of(chunks, of));
  std::optional<same_id> all;
  for (const same_id& pair : pairs) {
    const auto only_zeros = [](const shared_ids& ids) {
      return std::all_of(ids->begin(), ids->end(), [](std::int32_t id) { return id == 0; });
    };
    if (only_zeros(pair.q) && only_zeros(pair.kv)) continue;
    all = all ? both(*all, pair, of) : pair;
  }
  return all;
}

}  // namespace masks

inline result<mask_storage> mask_info::apply_to(flash_attention_args& args,
                                                flash_attention_options& options) const {
  if (auto done = masks::check_free(args, options); !done) return done;
  if (auto done = masks::check_extents(args, sizes_); !done) return done;
  masks::merged_terms merged = masks::merge(terms_, sizes_);
  flash_attention_args masked = args;
  mask_storage storage;
  masks::lowering to(sizes_, args.q.extent[0], storage);

  const auto shorter = [](const std::vector<std::int64_t>& ends, std::int64_t length) {
    return std::any_of(ends.begin(), ends.end(), [&](auto end) { return end < length; });
  };
  if (shorter(merged.q_end, sizes_.q_len)) masked.seqlens_q = to.lengths(merged.q_end);
  if (shorter(merged.kv_end, sizes_.kv_len)) masked.seqlens_k = to.lengths(merged.kv_end);
  const auto begins_late = [](auto begin) { return begin > 0; };
  if (std::any_of(merged.q_begin.begin(), merged.q_begin.end(), begins_late) ||
      std::any_of(merged.kv_begin.begin(), merged.kv_begin.end(), begins_late)) {
    merged.rest.push_back(
        {masks::box{merged.q_begin, sizes_.q_len, merged.kv_begin, sizes_.kv_len}});
  }

  masks::band_sides sides = masks::sides_of(merged, alignment::bottom_right);
  const masks::band_sides top_left = masks::sides_of(merged, alignment::top_left);
  if (top_left.count() > sides.count()) sides = top_left;
  if (sides.count() < 2 && !merged.low.empty()) {
    merged.rest.push_back(
        {masks::band{sides.left ? -masks::no_bound : masks::per_batch(merged.low),
                     sides.right ? masks::no_bound : masks::per_batch(merged.high)}});
  }
  flash_attention_options with = options;
  with.causal_alignment = sides.aligned;
  with.causal = sides.right == 0;
  if (sides.left && *sides.left < masks::no_bound) with.window_left = sides.left;
  if (sides.right && *sides.right > 0 && *sides.right < masks::no_bound) {
    with.window_right = sides.right;
  }

  if (const auto ids = masks::ids_of(merged, sizes_)) {
    masked.q_segment_ids = to.ids(ids->q, sizes_.q_len);
    masked.kv_segment_ids = to.ids(ids->kv, sizes_.kv_len);
  }
  if (!merged.rest.empty()) masked.mask = to.mask(masks::rest_of(merged.rest, sizes_));
  args = masked;
  options = with;
  return storage;
}

}  // namespace tessera
