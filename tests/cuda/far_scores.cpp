// Scores that leave those of the keys before far behind: keys that outweigh all others are met
// late, so that weights by a reference found before them are infinite.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>
#include <tessera/fp8_attention.hpp>
#include <tessera/spec/float8.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

constexpr std::int64_t tokens = 700, heads = 2;

/// Of one entry, [token][head][column] of q, k, v and out, [head][token] of lse.
struct numbers {
  std::int64_t dim = 0;
  std::vector<float> q, k, v;

  explicit numbers(std::int64_t columns) : dim(columns), q(size()), k(size()), v(size()) {}
  std::size_t size() const { return static_cast<std::size_t>(tokens * heads * dim); }
  std::size_t at(std::int64_t token, std::int64_t head, std::int64_t column) const {
    return static_cast<std::size_t>((token * heads + head) * dim + column);
  }
};

struct answer {
  std::vector<float> out, lse;
};

/// What a query sees: of the keys so many before and behind it.
struct window {
  std::optional<std::int64_t> left, right;
};

/// Whole sequences are worked on, unless `shared`: without the promise, the keys of such a small
/// call are shared by blocks, each with few tiles.
template <class Element>
answer attend(const numbers& given, double scale, bool causal, bool shared = false,
              const window& seen = {}) {
  const auto rounded = [](const std::vector<float>& from) {
    std::vector<Element> to;
    for (const float x : from) to.push_back(Element(x));
    return to;
  };
  std::vector<Element> q = rounded(given.q), k = rounded(given.k), v = rounded(given.v);
  using result = std::conditional_t<std::is_same_v<Element, f8_e4m3>, bf16, Element>;
  std::vector<result> out(given.size(), result(-1.0f));
  answer got{.out = {}, .lse = std::vector<float>(heads * tokens, -1.0f)};
  const auto view = [&](auto& data) {
    return tessera::view(data.data(), {1, tokens, heads, given.dim});
  };
  const context where{.row = support::runs_here(backend::cuda_sm90) ? "*cuda_sm90*" : "",
                      .policy = selection_policy{
                          .promise = shared ? bits_promise::none : bits_promise::batch_invariant}};
  const auto call = [&](auto args, const auto& options, std::string_view operation) {
    args.q = view(q), args.k = view(k), args.v = view(v), args.out = view(out);
    args.lse = tessera::view(got.lse.data(), {1, heads, tokens});
    const found_operation known = operation_named(operation);
    const status done =
        support::call_here(*known.kind, {known.op, tensors_of(args), &options}, where);
    EXPECT_TRUE(done) << done.message();
  };
  if constexpr (std::is_same_v<Element, f8_e4m3>) {
    const fp8_attention_options options{.softmax_scale = scale,
                                        .causal = causal,
                                        .window_left = seen.left,
                                        .window_right = seen.right};
    call(fp8_attention_args{}, options, "fp8_attention");
  } else {
    const flash_attention_options options{.softmax_scale = scale,
                                          .causal = causal,
                                          .window_left = seen.left,
                                          .window_right = seen.right};
    call(flash_attention_args{}, options, "flash_attention");
  }
  for (const result x : out) got.out.push_back(static_cast<float>(x));
  return got;
}

/// Logits are 2 `outweighing` times the last dimension of a key. Key 0 is seen by every row.
template <class Element>
void expect_values_of_key_0(std::int64_t dim, float outweighing, bool causal,
                            const window& seen = {}) {
  SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(outweighing) +
               (causal ? ", causal" : ", not causal"));
  numbers given(dim);
  for (std::int64_t n = 0; n < tokens * heads; ++n) {
    const std::int64_t token = n / heads;
    const std::size_t last = given.at(token, n % heads, dim - 1);
    given.q[last] = 2.0f;
    given.k[last] = token == 0 ? 3.0f : token == 250 ? 2.0f : token % 64 == 5 ? 1.0f : 0.0f;
    for (std::int64_t d = 0; d < dim; ++d) {
      given.v[given.at(token, n % heads, d)] = static_cast<float>(1 + (token + d) % 100);
    }
  }
  const answer got = attend<Element>(given, static_cast<double>(outweighing), causal, false, seen);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::size_t column = i % static_cast<std::size_t>(dim);
    ASSERT_EQ(got.out[i], static_cast<float>(1 + column % 100)) << i;
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

/// Of 64 rows of a warpgroup, the first see keys up to the end of a tile or less, the others some
/// of the next tile, which is the first that is met.
TEST(far_scores, count_where_all_of_the_first_tile_is_hidden_from_a_row) {
  for (const std::int64_t dim : {64, 80, 128, 256}) {
    for (const std::int64_t right : {1, 40, 100}) {
      SCOPED_TRACE(right);
      const window seen{.left = {}, .right = right};
      expect_values_of_key_0<bf16>(dim, 12.0f, false, seen);
      expect_values_of_key_0<bf16>(dim, 500.0f, false, seen);
      expect_values_of_key_0<f16>(dim, 40.0f, false, seen);
    }
  }
}

/// Logits grow with the distance of a key, so that the first that a row sees has the largest, of
/// all that it sees, and the one before, in the same tile, which it does not see, a larger one.
template <class Element>
void expect_first_keys_of_window(std::int64_t dim, double scale, std::int64_t left) {
  SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(scale));
  numbers given(dim);
  for (std::int64_t n = 0; n < tokens * heads; ++n) {
    const std::int64_t token = n / heads;
    std::int64_t rest = tokens - token;
    float weight = 1.0f;
    // Three digits of the distance, which all types hold.
    for (std::int64_t d = dim - 3; d < dim; ++d, rest /= 8, weight *= 8.0f) {
      given.q[given.at(token, n % heads, d)] = weight;
      given.k[given.at(token, n % heads, d)] = static_cast<float>(d + 1 < dim ? rest % 8 : rest);
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      given.v[given.at(token, n % heads, d)] = static_cast<float>(1 + (3 * token + d) % 8);
    }
  }
  const answer got = attend<Element>(given, scale, false, false, window{.left = left, .right = 0});
  for (std::int64_t n = 0; n < tokens * heads; ++n) {
    const std::int64_t token = n / heads, first = std::max<std::int64_t>(0, token - left);
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t key = first; key <= token; ++key) {
      weights.push_back(std::exp(scale * static_cast<double>(first - key)));
      sum += weights.back();
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      double expected = 0;
      for (std::int64_t key = first; key <= token; ++key) {
        expected += weights[static_cast<std::size_t>(key - first)] / sum *
                    static_cast<double>(1 + (3 * key + d) % 8);
      }
      const double rounding = std::is_same_v<Element, f8_e4m3> ? 0.05 : 0.01;
      ASSERT_NEAR(static_cast<double>(got.out[given.at(token, n % heads, d)]), expected,
                  rounding * expected)
          << token << ", " << d;
    }
    const double lse = scale * static_cast<double>(tokens - first) + std::log(sum);
    ASSERT_NEAR(static_cast<double>(got.lse[static_cast<std::size_t>(n % heads * tokens + token)]),
                lse, 2e-3 + 1e-6 * lse)
        << token;
  }
}

TEST(far_scores, of_the_first_keys_of_a_window_count_and_those_before_do_not) {
  for (const std::int64_t dim : {64, 80, 128, 256}) {
    for (const double scale : {0.25, 0.7, 12.0}) {
      for (const std::int64_t left : {200, 299}) {
        expect_first_keys_of_window<bf16>(dim, scale, left);
        expect_first_keys_of_window<f16>(dim, scale, left);
        if (dim != 80 && support::runs_here(backend::cuda_sm90)) {
          expect_first_keys_of_window<f8_e4m3>(dim, scale, left);
        }
      }
    }
  }
}

/// Logits in powers of 2, which are the last dimensions of keys: of two keys of different tiles,
/// met one after the other, behind keys that lie `apart` from the largest of their tile. Both
/// count, however far they are above what was seen before.
template <class Element>
void expect_both_of_two_keys(std::int64_t dim, float apart, float first, float second,
                             bool shared) {
  SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(apart) + ": " + std::to_string(first) +
               ", " + std::to_string(second) + (shared ? ", shared" : ""));
  numbers given(dim);
  for (std::int64_t n = 0; n < tokens * heads; ++n) {
    const std::int64_t token = n / heads;
    const std::size_t last = given.at(token, n % heads, dim - 1);
    given.q[last] = 2.0f;
    given.k[last] = token == 100 ? second : token == 350 ? first : token == 690 ? 0.0f : -apart;
    for (std::int64_t d = 0; d < dim; ++d) {
      given.v[given.at(token, n % heads, d)] = token == 100 ? 1.0f : token == 350 ? -2.0f : 0.0f;
    }
  }
  const answer got = attend<Element>(given, std::log(2.0) / 2, false, shared);
  const double of_first = std::exp2(static_cast<double>(first - second));
  const double expected = (1 - 2 * of_first) / (1 + of_first);
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got.out[i]), expected, 1e-2) << i;
  }
  const double lse = static_cast<double>(second) * std::log(2.0) + std::log1p(of_first);
  for (const float x : got.lse) ASSERT_NEAR(static_cast<double>(x), lse, 1e-3);
}

TEST(far_scores, of_two_keys_count_both) {
  for (const std::int64_t dim : {64, 80, 128, 256}) {
    for (const float apart : {0.0f, 60.0f}) {
      for (const float first : {20.0f, 63.0f, 89.0f, 100.0f, 149.0f, 200.0f}) {
        for (const float second : {first + 1, first + 2, first + 6}) {
          for (const bool shared : {false, true}) {
            expect_both_of_two_keys<bf16>(dim, apart, first, second, shared);
            expect_both_of_two_keys<f16>(dim, apart, first, second, shared);
          }
        }
      }
    }
  }
}

/// Rows done again one by one (sm90/careful_row.hpp) have weights of 32 bits, others those of 16.
/// Key 0 and 16 keys beside it, all met last, have values that nearly cancel, so that what is left
/// tells which they were.
TEST(far_scores, are_made_again_for_whole_tiles_and_not_by_rows) {
  if (!support::runs_here(backend::cuda_sm90)) GTEST_SKIP() << "rows of cuda_sm90 alone";
  for (const std::int64_t dim : {64, 80, 128}) {
    SCOPED_TRACE(dim);
    numbers given(dim);
    for (std::int64_t n = 0; n < tokens * heads; ++n) {
      const std::int64_t token = n / heads;
      const std::size_t last = given.at(token, n % heads, dim - 1);
      given.q[last] = 2.0f;
      given.k[last] = token == 0 ? 3.0f : token <= 16 ? 2.96875f : 0.0f;
      for (std::int64_t d = 0; d < dim; ++d) {
        given.v[given.at(token, n % heads, d)] = token == 0 ? 1.0f : token <= 16 ? -0.28125f : 5.0f;
      }
    }
    const double weight = std::exp(-24.0 * 2 * (3 - 2.96875)), sum = 1 + 16 * weight;
    const double rounded =
        static_cast<double>(static_cast<float>(bf16(static_cast<float>(weight))));
    const double of_rows = (1 - 16 * weight * 0.28125) / sum;
    const double of_tiles = (1 - 16 * rounded * 0.28125) / sum;
    const answer got = attend<bf16>(given, 24.0, false);
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got.out[i]), of_tiles, std::abs(of_tiles - of_rows) / 4) << i;
    }
    for (const float lse : got.lse) {
      ASSERT_NEAR(static_cast<double>(lse), 144 + std::log(sum), 1e-3);
    }
  }
}

/// Normal queries and keys times sqrt(scale), in double.
struct exact {
  numbers given;
  std::vector<double> products;  ///< [head][query][key]

  explicit exact(std::int64_t dim) : given(dim) {
    support::random_source random(static_cast<std::uint64_t>(dim));
    // All types hold these.
    for (std::vector<float>* data : {&given.q, &given.k, &given.v}) {
      for (float& x : *data) {
        const double radius = std::sqrt(-2.0 * std::log(1.0 - random.uniform()));
        const double normal = radius * std::cos(6.283185307179586 * random.uniform());
        x = static_cast<float>(f8_e4m3(static_cast<float>(normal)));
      }
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t query = 0; query < tokens; ++query) {
        for (std::int64_t key = 0; key < tokens; ++key) {
          const float* const a = &given.q[given.at(query, head, 0)];
          const float* const b = &given.k[given.at(key, head, 0)];
          float product = 0;  // of few bits: exact
          for (std::int64_t d = 0; d < dim; ++d) product += a[d] * b[d];
          products.push_back(static_cast<double>(product));
        }
      }
    }
  }

  /// Errors of a row's outputs, of the length that they should have, and of a log sum exp, of it.
  void expect(const answer& got, double scale, bool causal, double of_out, double of_lse) const {
    double worst = 0, worst_lse = 0;
    std::vector<double> row(static_cast<std::size_t>(given.dim));
    for (std::int64_t n = 0; n < heads * tokens; ++n) {
      const std::int64_t head = n / tokens, query = n % tokens;
      const std::int64_t seen = causal ? query + 1 : tokens;
      const double* const logits = &products[static_cast<std::size_t>(n * tokens)];
      const double most = *std::max_element(logits, logits + seen) * scale;
      double sum = 0, error = 0, length = 0;
      std::fill(row.begin(), row.end(), 0.0);
      for (std::int64_t key = 0; key < seen; ++key) {
        const double weight = std::exp(logits[key] * scale - most);
        sum += weight;
        if (weight < 1e-9) continue;
        const float* const v = &given.v[given.at(key, head, 0)];
        for (std::size_t d = 0; d < row.size(); ++d) row[d] += weight * static_cast<double>(v[d]);
      }
      const float* const out = &got.out[given.at(query, head, 0)];
      for (std::size_t d = 0; d < row.size(); ++d) {
        const double difference = static_cast<double>(out[d]) - row[d] / sum;
        error += difference * difference;
        length += row[d] / sum * (row[d] / sum);
      }
      const double lse = most + std::log(sum);
      // Not worst = max(worst, ...), which leaves NaN out.
      if (!(std::sqrt(error / length) <= worst)) worst = std::sqrt(error / length);
      const double off = std::abs(static_cast<double>(got.lse[static_cast<std::size_t>(n)]) - lse);
      if (!(off / (1 + std::abs(lse)) <= worst_lse)) worst_lse = off / (1 + std::abs(lse));
    }
    EXPECT_LE(worst, of_out);
    EXPECT_LE(worst_lse, of_lse);
  }
};

TEST(far_scores, of_normal_queries_and_keys_many_times_as_large_are_right) {
  for (const std::int64_t dim : {64, 80, 128}) {
    const exact known(dim);
    for (const double times : {40.0, 100.0, 300.0}) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(times) +
                     (causal ? ", causal" : ", full"));
        const double scale = times / std::sqrt(static_cast<double>(dim));
        const auto right = [&]<class Element>(double of_out, double of_lse) {
          known.expect(attend<Element>(known.given, scale, causal), scale, causal, of_out, of_lse);
        };
        right.operator()<bf16>(1.5e-2, 5e-5);
        right.operator()<f16>(1.5e-2, 5e-5);
        if (dim != 80 && support::runs_here(backend::cuda_sm90)) {
          // Sums of the matrix unit have 14 bits: logits are off by that.
          right.operator()<f8_e4m3>(times > 40 ? 0.5 : 0.15, times > 40 ? 3e-2 : 5e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::device_test
