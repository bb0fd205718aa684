// Rows of calls with several work tiles a block, whose finished rows lie in the same place of
// shared memory one after the other, on their way to memory.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>

#include "tests/support/place.hpp"

namespace tessera::device_test {
namespace {

/// Sq and Sk: tiles that are full, tiles that end inside of a warp's rows, rows that see no key,
/// and work tiles of a single tile of keys.
struct lengths {
  std::int64_t queries, keys;
};
constexpr lengths tested[] = {{768, 200}, {331, 64}, {500, 90}, {64, 700}};
constexpr std::int64_t heads = 150, kv_heads = 50;

/// Keys that are all the same see to equal weights; all tokens of a head have the same values,
/// which name the head and the column. A row that sees no key is 0, its log sum exp -inf.
template <class Element>
void expect_rows_of_heads(std::int64_t dim, const lengths& sizes, bool causal, bool with_lse) {
  SCOPED_TRACE(std::to_string(dim) + ": " + std::to_string(sizes.queries) + ", " +
               std::to_string(sizes.keys) + (causal ? ", causal" : ", full") +
               (with_lse ? ", log sum exps too" : ""));
  const auto size = [&](std::int64_t tokens, std::int64_t of_heads) {
    return static_cast<std::size_t>(tokens * of_heads * dim);
  };
  const auto value_of = [](std::int64_t kv_head, std::int64_t column) {
    return static_cast<float>(1 + (7 * kv_head + column) % 120);
  };
  std::vector<Element> q(size(sizes.queries, heads), Element(0.5f));
  std::vector<Element> k(size(sizes.keys, kv_heads), Element(0.25f)), v(k.size());
  std::vector<Element> out(q.size(), Element(-1.0f));
  std::vector<float> lse(static_cast<std::size_t>(heads * sizes.queries), -1.0f);
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    v[i] = Element(value_of(n / dim % kv_heads, n % dim));
  }
  const flash_attention_args args{
      .q = view(q.data(), {1, sizes.queries, heads, dim}),
      .k = view(k.data(), {1, sizes.keys, kv_heads, dim}),
      .v = view(v.data(), {1, sizes.keys, kv_heads, dim}),
      .out = view(out.data(), {1, sizes.queries, heads, dim}),
      .lse = with_lse ? view(lse.data(), {1, heads, sizes.queries}) : tensor_view{}};
  const flash_attention_options options{.softmax_scale = 0.01, .causal = causal};
  const context where{.row = support::runs_here(backend::cuda_sm90) ? "*cuda_sm90*" : ""};
  const found_operation known = operation_named("flash_attention");
  const status done =
      support::call_here(*known.kind, {known.op, tensors_of(args), &options}, where);
  ASSERT_TRUE(done) << done.message();
  const double logit = 0.01 * 0.5 * 0.25 * static_cast<double>(dim);
  for (std::int64_t token = 0; token < sizes.queries; ++token) {
    const std::int64_t last = causal ? token + sizes.keys - sizes.queries : sizes.keys - 1;
    for (std::int64_t head = 0; head < heads; ++head) {
      const double of_row =
          static_cast<double>(lse[static_cast<std::size_t>(head * sizes.queries + token)]);
      if (!with_lse) {
        ASSERT_EQ(of_row, -1.0);
      } else if (last < 0) {
        ASSERT_EQ(of_row, -std::numeric_limits<double>::infinity()) << token << ", " << head;
      } else {
        ASSERT_NEAR(of_row, logit + std::log(static_cast<double>(last + 1)), 1e-3)
            << token << ", " << head;
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        const float expected = last < 0 ? 0.0f : value_of(head / (heads / kv_heads), d);
        const auto found =
            static_cast<float>(out[static_cast<std::size_t>((token * heads + head) * dim + d)]);
        ASSERT_EQ(found, expected) << token << ", " << head << ", " << d;
      }
    }
  }
}

class finished_rows : public testing::TestWithParam<std::int64_t> {};

TEST_P(finished_rows, are_those_of_their_own_tile) {
  for (const lengths& sizes : tested) {
    for (const bool causal : {false, true}) {
      for (const bool with_lse : {false, true}) {  // rows with one are looked at sooner
        expect_rows_of_heads<bf16>(GetParam(), sizes, causal, with_lse);
        expect_rows_of_heads<f16>(GetParam(), sizes, causal, with_lse);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(head_dims, finished_rows, testing::Values(40, 64, 128, 192, 256));

}  // namespace
}  // namespace tessera::device_test
