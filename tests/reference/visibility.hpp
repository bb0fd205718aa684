// Who sees whom: lengths and masks of an attention call, straight from the definitions.
#pragma once

#include <cmath>
#include <cstdint>

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

}  // namespace tessera::reference
