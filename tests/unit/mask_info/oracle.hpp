// A mask written out element by element, changed by the plain definition of each rule; and what an
// attention op sees given its tensors and options. Both know nothing of `mask_info`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/mask_info.hpp>

namespace tessera::test {

using ids = std::vector<std::int32_t>;

inline std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  std::int64_t quotient = 0;
  while ((quotient + 1) * b <= a) ++quotient;
  while (quotient * b > a) --quotient;
  return quotient;
}

/// A mask as a list of booleans.
struct oracle {
  using rule = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

  std::int64_t batch = 0, heads = 1, q_len = 0, kv_len = 0;
  std::vector<char> seen;

  oracle(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t kv)
      : batch(b), heads(h), q_len(q), kv_len(kv), seen(std::size_t(b * h * q * kv), 1) {}

  char& at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return seen[std::size_t(((b * heads + h) * q_len + i) * kv_len + j)];
  }
  char at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return const_cast<oracle*>(this)->at(b, h, i, j);
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < q_len; ++i) {
          for (std::int64_t j = 0; j < kv_len; ++j) visit(b, h, i, j);
        }
      }
    }
  }
  oracle& keep(const rule& holds) {
    each([&](auto b, auto h, auto i, auto j) {
      if (!holds(b, h, i, j)) at(b, h, i, j) = 0;
    });
    return *this;
  }
  oracle& add(const rule& holds) {
    each([&](auto b, auto h, auto i, auto j) {
      if (holds(b, h, i, j)) at(b, h, i, j) = 1;
    });
    return *this;
  }
  /// Row i, key j of the part are row i + q_begin[b], key j + kv_begin[b] of this.
  oracle part(const std::vector<std::int64_t>& q_begin, std::int64_t rows,
              const std::vector<std::int64_t>& kv_begin, std::int64_t keys) const {
    oracle cut(batch, heads, rows, keys);
    return cut.keep([&](auto b, auto h, auto i, auto j) {
      const std::int64_t row = i + q_begin[std::size_t(b)], key = j + kv_begin[std::size_t(b)];
      return row >= 0 && row < q_len && key >= 0 && key < kv_len && at(b, h, row, key) != 0;
    });
  }
};

/// Whether an op given `args` and `options` lets row i see key j: the definition of its options.
inline bool op_sees(const flash_attention_args& args, const flash_attention_options& options,
                    std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const auto length = [&](const tensor_view& lengths, std::int64_t whole) -> std::int64_t {
    if (!lengths.present()) return whole;
    return static_cast<const std::int32_t*>(lengths.data)[b * lengths.stride[0]];
  };
  const std::int64_t rows = length(args.seqlens_q, args.q.extent[1]);
  const std::int64_t keys = length(args.seqlens_k, args.k.extent[1]);
  if (i >= rows || j >= keys) return false;
  const std::int64_t at = options.causal_alignment == alignment::bottom_right ? i + keys - rows : i;
  if (options.causal && j > at) return false;
  if (options.window_left && j < at - *options.window_left) return false;
  if (options.window_right && j > at + *options.window_right) return false;
  if (args.q_segment_ids.present()) {
    const auto id = [&](const tensor_view& of, std::int64_t token) {
      return static_cast<const std::int32_t*>(of.data)[b * of.stride[0] + token * of.stride[1]];
    };
    const std::int32_t own = id(args.q_segment_ids, i);
    if (own < 0 || own != id(args.kv_segment_ids, j)) return false;
  }
  if (args.mask.present()) {
    const std::int64_t index[] = {b, h, i, j};
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (args.mask.extent[axis] > 1) offset += index[axis] * args.mask.stride[axis];
    }
    if (static_cast<const std::uint8_t*>(args.mask.data)[offset] == 0) return false;
  }
  return true;
}

/// A call of the mask's extents, tensors not filled.
inline flash_attention_args call_of(const mask_info& mask, std::int64_t batch = 0) {
  static float memory[1] = {};
  const std::int64_t entries = batch > 0 ? batch : mask.batch();
  flash_attention_args args;
  args.q = view(memory, {entries, mask.q_len(), mask.heads() > 1 ? mask.heads() : 2, 8});
  args.k = args.v = view(memory, {entries, mask.kv_len(), 1, 8});
  args.out = args.q;
  return args;
}

/// `mask` says what `truth` says: element by element, written out, as tiles, and inside a call.
inline void expect_says(const mask_info& mask, const oracle& truth, const std::string& what = "") {
  ASSERT_EQ(mask.batch(), truth.batch) << what;
  ASSERT_EQ(mask.heads(), truth.heads) << what;
  ASSERT_EQ(mask.q_len(), truth.q_len) << what;
  ASSERT_EQ(mask.kv_len(), truth.kv_len) << what;
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  const auto kept = mask.apply_to(args, options);
  ASSERT_TRUE(kept) << what << kept.message();
  const dense_mask written = mask.attention_mask();
  std::size_t wrong = 0;
  truth.each([&](auto b, auto h, auto i, auto j) {
    const bool expected = truth.at(b, h, i, j) != 0;
    const bool agrees = mask.visible(b, h, i, j) == expected &&
                        (written.at(b, h, i, j) != 0) == expected &&
                        op_sees(args, options, b, h, i, j) == expected;
    if (!agrees && wrong++ == 0) {
      ADD_FAILURE() << what << ": [" << b << "," << h << "," << i << "," << j << "] should be "
                    << expected << ", visible " << mask.visible(b, h, i, j) << ", written "
                    << int(written.at(b, h, i, j)) << ", op " << op_sees(args, options, b, h, i, j);
    }
  });
  EXPECT_EQ(wrong, 0u) << what;
}

/// No tile that `mask` calls full hides anything, none that it skips shows anything.
inline void expect_tiles(const mask_info& mask, const oracle& truth, std::int64_t rows,
                         std::int64_t keys, const std::string& what = "") {
  for (std::int64_t b = 0; b < truth.batch; ++b) {
    for (std::int64_t h = 0; h < truth.heads; ++h) {
      for (std::int64_t i = 0; i < truth.q_len; i += rows) {
        for (std::int64_t j = 0; j < truth.kv_len; j += keys) {
          const masks::tile tile{
              b, h, i, std::min(i + rows, truth.q_len), j, std::min(j + keys, truth.kv_len)};
          bool some = false, all = true;
          for (std::int64_t x = tile.q_begin; x < tile.q_end; ++x) {
            for (std::int64_t y = tile.kv_begin; y < tile.kv_end; ++y) {
              some = some || truth.at(b, h, x, y) != 0;
              all = all && truth.at(b, h, x, y) != 0;
            }
          }
          const tile_state state = mask.classify(tile);
          EXPECT_FALSE(state == tile_state::full && !all) << what << " " << i << " " << j;
          EXPECT_FALSE(state == tile_state::skip && some) << what << " " << i << " " << j;
        }
      }
    }
  }
}

/// The value of a result that must hold one.
template <class Value>
Value need(result<Value> made) {
  EXPECT_TRUE(made) << made.message();
  return std::move(made).value();
}

/// [batch, rest] over the ids.
inline tensor_view ids_view(const ids& values, std::int64_t batch) {
  return view(values.data(), {batch, std::int64_t(values.size()) / batch});
}

/// Whether the call was given no mask tensor: the mask went in as options and vectors.
inline bool lowered_without_tensor(const mask_info& mask) {
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  const auto kept = mask.apply_to(args, options);
  EXPECT_TRUE(kept) << kept.message();
  return !args.mask.present();
}

}  // namespace tessera::test
