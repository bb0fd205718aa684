// An indexer in 8 bits: codes select what the numbers they stand for do, and scales are factors of
// scores.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/latent_attention.hpp>
#include <tessera/spec/float8.hpp>

#include "tests/op/latent_attention/selected_call.hpp"
#include "tests/reference/float8.hpp"
#include "tests/support/random.hpp"

namespace tessera::selected_test {
namespace {

/// Index queries and keys in 8 bits, and their scales: signs, small whole numbers, fractions.
struct index_codes {
  explicit index_codes(dtype of) : type(of) {
    random_source random(31);
    for (std::vector<std::uint8_t>* codes : {&q, &k}) {
      for (std::uint8_t& code : *codes) {
        const auto x = static_cast<float>(random.between(-12, 12)) / 4;
        code = type == dtype::f8_e4m3 ? f8_e4m3(x).bits : f8_e5m2(x).bits;
      }
    }
    for (std::vector<float>* scales : {&q_scale, &k_scale}) {
      for (float& scale : *scales) scale = static_cast<float>(random.between(1, 9)) / 8;
    }
  }
  void give(deepseek_attn_args& to) {
    to.q_index = codes_at(q, {1, length, index_heads, index_width});
    to.k_index = codes_at(k, {1, length, index_width});
    to.q_index_scale = view(q_scale.data(), {1, length, index_heads});
    to.k_index_scale = view(k_scale.data(), {1, length});
  }
  /// The same numbers as floats, scales of queries within weights.
  void give_as_floats(selected_call& to) const {
    const auto number = [&](std::uint8_t code) {
      return static_cast<float>(reference::value_of_code(type, code));
    };
    std::ranges::transform(q, to.q_index.begin(), number);
    std::ranges::transform(k, to.k_index.begin(), number);
    std::ranges::transform(q_scale, to.index_weights, to.index_weights.begin(),
                           std::multiplies<>());
  }

  dtype type;
  std::vector<std::uint8_t> q = std::vector<std::uint8_t>(length * index_heads * index_width);
  std::vector<std::uint8_t> k = std::vector<std::uint8_t>(length * index_width);
  std::vector<float> q_scale = std::vector<float>(length * index_heads);
  std::vector<float> k_scale = std::vector<float>(length);

 private:
  tensor_view codes_at(std::vector<std::uint8_t>& codes,
                       std::initializer_list<std::int64_t> extent) const {
    tensor_view of = view(codes.data(), extent);
    of.type = type;
    return of;
  }
};

void give(index_codes& codes, selected_call& to) {
  to.give_index = [&codes](deepseek_attn_args& args) { codes.give(args); };
}

using selected_by_codes = selected_attention;

constexpr dtype code_types[] = {dtype::f8_e4m3, dtype::f8_e5m2};

TEST_P(selected_by_codes, codes_select_what_their_numbers_do) {
  for (const dtype type : code_types) {
    index_codes codes(type);
    std::ranges::fill(codes.k_scale, 1.0f);
    selected_call coded, floats;
    give(codes, coded);
    codes.give_as_floats(floats);
    coded.select({.causal = true, .index_topk = topk}, forward);
    floats.select({.causal = true, .index_topk = topk}, forward);
    EXPECT_EQ(coded.indices, floats.indices) << name_of(type);
    EXPECT_EQ(coded.out, floats.out) << name_of(type);
  }
}

TEST_P(selected_by_codes, scales_of_keys_are_factors_of_their_scores) {
  // Of keys and queries that are all the same the scores are the scales.
  index_codes codes(dtype::f8_e4m3);
  std::ranges::fill(codes.q, f8_e4m3(1.0f).bits);
  std::ranges::fill(codes.k, f8_e4m3(0.5f).bits);
  selected_call call;
  std::ranges::fill(call.index_weights, 1.0f);
  give(codes, call);
  call.select({.causal = true, .index_topk = topk}, forward);
  for (std::int64_t t = topk; t < length; ++t) {
    std::vector<std::int32_t> keys(static_cast<std::size_t>(t + 1));
    std::iota(keys.begin(), keys.end(), 0);
    std::ranges::stable_sort(keys, std::ranges::greater(), [&](std::int32_t key) {
      return codes.k_scale[static_cast<std::size_t>(key)];
    });
    keys.resize(topk);
    std::ranges::sort(keys);
    const auto begin = call.indices.begin() + t * topk;
    EXPECT_EQ(std::vector(begin, begin + topk), keys) << "token " << t;
  }
}

TEST_P(selected_by_codes, products_that_are_nan_count_nothing_and_nan_scores_are_the_least) {
  constexpr std::int64_t spoiled = 40;
  for (const dtype type : code_types) {
    index_codes codes(type), zero(type), unscaled(type);
    std::fill_n(codes.k.begin() + spoiled * index_width, index_width, std::uint8_t{0x7f});
    std::fill_n(zero.k.begin() + spoiled * index_width, index_width, std::uint8_t{0});
    unscaled.k_scale[spoiled] = nan;
    selected_call with_nan, with_zero, without;
    give(codes, with_nan);
    give(zero, with_zero);
    give(unscaled, without);
    with_nan.select({.causal = true, .index_topk = topk}, forward);
    with_zero.select({.causal = true, .index_topk = topk}, forward);
    without.select({.causal = true, .index_topk = topk}, forward);
    EXPECT_EQ(with_nan.indices, with_zero.indices) << name_of(type);
    // Later tokens have others to keep.
    EXPECT_EQ(std::count(without.indices.begin() + (spoiled + 1) * topk, without.indices.end(),
                         static_cast<std::int32_t>(spoiled)),
              0);
  }
}

INSTANTIATE_TEST_SUITE_P(backends, selected_by_codes, testing::ValuesIn(backends), name_of_backend);

}  // namespace
}  // namespace tessera::selected_test
