// Scores that leave those of the keys before far behind: keys that outweigh all others are met
// late, so that weights by a reference found before them are infinite.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>

#include "tests/support/place.hpp"

namespace tessera::device_test {
namespace {

constexpr std::int64_t tokens = 700, heads = 2;

/// Logits are 2 `outweighing` times the first dimension of a key. Key 0 is seen by every row.
template <class Element>
void expect_values_of_key_0(std::int64_t dim, float outweighing, bool causal) {
  SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(outweighing) +
               (causal ? ", causal" : ", full"));
  const auto size = static_cast<std::size_t>(tokens * heads * dim);
  std::vector<Element> q(size, Element(0.0f)), k(size, Element(0.0f));
  std::vector<Element> v(size), out(size, Element(-1.0f));
  for (std::int64_t n = 0; n < tokens * heads; ++n) {
    const std::int64_t token = n / heads;
    const auto first = static_cast<std::size_t>(n * dim);
    q[first] = Element(2.0f);
    k[first] = Element(token == 0 ? 3.0f : token == 250 ? 2.0f : token % 64 == 5 ? 1.0f : 0.0f);
    for (std::int64_t d = 0; d < dim; ++d) {
      v[first + static_cast<std::size_t>(d)] = Element(static_cast<float>(1 + (token + d) % 100));
    }
  }
  const auto view = [&](std::vector<Element>& data) {
    return tessera::view(data.data(), {1, tokens, heads, dim});
  };
  const flash_attention_args args{.q = view(q), .k = view(k), .v = view(v), .out = view(out)};
  const flash_attention_options options{.softmax_scale = outweighing, .causal = causal};
  const found_operation known = operation_named("flash_attention");
  const status done = support::call_here(*known.kind, {known.op, tensors_of(args), &options});
  ASSERT_TRUE(done) << done.message();
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t column = i % static_cast<std::size_t>(dim);
    ASSERT_EQ(static_cast<float>(out[i]), static_cast<float>(1 + column % 100)) << i;
  }
}

TEST(far_scores, of_a_key_that_is_met_last_are_all_that_counts) {
  for (const std::int64_t dim : {64, 80, 128, 256}) {
    for (const float outweighing : {12.0f, 40.0f, 500.0f}) {
      for (const bool causal : {false, true}) {
        expect_values_of_key_0<bf16>(dim, outweighing, causal);
        expect_values_of_key_0<f16>(dim, outweighing, causal);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::device_test
