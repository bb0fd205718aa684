// Who sees whom: lengths and masks of an attention call, straight from the definitions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// Extents of a call. Packed: `entries` sequences share `q_rows` rows and `k_rows` keys. Dense:
/// each of `entries` batch entries has that many.
struct flash_extents {
  bool packed = false;
  std::int64_t entries = 0;
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;

  std::int64_t kv_head_of(std::int64_t head) const { return head / (q_heads / kv_heads); }
};

inline flash_extents extents_of(const flash_attention_args& args) {
  const auto& q = args.q.extent;
  const auto& k = args.k.extent;
  const auto& v = args.v.extent;
  if (args.cu_seqlens_q.present()) {
    return {true, args.cu_seqlens_q.extent[0] - 1, q[0], k[0], q[1], k[1], q[2], v[2]};
  }
  return {false, q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

/// The part of q and k that entry `b` uses: first row and number of rows.
struct used_rows {
  std::int64_t q_begin = 0;
  std::int64_t q_length = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_length = 0;
};

inline used_rows rows_of(const flash_attention_args& args, std::int64_t b) {
  const auto value = [](const tensor_view& view, std::int64_t index) {
    return static_cast<std::int64_t>(at(view, index));
  };
  if (args.cu_seqlens_q.present()) {
    const std::int64_t q_begin = value(args.cu_seqlens_q, b);
    const std::int64_t k_begin = value(args.cu_seqlens_k, b);
    return {q_begin, value(args.cu_seqlens_q, b + 1) - q_begin, k_begin,
            value(args.cu_seqlens_k, b + 1) - k_begin};
  }
  return {0, args.seqlens_q.present() ? value(args.seqlens_q, b) : args.q.extent[1], 0,
          args.seqlens_k.present() ? value(args.seqlens_k, b) : args.k.extent[1]};
}

/// True if row i of entry b sees key j by lengths, diagonal and window. i and j are local.
inline bool in_interval(const used_rows& rows, const flash_attention_options& options,
                        std::int64_t i, std::int64_t j) {
  if (i >= rows.q_length || j >= rows.k_length) return false;
  const bool bottom_right = options.causal_alignment == alignment::bottom_right;
  const std::int64_t position = bottom_right ? i + rows.k_length - rows.q_length : i;
  if (options.causal && j > position) return false;
  if (options.window_left && position - j > *options.window_left) return false;
  if (options.window_right && j - position > *options.window_right) return false;
  return true;
}

/// True if query head h, row i of entry b sees key j: the interval, the mask tensor, the segments,
/// and no bias of minus infinity.
inline bool sees(const flash_attention_args& args, const flash_attention_options& options,
                 const used_rows& rows, std::int64_t b, std::int64_t h, std::int64_t i,
                 std::int64_t j) {
  if (!in_interval(rows, options, i, j)) return false;
  if (args.mask.present() && at(args.mask, b, h, i, j) == 0.0) return false;
  if (args.q_segment_ids.present()) {
    const tensor_view& key_ids =
        args.kv_segment_ids.present() ? args.kv_segment_ids : args.q_segment_ids;
    const double id = at(args.q_segment_ids, b, i);
    if (id < 0.0 || id != at(key_ids, b, j)) return false;
  }
  const auto hides = [&](const tensor_view& bias) {
    return bias.present() && at(bias, b, h, i, j) == -HUGE_VAL;
  };
  return !hides(args.bias_pre) && !hides(args.bias_post);
}

/// Whether a mask functor lets row i of entry b and head h see key j.
using visible_function =
    std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

/// Where it is said which elements of these tensors some row sees.
struct visible_elements {
  seen_elements *q, *k, *v, *bias_pre, *bias_post;
};

/// Says it for a whole call. `visible`, if given, hides more than its tensors do.
inline void mark_visible(const flash_attention_args& args, const flash_attention_options& options,
                         const visible_elements& seen, const visible_function& visible = {}) {
  const flash_extents size = extents_of(args);
  *seen.q = seen_elements(args.q), *seen.k = seen_elements(args.k);
  *seen.v = seen_elements(args.v);
  *seen.bias_pre = seen_elements(args.bias_pre), *seen.bias_post = seen_elements(args.bias_post);
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const used_rows rows = rows_of(args, b);
    const auto mark_row = [&](seen_elements& of, const tensor_view& view, std::int64_t row,
                              std::int64_t head) {
      const std::int64_t begin =
          size.packed ? row * view.stride[0] + head * view.stride[1]
                      : b * view.stride[0] + row * view.stride[1] + head * view.stride[2];
      of.mark(begin, view.extent[static_cast<std::size_t>(view.rank - 1)]);
    };
    const auto mark_bias = [&](seen_elements& of, const tensor_view& bias,
                               const std::array<std::int64_t, 4>& index) {
      if (bias.present()) of.mark(offset_of(bias, index));
    };
    for (std::int64_t h = 0; h < size.q_heads; ++h) {
      for (std::int64_t i = 0; i < rows.q_length; ++i) {
        for (std::int64_t j = 0; j < rows.k_length; ++j) {
          if (!sees(args, options, rows, b, h, i, j)) continue;
          if (visible && !visible(b, h, i, j)) continue;
          mark_row(*seen.q, args.q, rows.q_begin + i, h);
          mark_row(*seen.k, args.k, rows.k_begin + j, size.kv_head_of(h));
          mark_row(*seen.v, args.v, rows.k_begin + j, size.kv_head_of(h));
          mark_bias(*seen.bias_pre, args.bias_pre, {b, h, i, j});
          mark_bias(*seen.bias_post, args.bias_post, {b, h, i, j});
        }
      }
    }
  }
}

}  // namespace tessera::reference
