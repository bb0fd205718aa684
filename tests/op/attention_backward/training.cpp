// A training step that trains: two layers of attention and a perceptron learn a text by its
// characters. Attention and its gradients are the library's, in f32, where this program's calls
// run; everything else is Eigen's. The same in double, with attention by its definition, is what
// the losses are compared with.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <gtest/gtest.h>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/registry.hpp>
#include <tessera/runtime/operation.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

/// How README.md begins.
constexpr std::string_view text =
    "Attention, linear-recurrence and matmul kernels for people who write inference engines and "
    "training code in C++.\n\nTile sizes, dtypes, masking modes and instruction sets are template "
    "parameters. Which of their combinations exist is not hidden behind macros: it is one "
    "generated, reviewable table, a line per kernel. A thin run-time layer picks a line per call "
    "and can always say why.";
constexpr std::int64_t batch = 3, length = 48, heads = 2, head_dim = 12, width = heads * head_dim,
                       hidden = 40, tokens = batch * length, symbols = 128;
constexpr int layers = 2, steps = 300;

template <class Scalar>
using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Causal attention of rows [batch * length][heads * head_dim], by the library.
class library_attention {
 public:
  using scalar = float;

  matrix<float> forward(const matrix<float>& q, const matrix<float>& k, const matrix<float>& v) {
    q_ = q, k_ = k, v_ = v;
    out_.resize(tokens, width);
    lse_.resize(batch * heads, length);
    const flash_attention_args args{
        .q = rows(q_), .k = rows(k_), .v = rows(v_), .out = rows(out_), .lse = statistic()};
    call(attention_record, attention_table::operations[0], args);
    return out_;
  }
  void backward(matrix<float> d_out, matrix<float>& d_q, matrix<float>& d_k, matrix<float>& d_v) {
    for (matrix<float>* gradient : {&d_q, &d_k, &d_v}) gradient->resize(tokens, width);
    const attention_backward_args args{.q = rows(q_),
                                       .k = rows(k_),
                                       .v = rows(v_),
                                       .out = rows(out_),
                                       .lse = statistic(),
                                       .d_out = rows(d_out),
                                       .d_q = rows(d_q),
                                       .d_k = rows(d_k),
                                       .d_v = rows(d_v)};
    call(attention_backward_record, attention_backward_table::operations[0], args);
  }

 private:
  static tensor_view rows(matrix<float>& of) {
    return view(of.data(), {batch, length, heads, head_dim});
  }
  tensor_view statistic() { return view(lse_.data(), {batch, heads, length}); }

  template <class Args>
  static void call(const family& kind, const operation& op, const Args& args) {
    const flash_attention_options options{.causal = true};
    const status done = call_here(kind, {&op, tensors_of(args), &options, false});
    ASSERT_TRUE(done) << done.message();
  }

  matrix<float> q_, k_, v_, out_, lse_;
};

/// The same by its definition.
class defined_attention {
 public:
  using scalar = double;

  matrix<double> forward(const matrix<double>& q, const matrix<double>& k,
                         const matrix<double>& v) {
    q_ = q, k_ = k, v_ = v;
    weights_.clear();
    matrix<double> out(tokens, width);
    for_each_head([&](std::int64_t row, std::int64_t column) {
      matrix<double> weights = block(q, row, column) * block(k, row, column).transpose() * scale();
      for (std::int64_t i = 0; i < length; ++i) {
        weights.row(i) = (weights.row(i).array() - weights.row(i).head(i + 1).maxCoeff()).exp();
        weights.row(i).tail(length - i - 1).setZero();
        weights.row(i) /= weights.row(i).sum();
      }
      out.block(row, column, length, head_dim) = weights * block(v, row, column);
      weights_.push_back(std::move(weights));
    });
    return out;
  }
  void backward(const matrix<double>& d_out, matrix<double>& d_q, matrix<double>& d_k,
                matrix<double>& d_v) {
    for (matrix<double>* gradient : {&d_q, &d_k, &d_v}) gradient->resize(tokens, width);
    std::size_t at = 0;
    for_each_head([&](std::int64_t row, std::int64_t column) {
      const matrix<double>& weights = weights_[at++];
      const matrix<double> d_head = block(d_out, row, column);
      const matrix<double> d_weights = d_head * block(v_, row, column).transpose();
      const auto mean = weights.cwiseProduct(d_weights).rowwise().sum().eval();
      const matrix<double> d_scores = weights.cwiseProduct(d_weights.colwise() - mean) * scale();
      d_v.block(row, column, length, head_dim) = weights.transpose() * d_head;
      d_q.block(row, column, length, head_dim) = d_scores * block(k_, row, column);
      d_k.block(row, column, length, head_dim) = d_scores.transpose() * block(q_, row, column);
    });
  }

 private:
  static double scale() { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
  static matrix<double> block(const matrix<double>& of, std::int64_t row, std::int64_t column) {
    return of.block(row, column, length, head_dim);
  }
  template <class Body>
  static void for_each_head(const Body& body) {
    for (std::int64_t entry = 0; entry < batch; ++entry) {
      for (std::int64_t head = 0; head < heads; ++head) body(entry * length, head * head_dim);
    }
  }

  matrix<double> q_, k_, v_;
  std::vector<matrix<double>> weights_;
};

/// A matrix to learn, with its gradient; twins of any type begin with the same numbers.
template <class Scalar>
struct parameter {
  matrix<Scalar> value, gradient;

  parameter(std::int64_t rows, std::int64_t columns, random_source& random)
      : value(rows, columns), gradient(matrix<Scalar>::Zero(rows, columns)) {
    const float size = 1.0f / std::sqrt(static_cast<float>(rows));
    for (Scalar& x : value.reshaped()) x = static_cast<Scalar>(size * random.bell());
  }
  /// x W, and what it adds to the gradients of W and x.
  matrix<Scalar> times(const matrix<Scalar>& x) const { return x * value; }
  matrix<Scalar> back(const matrix<Scalar>& x, const matrix<Scalar>& d_out) {
    gradient += x.transpose() * d_out;
    return d_out * value.transpose();
  }
};

/// x + attention(x) W_o, then x + tanh(x W_1) W_2.
template <class Attention>
class layer {
  using scalar = typename Attention::scalar;
  using numbers = matrix<scalar>;

 public:
  explicit layer(random_source& random) {
    for (int i = 0; i < 4; ++i) weights.emplace_back(width, width, random);
    weights.emplace_back(width, hidden, random);
    weights.emplace_back(hidden, width, random);
  }
  numbers forward(const numbers& x) {
    in_ = x;
    attended_ = attention_.forward(weights[0].times(x), weights[1].times(x), weights[2].times(x));
    between_ = x + weights[3].times(attended_);
    inner_ = weights[4].times(between_).array().tanh();
    return between_ + weights[5].times(inner_);
  }
  numbers backward(const numbers& d_out) {
    numbers d_inner = weights[5].back(inner_, d_out);
    d_inner.array() *= 1 - inner_.array().square();
    const numbers d_between = d_out + weights[4].back(between_, d_inner);
    numbers d_q, d_k, d_v;
    attention_.backward(weights[3].back(attended_, d_between), d_q, d_k, d_v);
    return d_between + weights[0].back(in_, d_q) + weights[1].back(in_, d_k) +
           weights[2].back(in_, d_v);
  }

  std::vector<parameter<scalar>> weights;

 private:
  Attention attention_;
  numbers in_, attended_, between_, inner_;
};

template <class Attention>
class model {
  using scalar = typename Attention::scalar;
  using numbers = matrix<scalar>;

 public:
  model()
      : random_(7),
        symbol_(symbols, width, random_),
        place_(length, width, random_),
        last_(width, symbols, random_) {
    for (int i = 0; i < layers; ++i) layers_.emplace_back(random_);
  }

  /// One step of gradient descent on windows of the text that begin `first` characters in and a
  /// third of it apart; the mean loss of a character in nats, before the step.
  double step(std::size_t first) {
    const auto character = [&](std::int64_t entry, std::int64_t at) {
      const std::size_t place = first + static_cast<std::size_t>(entry) * text.size() / batch;
      return static_cast<Eigen::Index>(text[(place + static_cast<std::size_t>(at)) % text.size()]);
    };
    numbers x(tokens, width);
    for (std::int64_t row = 0; row < tokens; ++row) {
      x.row(row) =
          symbol_.value.row(character(row / length, row % length)) + place_.value.row(row % length);
    }
    for (auto& each : layers_) x = each.forward(x);
    numbers d_logits = last_.times(x);
    double loss = 0;
    for (std::int64_t row = 0; row < tokens; ++row) {
      auto of_row = d_logits.row(row);
      of_row.array() -= of_row.maxCoeff();
      of_row = of_row.array().exp();
      of_row /= of_row.sum();
      const Eigen::Index next = character(row / length, row % length + 1);
      loss -= std::log(static_cast<double>(of_row[next])) / tokens;
      of_row[next] -= 1;
    }
    numbers d_x = last_.back(x, d_logits / static_cast<scalar>(tokens));
    for (auto at = layers_.rbegin(); at != layers_.rend(); ++at) d_x = at->backward(d_x);
    for (std::int64_t row = 0; row < tokens; ++row) {
      symbol_.gradient.row(character(row / length, row % length)) += d_x.row(row);
      place_.gradient.row(row % length) += d_x.row(row);
    }
    descend(symbol_), descend(place_), descend(last_);
    for (auto& each : layers_) {
      for (auto& weights : each.weights) descend(weights);
    }
    return loss;
  }

 private:
  static void descend(parameter<scalar>& parameter) {
    parameter.value -= static_cast<scalar>(0.2) * parameter.gradient;
    parameter.gradient.setZero();
  }

  random_source random_;
  parameter<scalar> symbol_, place_, last_;
  std::vector<layer<Attention>> layers_;
};

TEST(training, follows_its_twin_in_double) {
  model<library_attention> trained;
  model<defined_attention> twin;
  double before = 0, behind = 0;
  for (int step = 0; step < steps; ++step) {
    const auto first = static_cast<std::size_t>(step * 7) % text.size();
    const double loss = trained.step(first), expected = twin.step(first);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_NEAR(loss, expected, 2e-3 * expected) << "step " << step;
    if (step < 10) before += loss / 10;
    if (step >= steps - 10) behind += loss / 10;
  }
  EXPECT_GT(before, 3.5);
  EXPECT_LT(behind, 2.3);
}

}  // namespace
}  // namespace tessera::support
