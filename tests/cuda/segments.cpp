// Segments of calls that are large enough to be looked for as runs of keys: packed documents, ids
// in no order, padding, and ids whose keys do not lie together.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>

#include "tests/support/place.hpp"

namespace tessera::device_test {
namespace {

constexpr std::int64_t entries = 2, tokens = 3000, heads = 4, kv_heads = 2;

/// Keys that are all the same see to equal weights, so that an output is the mean of the values
/// that its row sees: the number of its segment, which all of them have. Values of padding are NaN.
class segments : public testing::TestWithParam<std::int64_t> {
 protected:
  using ids_of_tokens = std::function<int(std::int64_t entry, std::int64_t token)>;

  void expect_means(const char* what, const ids_of_tokens& id_of, bool causal) const {
    SCOPED_TRACE(std::string(what) + (causal ? ", causal" : ", full"));
    const std::int64_t dim = GetParam();
    std::vector<bf16> q(size(heads * dim), bf16(0.5f)), k(size(kv_heads * dim), bf16(0.25f));
    std::vector<bf16> v(size(kv_heads * dim)), out(size(heads * dim), bf16(-1.0f));
    std::vector<std::int32_t> ids(size(1));
    const auto value_of = [](int id) { return id < 0 ? 0.0f : static_cast<float>(id % 100); };
    for (std::int64_t n = 0; n < entries * tokens; ++n) {
      const int id = id_of(n / tokens, n % tokens);
      ids[static_cast<std::size_t>(n)] = id;
      for (std::int64_t d = 0; d < kv_heads * dim; ++d) {
        v[static_cast<std::size_t>(n * kv_heads * dim + d)] =
            bf16(id < 0 ? std::nanf("") : value_of(id));
      }
    }
    const flash_attention_args args{.q = view(q.data(), {entries, tokens, heads, dim}),
                                    .k = view(k.data(), {entries, tokens, kv_heads, dim}),
                                    .v = view(v.data(), {entries, tokens, kv_heads, dim}),
                                    .q_segment_ids = view(ids.data(), {entries, tokens}),
                                    .out = view(out.data(), {entries, tokens, heads, dim})};
    const flash_attention_options options{.softmax_scale = 0.01, .causal = causal};
    const found_operation known = operation_named("flash_attention");
    const status done = support::call_here(*known.kind, {known.op, tensors_of(args), &options});
    ASSERT_TRUE(done) << done.message();
    for (std::int64_t n = 0; n < entries * tokens; ++n) {
      const float expected = value_of(ids[static_cast<std::size_t>(n)]);
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        const float found = static_cast<float>(out[static_cast<std::size_t>(n * heads * dim + i)]);
        ASSERT_EQ(found, expected) << "token " << n << ", column " << i;
      }
    }
  }

 private:
  static std::size_t size(std::int64_t columns) {
    return static_cast<std::size_t>(entries * tokens * columns);
  }
};

TEST_P(segments, see_their_own_keys) {
  for (const bool causal : {false, true}) {
    expect_means(
        "documents", [](auto, auto token) { return static_cast<int>(token / 700); }, causal);
    expect_means(
        "documents of a few tokens",
        [](auto entry, auto token) { return static_cast<int>(token / (2 + entry)); }, causal);
    expect_means(
        "ids in no order, padding by -1 before and 0 behind",
        [](auto entry, auto token) {
          if (token < 40 * entry) return -1;
          return token >= 2800 ? 0 : 1 + static_cast<int>(token / 311 * 5 % 11);
        },
        causal);
    expect_means(
        "ids that come again in one of the entries",
        [](auto entry, auto token) {
          return static_cast<int>(entry == 0 ? token / 1000 : token / 64 % 3);
        },
        causal);
    expect_means(
        "one id", [](auto, auto) { return 7; }, causal);
  }
}

INSTANTIATE_TEST_SUITE_P(head_dims, segments, testing::Values(64, 128));

}  // namespace
}  // namespace tessera::device_test
