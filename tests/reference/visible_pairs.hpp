// How many pairs of a query and a key see each other in an attention call.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "operations.hpp"
#include "visibility.hpp"

namespace tessera::reference {

/// Exact counts for one call.
struct attention_counts {
  double visible_pairs = 0;  ///< (query head, query row, key) triples that enter a softmax
  double flops = 0;          ///< 2 (D + Dv) per visible pair
  double keys = 0;           ///< of all entries
  double seen_keys = 0;      ///< those that some row sees
};

namespace detail {

/// Half-open interval of keys.
struct key_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
};

/// Keys that row i sees by lengths, diagonal and window.
inline key_range interval_of(const used_rows& rows, const flash_attention_options& options,
                             std::int64_t i) {
  const bool bottom_right = options.causal_alignment == alignment::bottom_right;
  const std::int64_t position = bottom_right ? i + rows.k_length - rows.q_length : i;
  key_range range{0, rows.k_length};
  if (options.causal) range.end = std::min(range.end, position + 1);
  if (options.window_right && *options.window_right < rows.k_length) {
    range.end = std::min(range.end, position + *options.window_right + 1);
  }
  if (options.window_left && *options.window_left < position) {
    range.begin = position - *options.window_left;
  }
  range.end = std::max<std::int64_t>(range.end, 0);
  range.begin = std::min(range.begin, range.end);
  return range;
}

/// Pairs of entry b that some tensor does not hide, over all heads. Heads that share every tensor
/// are counted once.
inline double unhidden_pairs(const flash_attention_args& args,
                             const flash_attention_options& options, const used_rows& rows,
                             std::int64_t b, std::int64_t heads) {
  const auto per_head = [](const tensor_view& view) {
    return view.present() && view.extent[1] > 1 && view.stride[1] != 0;
  };
  const bool differ = per_head(args.mask) || per_head(args.bias_pre) || per_head(args.bias_post);
  const std::int64_t distinct = differ ? heads : std::min<std::int64_t>(heads, 1);
  double pairs = 0;
  for (std::int64_t h = 0; h < distinct; ++h) {
    for (std::int64_t i = 0; i < rows.q_length; ++i) {
      const key_range range = interval_of(rows, options, i);
      for (std::int64_t j = range.begin; j < range.end; ++j) {
        if (sees(args, options, rows, b, h, i, j)) pairs += 1;
      }
    }
  }
  return differ ? pairs : pairs * static_cast<double>(heads);
}

}  // namespace detail

/// Counts one valid call; looks at lengths, masks, segments and minus infinities in the biases.
inline attention_counts counts_of(const flash_attention_args& args,
                                  const flash_attention_options& options) {
  const flash_extents size = extents_of(args);
  const bool hidden = args.mask.present() || args.q_segment_ids.present() ||
                      args.bias_pre.present() || args.bias_post.present();
  attention_counts total;
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const used_rows rows = rows_of(args, b);
    detail::key_range seen{rows.k_length, 0};
    double pairs = 0;
    for (std::int64_t i = 0; i < rows.q_length; ++i) {
      const detail::key_range range = detail::interval_of(rows, options, i);
      if (range.size() == 0) continue;
      pairs += static_cast<double>(range.size());
      seen = {std::min(seen.begin, range.begin), std::max(seen.end, range.end)};
    }
    pairs *= static_cast<double>(size.q_heads);
    if (hidden) pairs = detail::unhidden_pairs(args, options, rows, b, size.q_heads);
    total.visible_pairs += pairs;
    total.seen_keys += static_cast<double>(seen.size());
  }
  total.flops = total.visible_pairs * 2.0 * static_cast<double>(size.head_dim + size.v_head_dim);
  total.keys =
      static_cast<double>(size.k_rows) * (size.packed ? 1.0 : static_cast<double>(size.entries));
  return total;
}

/// Says so of a call whose bytes count `held` keys and values of `heads` heads: those that no row
/// sees are none.
inline void put_counts(const attention_counts& counts, double held, std::int64_t heads,
                       const tensor_view& k, const tensor_view& v, call_work& work) {
  const auto width_of = [](const tensor_view& rows) {
    const auto last = static_cast<std::size_t>(rows.rank - 1);
    return static_cast<double>(rows.extent[last]) * static_cast<double>(size_of(rows.type));
  };
  work.flops = counts.flops;
  work.visible_pairs = counts.visible_pairs;
  work.bytes -=
      (held - counts.seen_keys) * static_cast<double>(heads) * (width_of(k) + width_of(v));
}

}  // namespace tessera::reference
