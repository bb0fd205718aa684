// Linear biases by the distance of keys, as functors of the header path on rows of cuda_sm90: said
// score by score, and by a factor of a row, which rows of narrow heads add to both rows of a lane
// at once where they can.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>
#include <tessera/prim/cuda/launch.hpp>

#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

template <dtype Type, int HeadDim>
struct row_of {
  static constexpr attention_config config{
      .target = backend::cuda_sm90, .type = Type, .head_dim = HeadDim};
};

struct biases_scores {
  const float* factors = nullptr;
  TESSERA_HD float operator()(float logit, const position& at) const {
    return logit + at.distance_times(factors[at.head]);
  }
};
struct biases_rows : biases_scores {
  TESSERA_HD float distance_factor(const position& row) const { return factors[row.head]; }
};

constexpr device_id here{device_kind::cuda, 0};

struct biased_shape {
  std::int64_t rows, keys, heads, kv_heads;
  std::vector<float> factors;
};

/// Random queries, keys and values of one entry, there and on the host.
template <class Row>
class biased_call {
  using element = element_t<Row::config.type>;
  static constexpr std::int64_t dim = Row::config.head_dim;

 public:
  explicit biased_call(const biased_shape& shape)
      : shape_(shape),
        q_(numbers(shape.rows * shape.heads)),
        k_(numbers(shape.keys * shape.kv_heads)),
        v_(numbers(shape.keys * shape.kv_heads)) {
    // A key of one head, met late, whose scores pass those before it by more than weights can.
    for (std::int64_t c = 0; c < dim; ++c) {
      element& x = k_[static_cast<std::size_t>(7 * shape.kv_heads * dim + c)];
      x = element(30.0f * static_cast<float>(x));
    }
  }

  template <class Functor>
  void expect_right(const flash_attention_options& options) {
    device_values<float> factors{shape_.factors};
    device_values<element> q{q_}, k{k_}, v{v_};
    device_values<element> out{std::vector<element>(q_.size(), element(-1.0f))};
    device_values<float> lse{
        std::vector<float>(static_cast<std::size_t>(shape_.rows * shape_.heads), -1.0f)};
    const auto tokens = [](auto& values, std::int64_t count, std::int64_t heads) {
      return view(values.data(), {1, count, heads, dim}, {}, here);
    };
    const flash_attention_args args{
        .q = tokens(q, shape_.rows, shape_.heads),
        .k = tokens(k, shape_.keys, shape_.kv_heads),
        .v = tokens(v, shape_.keys, shape_.kv_heads),
        .out = tokens(out, shape_.rows, shape_.heads),
        .lse = view(lse.data(), {1, shape_.heads, shape_.rows}, {}, here)};
    Functor functor{};
    functor.factors = factors.data();
    const status done = launch<Row>(args, options, cuda{}, with_logits(functor));
    ASSERT_TRUE(done) << done.message();
    const std::vector<element> outs = out.fetch();
    const std::vector<float> sums = lse.fetch();
    for (std::int64_t n = 0; n < shape_.rows * shape_.heads; n += 7) {
      const std::int64_t row = n / shape_.heads, head = n % shape_.heads;
      SCOPED_TRACE("row " + std::to_string(row) + ", head " + std::to_string(head));
      expect_row(options, row, head, outs.data() + n * dim,
                 static_cast<double>(sums[static_cast<std::size_t>(head * shape_.rows + row)]));
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  static std::vector<element> numbers(std::int64_t tokens) {
    static std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<element> all;
    for (std::int64_t i = 0; i < tokens * dim; ++i) all.emplace_back(normal(random));
    return all;
  }
  const element* of_key(const std::vector<element>& all, std::int64_t key,
                        std::int64_t head) const {
    return all.data() + (key * shape_.kv_heads + head / (shape_.heads / shape_.kv_heads)) * dim;
  }

  /// In double.
  void expect_row(const flash_attention_options& options, std::int64_t row, std::int64_t head,
                  const element* found, double found_lse) const {
    const std::int64_t position = row + shape_.keys - shape_.rows;
    const double factor = static_cast<double>(shape_.factors[static_cast<std::size_t>(head)]);
    std::vector<double> logits;
    for (std::int64_t key = 0; key < (options.causal ? position + 1 : shape_.keys); ++key) {
      double score = 0;
      for (std::int64_t c = 0; c < dim; ++c) {
        score +=
            static_cast<double>(static_cast<float>(q_[(row * shape_.heads + head) * dim + c])) *
            static_cast<double>(static_cast<float>(of_key(k_, key, head)[c]));
      }
      logits.push_back(*options.softmax_scale * score +
                       factor * static_cast<double>(position - key));
    }
    const double most = *std::max_element(logits.begin(), logits.end());
    std::vector<double> out(dim, 0.0);
    double sum = 0;
    for (std::size_t key = 0; key < logits.size(); ++key) {
      const double weight = std::exp(logits[key] - most);
      sum += weight;
      const element* value = of_key(v_, static_cast<std::int64_t>(key), head);
      for (std::size_t c = 0; c < out.size(); ++c) {
        out[c] += weight * static_cast<double>(static_cast<float>(value[c]));
      }
    }
    ASSERT_NEAR(found_lse, most + std::log(sum), 1e-4 * std::fmax(1.0, std::fabs(most)));
    for (std::size_t c = 0; c < out.size(); ++c) {
      ASSERT_NEAR(static_cast<double>(static_cast<float>(found[c])), out[c] / sum, 0.03) << c;
    }
  }

  const biased_shape& shape_;
  std::vector<element> q_, k_, v_;
};

template <class Row>
void expect_right_rows() {
  if (const int capability = prim::cuda::capability_of(0); capability != 90) {
    GTEST_SKIP() << "compute capability is " << capability << ", the row needs 90";
  }
  const std::vector<biased_shape> shapes = {
      {300, 700, 4, 2, {-0.5f, -0.01f, 0.03f, 0.0f}},
      // Few rows: tiles have rows of three heads, whose factors differ, in turns.
      {40, 500, 6, 2, {-0.5f, -0.01f, 0.03f, 0.0f, -0.2f, -2.0f}},
      // Steep: the rows of a lane, eight apart, have references that lie far apart.
      {200, 200, 2, 2, {-6.0f, 5.0f}},
  };
  for (const biased_shape& shape : shapes) {
    biased_call<Row> call(shape);
    // The last makes scores that lie far apart.
    for (const double scale : {0.09, -0.09, 4.0}) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(std::to_string(shape.rows) + " rows, scale " + std::to_string(scale) +
                     (causal ? ", causal" : ", full"));
        const flash_attention_options options{.softmax_scale = scale, .causal = causal};
        call.template expect_right<biases_rows>(options);
        if (testing::Test::HasFatalFailure()) return;
        if constexpr (Row::config.type == dtype::bf16) {
          call.template expect_right<biases_scores>(options);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(linear_biases, are_added_to_scores_of_128_columns) {
  expect_right_rows<row_of<dtype::bf16, 128>>();
}
TEST(linear_biases, are_added_to_scores_of_64_columns) {
  expect_right_rows<row_of<dtype::bf16, 64>>();
}
TEST(linear_biases, are_added_to_scores_of_64_columns_of_f16) {
  expect_right_rows<row_of<dtype::f16, 64>>();
}

}  // namespace
}  // namespace tessera::device_test
