// What an attention call costs on paper: visible pairs, floating point operations, bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "tests/reference/visibility.hpp"

namespace tessera::bench {

/// Exact counts for one call.
struct work {
  double visible_pairs = 0;  ///< (query head, query row, key) triples that enter a softmax
  double flops = 0;          ///< 2 (D + Dv) per visible pair
  double bytes = 0;          ///< every input and output once; broadcast axes count once
  double touched_bytes = 0;  ///< the same, but only those keys and values that some row sees
};

namespace detail {

/// Half-open interval of keys.
struct key_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
};

/// Keys that row i sees by lengths, diagonal and window.
inline key_range interval_of(const reference::used_rows& rows,
                             const flash_attention_options& options, std::int64_t i) {
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
                             const flash_attention_options& options,
                             const reference::used_rows& rows, std::int64_t b, std::int64_t heads) {
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
        if (reference::sees(args, options, rows, b, h, i, j)) pairs += 1;
      }
    }
  }
  return differ ? pairs : pairs * static_cast<double>(heads);
}

inline double bytes_of(const tensor_view& view) {
  if (!view.present()) return 0;
  double count = static_cast<double>(size_of(view.type));
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (view.stride[a] != 0 || view.extent[a] == 0) count *= static_cast<double>(view.extent[a]);
  }
  return count;
}

}  // namespace detail

/// Counts one valid call; looks at lengths, masks, segments and minus infinities in the biases.
inline work work_of(const flash_attention_args& args, const flash_attention_options& options) {
  const reference::flash_extents size = reference::extents_of(args);
  const bool hidden = args.mask.present() || args.q_segment_ids.present() ||
                      args.bias_pre.present() || args.bias_post.present();
  work total;
  double seen_keys = 0;
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const reference::used_rows rows = reference::rows_of(args, b);
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
    seen_keys += static_cast<double>(seen.size());
  }
  total.flops = total.visible_pairs * 2.0 * static_cast<double>(size.head_dim + size.v_head_dim);

  const double keys_and_values = detail::bytes_of(args.k) + detail::bytes_of(args.v);
  for (const tensor_view* view :
       {&args.q, &args.k, &args.v, &args.bias_pre, &args.bias_post, &args.mask, &args.q_segment_ids,
        &args.kv_segment_ids, &args.sinks, &args.cu_seqlens_q, &args.cu_seqlens_k, &args.seqlens_q,
        &args.seqlens_k, &args.out, &args.lse, &args.row_max, &args.weights, &args.dropout_mask}) {
    total.bytes += detail::bytes_of(*view);
  }
  const double all_keys =
      static_cast<double>(size.k_rows) * (size.packed ? 1.0 : static_cast<double>(size.entries));
  const double share = all_keys > 0 ? seen_keys / all_keys : 0.0;
  total.touched_bytes = total.bytes - keys_and_values * (1.0 - share);
  return total;
}

}  // namespace tessera::bench
