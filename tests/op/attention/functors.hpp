// User functors, and calls that use them: the same text for the oracle, the CPU and the GPU.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

#include "tests/support/flash_cases.hpp"

namespace tessera::support {

/// Attention with linear biases: a slope per head times the distance from the aligned position.
struct alibi {
  static constexpr int most_heads = 16;
  float slopes[most_heads] = {};  // NOLINT: std::array's operator[] is no device function
  TESSERA_HD float distance_factor(const position& row) const { return -slopes[row.head]; }
  TESSERA_HD float operator()(float s, const position& at) const {
    return s + at.distance_times(distance_factor(at));
  }
  TESSERA_HD double operator()(double s, const position& at) const {
    return s -
           static_cast<double>(slopes[at.head]) * static_cast<double>(at.query_position - at.key);
  }
};

/// A learned table of biases by distance, clipped at its ends.
struct relative_table {
  static constexpr std::int64_t reach = 8;
  float bias[2 * reach + 1] = {};  // NOLINT: as above
  template <class Real>
  TESSERA_HD Real operator()(Real s, const position& at) const {
    std::int64_t distance = at.key - at.query_position;
    if (distance < -reach) distance = -reach;
    if (distance > reach) distance = reach;
    return s + static_cast<Real>(bias[distance + reach]);
  }
};

/// Keys of the same document only. The numbers lie where the functor runs.
struct document_mask {
  const int* document = nullptr;
  std::size_t count = 0;
  TESSERA_HD bool operator()(const position& at) const {
    return document[at.query] == document[at.key];
  }
};

/// A prefix that every row sees, causal behind it. Says for whole tiles what it says for elements.
struct prefix_lm {
  std::int64_t prefix = 0;
  std::int64_t offset = 0;  ///< aligned position of row 0
  TESSERA_HD bool operator()(const position& at) const {
    return at.key < prefix || at.key <= at.query + offset;
  }
  TESSERA_HD prim::tile_visibility classify(const prim::score_tile& tile) const {
    using prim::tile_visibility;
    if (tile.key_end <= prefix || tile.key_end - 1 <= tile.query_begin + offset) {
      return tile_visibility::full;
    }
    const bool some = tile.key_begin < prefix || tile.key_begin <= tile.query_end - 1 + offset;
    return some ? tile_visibility::partial : tile_visibility::skip;
  }
};

struct keeps_all {
  TESSERA_HD bool operator()(const position&) const { return true; }
};
struct keeps_logits {
  template <class Real>
  TESSERA_HD Real operator()(Real s, const position&) const {
    return s;
  }
};

/// The functors as the oracle calls them.
template <class Logits, class Mask>
struct oracle_hooks {
  Logits logits_functor;
  Mask mask_functor;
  std::vector<std::int64_t> offsets;  ///< aligned position of row 0, by entry

  position at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return {b, static_cast<int>(h), i, j, i + offsets[static_cast<std::size_t>(b)]};
  }
  template <class Real>
  Real logits(Real s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return logits_functor(s, at(b, h, i, j));
  }
  bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return mask_functor(at(b, h, i, j));
  }
};

inline std::vector<std::int64_t> offsets_of(const flash_case& example) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t b = 0; b < example.batch; ++b) {
    const auto entry = static_cast<std::size_t>(b);
    const std::int64_t q = example.q_lengths.empty() ? example.q_len : example.q_lengths[entry];
    const std::int64_t k = example.k_lengths.empty() ? example.kv_len : example.k_lengths[entry];
    const bool bottom_right = example.options.causal_alignment == alignment::bottom_right;
    offsets.push_back(bottom_right ? k - q : 0);
  }
  return offsets;
}

/// Generated calls with functors; each hands `check(call, logits functor, mask functor)` a number
/// of calls within the limits.
struct functor_calls {
  case_limits limits{};
  std::uint64_t count = 15;

  template <class Check>
  void plain(const Check& check) const {
    each(21, 2 * count, [&](const flash_case& example, random_source&) {
      check(example, keeps_logits{}, keeps_all{});
    });
  }

  template <class Check>
  void with_alibi(const Check& check) const {
    each(22, count, [&](flash_case example, random_source& random) {
      while (example.q_heads > alibi::most_heads) example = random_case(random, limits);
      alibi modifier;
      for (int head = 0; head < alibi::most_heads; ++head) {
        modifier.slopes[head] = std::exp2(-0.5f * static_cast<float>(head + 1));
      }
      check(example, modifier, keeps_all{});
    });
  }

  template <class Check>
  void with_relative_table(const Check& check) const {
    each(23, count, [&](const flash_case& example, random_source& random) {
      check(example, random_table(random), keeps_all{});
    });
  }

  template <class Check>
  void with_documents(const Check& check) const {
    each(24, count, [&](const flash_case& example, random_source& random) {
      const std::vector<int> documents = random_documents(example, random);
      check(example, keeps_logits{}, document_mask{documents.data(), documents.size()});
    });
  }

  /// The functor knows one offset, so all entries have the same lengths.
  template <class Check>
  void with_prefix(const Check& check) const {
    functor_calls same = *this;
    same.limits.features =
        limits.features.without(attention_feature::varlen | attention_feature::lengths);
    same.each(25, count, [&](const flash_case& example, random_source& random) {
      const std::vector<std::int64_t> offsets = offsets_of(example);
      check(example, keeps_logits{},
            prefix_lm{random.between(0, 40), offsets.empty() ? 0 : offsets.front()});
    });
  }

  template <class Check>
  void with_both(const Check& check) const {
    each(26, count, [&](const flash_case& example, random_source& random) {
      const std::vector<int> documents = random_documents(example, random);
      check(example, random_table(random), document_mask{documents.data(), documents.size()});
    });
  }

 private:
  template <class Use>
  void each(std::uint64_t seed, std::uint64_t calls, const Use& use) const {
    for (std::uint64_t index = 0; index < calls; ++index) {
      SCOPED_TRACE("call " + std::to_string(index));
      random_source random = stream(seed, index);
      use(random_case(random, limits), random);
    }
  }

  static relative_table random_table(random_source& random) {
    relative_table table;
    for (float& bias : table.bias) bias = random.bell();
    return table;
  }

  static std::vector<int> random_documents(const flash_case& example, random_source& random) {
    const std::int64_t longest = example.q_len > example.kv_len ? example.q_len : example.kv_len;
    std::vector<int> documents(static_cast<std::size_t>(longest));
    int document = 0;
    for (int& own : documents) own = document += random.chance(0.1) ? 1 : 0;
    return documents;
  }
};

}  // namespace tessera::support
