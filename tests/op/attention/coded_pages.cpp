// Pools of 8 bits: what is read from them are the numbers of their codes, scales are factors of
// keys and values, slots that nobody sees may hold any code, and new tokens are written as
// kv_cache_append writes them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kv_cache.hpp>
#include <tessera/page_attention.hpp>
#include <tessera/prim/common/element_cast.hpp>
#include <tessera/spec/float8.hpp>
#include <tessera/unified_attention.hpp>

#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t sequences = 3, q_heads = 8, kv_heads = 2, head_dim = 72, page_size = 16,
                       slots = 40, pages = sequences * slots + 2;
constexpr std::int64_t pool_elements = pages * page_size * kv_heads * head_dim;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = random.bell();
  return values;
}

/// A decoding token, a chunk of 40 tokens and an empty sequence over pages in reverse order, PTHD.
template <class Code>
struct coded_call {
  static constexpr std::int64_t rows = 41;
  std::vector<float> q = bells(rows * q_heads * head_dim, 1);
  std::vector<float> out = std::vector<float>(q.size(), -1.0f);
  std::vector<Code> k_pages = codes(2), v_pages = codes(3);
  std::vector<std::int32_t> table = std::vector<std::int32_t>(sequences * slots);
  std::vector<std::int32_t> lengths{611, 333, 0}, offsets{0, 1, 41, 41};
  std::vector<float> k_scales{}, v_scales{};
  std::vector<float> k_token_scales{}, v_token_scales{};  ///< [pages, page_size, kv_heads]

  coded_call() {
    for (std::size_t at = 0; at < table.size(); ++at) {
      table[at] = static_cast<std::int32_t>(table.size() - at);
    }
  }
  static std::vector<Code> codes(std::uint64_t seed) {
    std::vector<Code> all;
    constexpr float unit = std::is_same_v<Code, std::int8_t> ? 16.0f : 1.0f;
    for (const float value : bells(pool_elements, seed)) {
      all.push_back(prim::nearest<Code>(value * unit));
    }
    return all;
  }
  template <class Element>
  static tensor_view pool_of(std::vector<Element>& elements) {
    return view(elements.data(), {pages, page_size, kv_heads, head_dim});
  }
  unified_attention_args args() {
    unified_attention_args all{.q = view(q.data(), {rows, q_heads, head_dim}),
                               .k_pages = pool_of(k_pages),
                               .v_pages = pool_of(v_pages),
                               .block_table = view(table.data(), {sequences, slots}),
                               .seqlens_k = view(lengths.data(), {sequences}),
                               .cu_seqlens_q = view(offsets.data(), {sequences + 1}),
                               .out = view(out.data(), {rows, q_heads, head_dim})};
    if (!k_scales.empty()) all.k_scales = view(k_scales.data(), {kv_heads});
    if (!v_scales.empty()) all.v_scales = view(v_scales.data(), {kv_heads});
    const auto of_tokens = [](std::vector<float>& scales) {
      return scales.empty() ? tensor_view{} : view(scales.data(), {pages, page_size, kv_heads});
    };
    all.k_token_scales = of_tokens(k_token_scales);
    all.v_token_scales = of_tokens(v_token_scales);
    return all;
  }
  /// The same on pools of f32.
  std::vector<float> out_of_numbers(const unified_attention_options& options = {}) {
    std::vector<float> k(k_pages.size()), v(v_pages.size());
    const auto number = [](Code code) { return prim::float_of(code); };
    std::ranges::transform(k_pages, k.begin(), number);
    std::ranges::transform(v_pages, v.begin(), number);
    unified_attention_args wide = args();
    const auto multiply = [](std::vector<float>& elements, const std::vector<float>& scales) {
      for (std::size_t at = 0; !scales.empty() && at < elements.size(); ++at) {
        elements[at] *= scales[at / head_dim];
      }
    };
    multiply(k, k_token_scales), multiply(v, v_token_scales);
    wide.k_token_scales = {}, wide.v_token_scales = {};
    wide.k_pages = pool_of(k), wide.v_pages = pool_of(v);
    const status done = unified_attention(wide, options);
    EXPECT_TRUE(done) << done.message();
    return out;
  }
};

template <class Code>
void expect_the_numbers_of_codes() {
  coded_call<Code> call;
  const std::vector<float> expected = call.out_of_numbers({.k_scale = 0.5, .v_scale = 3.0});
  std::ranges::fill(call.out, -1.0f);
  const status done = unified_attention(call.args(), {.k_scale = 0.5, .v_scale = 3.0});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(call.out, expected);
}

TEST(coded_pages, are_the_numbers_of_their_codes) {
  expect_the_numbers_of_codes<f8_e4m3>();
  expect_the_numbers_of_codes<f8_e5m2>();
  expect_the_numbers_of_codes<std::int8_t>();
}

TEST(coded_pages, scales_of_heads_are_scales) {
  coded_call<std::int8_t> call;
  ASSERT_TRUE(unified_attention(call.args(), {.k_scale = 0.25, .v_scale = 2.0}));
  const std::vector<float> expected = call.out;
  call.k_scales = {0.5f, 0.5f}, call.v_scales = {4.0f, 4.0f};
  ASSERT_TRUE(unified_attention(call.args(), {.k_scale = 0.5, .v_scale = 0.5}));
  EXPECT_EQ(call.out, expected);
  call.v_scales = {4.0f, 8.0f};
  ASSERT_TRUE(unified_attention(call.args(), {.k_scale = 0.5, .v_scale = 0.5}));
  for (std::size_t at = 0; at < call.out.size(); ++at) {
    const bool second = at / head_dim % q_heads >= q_heads / kv_heads;
    EXPECT_EQ(call.out[at], second ? 2.0f * expected[at] : expected[at]) << at;
  }
}

/// Scales of tokens, not a number where nobody sees one.
template <class Code>
void give_token_scales(coded_call<Code>& call) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  call.k_token_scales.assign(pages * page_size * kv_heads, none);
  call.v_token_scales = call.k_token_scales;
  random_source random(9);
  for (std::size_t n = 0; n < sequences; ++n) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(call.lengths[n]); ++j) {
      const auto page = static_cast<std::size_t>(call.table[n * slots + j / page_size]);
      for (std::size_t h = 0; h < kv_heads; ++h) {
        const std::size_t at = (page * page_size + j % page_size) * kv_heads + h;
        call.k_token_scales[at] = random.pick({0.5f, 0.03f, 1.0f, 2.0f});
        call.v_token_scales[at] = random.pick({0.5f, 0.001f, 1.0f, 20.0f});
      }
    }
  }
}

TEST(coded_pages, scales_of_tokens_multiply_keys_and_values) {
  coded_call<f8_e4m3> call;
  give_token_scales(call);
  const std::vector<float> expected = call.out_of_numbers();
  std::ranges::fill(call.out, -1.0f);
  const status done = unified_attention(call.args());
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(call.out, expected);
  EXPECT_TRUE(std::ranges::none_of(expected, [](float x) { return std::isnan(x); }));
}

TEST(coded_pages, a_scale_that_is_no_number_reaches_those_who_see_it) {
  coded_call<std::int8_t> call;
  give_token_scales(call);
  std::ranges::fill(call.k_token_scales, 0.001f);  // no weight is 0
  const auto page = static_cast<std::size_t>(call.table[slots + 310 / page_size]);  // of a chunk
  call.v_token_scales[(page * page_size + 310 % page_size) * kv_heads] =
      std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(unified_attention(call.args()));
  for (std::size_t row = 0; row < call.rows; ++row) {
    const bool sees = row >= 1 && 333 - 40 + row - 1 >= 310;
    const float* const out = call.out.data() + row * q_heads * head_dim;
    EXPECT_EQ(std::isnan(out[5]), sees) << row;
    EXPECT_FALSE(std::isnan(out[(q_heads - 1) * head_dim + 5])) << "the other head of keys";
  }
}

TEST(coded_pages, appended_scales_make_the_largest_element_the_largest_code) {
  coded_call<std::int8_t> call;
  std::vector<float> k_new = bells(call.rows * kv_heads * head_dim, 7);
  std::vector<float> v_new(k_new.size(), 0.0f);  // zeros have a scale too
  call.k_token_scales.assign(pages * page_size * kv_heads, -1.0f);
  call.v_token_scales = call.k_token_scales;
  const unified_attention_args args = call.args();
  const status done = kv_cache_append({.k_new = view(k_new.data(), {call.rows, kv_heads, head_dim}),
                                       .v_new = view(v_new.data(), {call.rows, kv_heads, head_dim}),
                                       .k_pages = args.k_pages,
                                       .v_pages = args.v_pages,
                                       .block_table = args.block_table,
                                       .seqlens_k = args.seqlens_k,
                                       .cu_seqlens_q = args.cu_seqlens_q,
                                       .k_token_scales = args.k_token_scales,
                                       .v_token_scales = args.v_token_scales},
                                      {.k_scale = 0.5, .pool_layout = cache_layout::PTHD});
  ASSERT_TRUE(done) << done.message();
  const auto page = static_cast<std::size_t>(call.table[610 / page_size]);  // of the first token
  const std::size_t row = (page * page_size + 610 % page_size) * kv_heads;
  float largest = 0.0f;
  for (std::size_t d = 0; d < head_dim; ++d) largest = std::max(largest, std::abs(k_new[d]));
  EXPECT_EQ(call.k_token_scales[row], largest / 0.5f / 127.0f);
  EXPECT_EQ(call.v_token_scales[row], std::numeric_limits<float>::min());
  std::int8_t most = 0;
  for (std::size_t d = 0; d < head_dim; ++d) {
    const std::int8_t code = call.k_pages[row * head_dim + d];
    most = std::max<std::int8_t>(most, static_cast<std::int8_t>(std::abs(code)));
    const float read = 0.5f * call.k_token_scales[row] * static_cast<float>(code);
    EXPECT_NEAR(read, k_new[d], 0.51f * largest / 127.0f);
    EXPECT_EQ(call.v_pages[row * head_dim + d], 0);
  }
  EXPECT_EQ(most, 127);
  EXPECT_EQ(std::ranges::count(call.k_token_scales, -1.0f),
            (pages * page_size - call.rows) * kv_heads);
}

TEST(coded_pages, neither_threads_nor_plans_change_a_bit) {
  coded_call<f8_e4m3> call;
  ASSERT_TRUE(unified_attention(call.args(), {}, {.threads = 1}));
  const std::vector<float> expected = call.out;
  ASSERT_TRUE(unified_attention(call.args(), {}, {.threads = 3}));
  EXPECT_EQ(call.out, expected);
  const auto planned = plan(problem_of(call.args()));
  ASSERT_TRUE(planned) << planned.message();
  std::ranges::fill(call.out, -1.0f);
  ASSERT_TRUE(planned->run(call.args()));
  EXPECT_EQ(call.out, expected);
}

TEST(coded_pages, nobody_sees_codes_behind_the_keys) {
  coded_call<f8_e4m3> call;
  ASSERT_TRUE(unified_attention(call.args()));
  const std::vector<float> expected = call.out;
  std::vector<bool> seen(static_cast<std::size_t>(pages * page_size));
  for (std::size_t n = 0; n < sequences; ++n) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(call.lengths[n]); ++j) {
      const auto page = static_cast<std::size_t>(call.table[n * slots + j / page_size]);
      seen[page * page_size + j % page_size] = true;
    }
  }
  constexpr std::size_t token = kv_heads * head_dim;
  for (std::size_t at = 0; at < call.k_pages.size(); ++at) {
    if (seen[at / token]) continue;
    call.k_pages[at].bits = 0x7f;
    call.v_pages[at].bits = 0xff;
  }
  ASSERT_TRUE(unified_attention(call.args()));
  EXPECT_EQ(call.out, expected);
}

TEST(coded_pages, a_value_that_is_no_number_reaches_those_who_see_it) {
  coded_call<f8_e4m3> call;
  const auto page = static_cast<std::size_t>(call.table[slots + 310 / page_size]);  // of a chunk
  const std::size_t element = (page * page_size + 310 % page_size) * kv_heads * head_dim + 5;
  call.v_pages[element].bits = 0x7f;
  ASSERT_TRUE(unified_attention(call.args()));
  for (std::size_t row = 0; row < call.rows; ++row) {
    const bool sees = row >= 1 && 333 - 40 + row - 1 >= 310;
    const float* const out = call.out.data() + row * q_heads * head_dim;
    EXPECT_EQ(std::isnan(out[5]), sees) << row;
    EXPECT_FALSE(std::isnan(out[6])) << row;
    EXPECT_FALSE(std::isnan(out[(q_heads - 1) * head_dim + 5])) << "the other head of keys";
  }
}

/// Pools of a call, and scales of their slots.
template <class Code>
bool hold_the_same(const coded_call<Code>& a, const coded_call<Code>& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0;
  };
  return same(a.k_pages, b.k_pages) && same(a.v_pages, b.v_pages) &&
         same(a.k_token_scales, b.k_token_scales) && same(a.v_token_scales, b.v_token_scales);
}

/// The rows of both calls as new tokens: one operation writes and attends, the other way there are
/// two.
template <class Code>
void expect_writes_like_an_append(coded_call<Code>& call, coded_call<Code>& appended,
                                  const unified_attention_options& options) {
  std::vector<float> k_new = bells(call.rows * kv_heads * head_dim, 7);
  std::vector<float> v_new = bells(call.rows * kv_heads * head_dim, 8);
  unified_attention_args args = call.args();
  args.k_new = view(k_new.data(), {call.rows, kv_heads, head_dim});
  args.v_new = view(v_new.data(), {call.rows, kv_heads, head_dim});
  const status done = chunked_prefill_paged_decode(args, options);
  ASSERT_TRUE(done) << done.message();
  const unified_attention_args other = appended.args();
  ASSERT_TRUE(kv_cache_append({.k_new = args.k_new,
                               .v_new = args.v_new,
                               .k_pages = other.k_pages,
                               .v_pages = other.v_pages,
                               .block_table = other.block_table,
                               .seqlens_k = other.seqlens_k,
                               .cu_seqlens_q = other.cu_seqlens_q,
                               .k_token_scales = other.k_token_scales,
                               .v_token_scales = other.v_token_scales},
                              {.pool_layout = cache_layout::PTHD}));
  EXPECT_TRUE(hold_the_same(call, appended));
  ASSERT_TRUE(unified_attention(other, options));
  EXPECT_EQ(call.out, appended.out);
}

TEST(coded_pages, new_tokens_are_written_as_by_appending) {
  coded_call<f8_e5m2> call, appended;
  expect_writes_like_an_append(call, appended, {});
}

/// Scales of the call are the caller's to divide by, those of tokens are found.
template <class Code>
void expect_scales_of_new_tokens() {
  coded_call<Code> call, appended;
  give_token_scales(call), give_token_scales(appended);
  expect_writes_like_an_append(call, appended, {.k_scale = 0.5, .v_scale = 3.0});
}
TEST(coded_pages, scales_of_new_tokens_are_written_as_by_appending) {
  expect_scales_of_new_tokens<f8_e4m3>();
  expect_scales_of_new_tokens<f8_e5m2>();
  expect_scales_of_new_tokens<std::int8_t>();
}

TEST(coded_pages, new_codes_have_the_scales_that_their_slots_hold) {
  coded_call<std::int8_t> call, before;
  give_token_scales(call), give_token_scales(before);
  unified_attention_args args = call.args();
  std::vector<std::int8_t> fresh(call.rows * kv_heads * head_dim, std::int8_t{3});
  args.k_new = args.v_new = view(fresh.data(), {call.rows, kv_heads, head_dim});
  const status done = chunked_prefill_paged_decode(args);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(call.k_pages[(static_cast<std::size_t>(call.table[610 / page_size]) * page_size +
                          610 % page_size) *
                         kv_heads * head_dim],
            3);
  before.k_pages = call.k_pages, before.v_pages = call.v_pages;
  EXPECT_TRUE(hold_the_same(call, before)) << "scales";
}

TEST(coded_pages, refusals_say_what_fits) {
  coded_call<f8_e4m3> call;
  const auto refusal = [&](const auto& change) {
    unified_attention_args args = call.args();
    std::vector<float> fresh(call.rows * kv_heads * head_dim);
    args.k_new = view(fresh.data(), {call.rows, kv_heads, head_dim});
    args.v_new = args.k_new;
    change(args);
    return chunked_prefill_paged_decode(args).message();
  };
  std::vector<float> scales(kv_heads + 1, 1.0f), wide(pool_elements);
  std::vector<f8_e5m2> codes(call.rows * kv_heads * head_dim);
  EXPECT_EQ(refusal([&](auto& args) { args.v_pages.type = dtype::i8; }),
            "v_pages: dtype is i8, k_pages has f8_e4m3");
  EXPECT_EQ(refusal([&](auto& args) { args.k_pages.type = args.v_pages.type = dtype::u8; }),
            "k_pages: dtype is u8, must be f8_e4m3, f8_e5m2 or i8 or that of q, f32");
  EXPECT_EQ(refusal([&](auto& args) { args.k_scales = view(scales.data(), {kv_heads + 1}); }),
            "k_scales: heads is 3, k_pages has 2");
  EXPECT_EQ(
      refusal([&](auto& args) {
        args.k_pages = args.v_pages = view(wide.data(), {pages, page_size, kv_heads, head_dim});
        args.v_scales = view(scales.data(), {kv_heads});
      }),
      "v_scales: is given, the pool has the type of q; scales of heads belong to pools of "
      "f8_e4m3, f8_e5m2 or i8");
  EXPECT_EQ(refusal([&](auto& args) {
              args.v_token_scales = view(scales.data(), {pages, page_size, 1});
            }),
            "v_token_scales: heads is 1, k_pages has 2");
  EXPECT_EQ(refusal([&](auto& args) {
              args.k_new = args.v_new = view(codes.data(), {call.rows, kv_heads, head_dim});
            }),
            "k_new: dtype is f8_e5m2, k_pages has f8_e4m3; elements of 8 bits are written as they "
            "are");
  EXPECT_EQ(unified_attention(call.args(), {.k_scale = 0.0}).message(),
            "k_scale: is 0, must be above 0 and finite as a float");
}

}  // namespace
}  // namespace tessera::support
