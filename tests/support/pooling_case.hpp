// A mean pooling call as plain data, and random legal calls biased to edges: no token, one token,
// sizes next to those of tiles, pieces and cache lines, gaps and turned axes in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>

#include "guarded_tensor.hpp"
#include "random.hpp"

namespace tessera::support {

/// What a mask holds.
enum class mask_content : std::uint8_t { none, zeros_and_ones, padding, weights, signed_weights };

struct pooling_case {
  mean_pooling_op op = mean_pooling_op::mean_pooling;
  dtype type = dtype::f32;
  std::int64_t batch = 1;
  std::int64_t tokens = 1;  ///< packed: in total
  std::int64_t heads = 1;   ///< chunks only
  std::int64_t columns = 1;
  std::int64_t chunk_size = mean_pooling_options{}.chunk_size;
  bool packed = false;
  std::vector<std::int64_t> lengths;  ///< packed; may end before `tokens`
  mask_content mask = mask_content::none;
  dtype mask_type = dtype::f32;
  bool masked_out_entry = false;  ///< the first entry has no token of weight
  bool with_x = false;            ///< backward: x is given too
  tensor_layout tokens_layout{}, means_layout{}, mask_layout{};
  std::uint64_t seed = 1;
};

/// What random cases may be.
struct pooling_limits {
  std::optional<dtype> type{};
  std::optional<pooling_pass> pass{};
  double elements = 2e4;  ///< of the tokens, about
};

/// A row-major layout with random gaps, turned axes and another order of the outer axes; the last
/// axis keeps stride 1.
inline tensor_layout random_layout(random_source& random, int rank) {
  tensor_layout layout;
  if (random.chance(0.4)) return layout;
  layout.shift = static_cast<std::int8_t>(random.below(4));
  if (rank > 2 && random.chance(0.3)) std::swap(layout.order[0], layout.order[1]);
  for (int axis = 0; axis < rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (random.chance(0.3)) layout.padding[at] = static_cast<std::int8_t>(random.below(5));
    if (axis + 1 < rank) layout.reversed[at] = random.chance(0.1);
  }
  return layout;
}

/// Cuts `tokens` into sequences, some of them empty, and leaves some tokens behind the last one.
inline std::vector<std::int64_t> random_lengths(random_source& random, std::int64_t tokens) {
  std::vector<std::int64_t> lengths;
  const std::int64_t count = random.chance(0.1) ? 0 : random.between(1, 9);
  std::int64_t left = tokens - (random.chance(0.4) ? random.below(tokens + 1) / 2 : 0);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t length = n + 1 == count ? left : random.below(left + 1);
    if (random.chance(0.25)) length = 0;
    lengths.push_back(length);
    left -= length;
  }
  return lengths;
}

inline pooling_case random_pooling_case(random_source& random, const pooling_limits& limits = {}) {
  pooling_case one;
  const bool backward = limits.pass ? *limits.pass == pooling_pass::backward : random.chance(0.4);
  const bool chunks = random.chance(0.4);
  one.op = backward
               ? (chunks ? mean_pooling_op::mean_pooling_chunks_backward
                         : mean_pooling_op::mean_pooling_backward)
               : (chunks ? mean_pooling_op::mean_pooling_chunks : mean_pooling_op::mean_pooling);
  one.type = limits.type ? *limits.type : random.pick({dtype::f32, dtype::f16, dtype::bf16});
  one.packed = random.chance(0.4);
  one.columns = random.chance(0.3) ? random.pick<std::int64_t>({1, 15, 16, 17, 31, 32, 33, 64, 65})
                                   : random.between(1, 160);
  one.heads = chunks ? random.between(1, 4) : 1;
  one.batch = one.packed ? 1 : random.pick<std::int64_t>({0, 1, 1, 2, 3, 5});
  const double row =
      static_cast<double>(one.columns * one.heads * std::max<std::int64_t>(one.batch, 1));
  const auto most = static_cast<std::int64_t>(std::max(2.0, limits.elements / row));
  one.tokens = random.chance(0.3)
                   ? random.pick<std::int64_t>({0, 1, 2, 7, 8, 9, 31, 32, 33, 511, 512, 513, 1030})
                   : random.below(most);
  one.tokens = std::min(one.tokens, std::max<std::int64_t>(most, 1100));
  if (chunks) one.chunk_size = random.pick<std::int64_t>({1, 2, 7, 8, 32, 33, 600, 100000});
  if (one.packed) one.lengths = random_lengths(random, one.tokens);
  if (!chunks && !one.packed && random.chance(0.5)) {
    one.mask = random.pick({mask_content::zeros_and_ones, mask_content::padding,
                            mask_content::weights, mask_content::signed_weights});
    one.mask_type = random.pick({dtype::f32, dtype::f16, dtype::bf16, dtype::u8});
    one.masked_out_entry = random.chance(0.4);
  }
  one.with_x = backward && random.chance(0.3);
  const int rank = chunks ? 4 : one.packed ? 2 : 3;
  one.tokens_layout = random_layout(random, rank);
  one.means_layout = random_layout(random, chunks ? 4 : 2);
  one.mask_layout = random_layout(random, 2);
  one.seed = random.bits();
  return one;
}

}  // namespace tessera::support
