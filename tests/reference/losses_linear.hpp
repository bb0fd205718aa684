// The definition of cross entropy of a product, a token after the other in double, and the size of
// the terms of each result; see losses.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tessera/families/losses/linear_cross_entropy_args.hpp>

#include "losses.hpp"

namespace tessera::reference {

/// Hidden rows, a weight and a bias as numbers.
class linear_head {
 public:
  linear_head(const linear_cross_entropy_args& given, std::optional<double> soft_cap)
      : weight_(to_doubles(given.lm_head_weight)),
        columns_(static_cast<std::size_t>(given.lm_head_weight.extent[0])),
        classes_(static_cast<std::size_t>(given.lm_head_weight.extent[1])),
        soft_cap_(soft_cap) {
    bias_.resize(classes_);
    if (given.lm_head_bias.present()) bias_ = to_doubles(given.lm_head_bias);
  }

  std::size_t columns() const { return columns_; }
  std::size_t classes() const { return classes_; }
  /// The largest sum of |terms| of a logit so far.
  double largest_terms() const { return largest_terms_; }
  double weight(std::size_t column, std::size_t v) const { return weight_[column * classes_ + v]; }

  /// A token's logits before the cap.
  std::vector<double> products(std::span<const double> hidden) {
    std::vector<double> x = bias_, terms(classes_);
    for (std::size_t v = 0; v < classes_; ++v) terms[v] = std::fabs(bias_[v]);
    for (std::size_t column = 0; column < columns_; ++column) {
      for (std::size_t v = 0; v < classes_; ++v) {
        const double term = hidden[column] * weight(column, v);
        x[v] += term;
        terms[v] += std::fabs(term);
      }
    }
    largest_terms_ = std::max(largest_terms_, *std::max_element(terms.begin(), terms.end()));
    return x;
  }
  std::vector<double> capped(std::vector<double> x) const {
    for (double& each : x) {
      if (soft_cap_) each = *soft_cap_ * std::tanh(each / *soft_cap_);
    }
    return x;
  }
  /// The derivative of the cap.
  double slope(double x) const {
    return soft_cap_ ? 1 / std::pow(std::cosh(x / *soft_cap_), 2) : 1;
  }

 private:
  std::vector<double> weight_, bias_;
  std::size_t columns_, classes_;
  std::optional<double> soft_cap_;
  double largest_terms_ = 0;
};

/// Gradients of hidden rows, weight and bias.
struct linear_gradients {
  sized_numbers d_hidden, d_weight, d_bias;

  linear_gradients(std::size_t rows, const linear_head& head) {
    d_hidden.resize(rows * head.columns());
    d_weight.resize(head.columns() * head.classes());
    d_bias.resize(head.classes());
  }

  /// Of a token, from the gradients of its products.
  void add(std::size_t row, std::span<const double> hidden, const sized_numbers& d_products,
           const linear_head& head) {
    const std::size_t classes = head.classes();
    for (std::size_t column = 0; column < head.columns(); ++column) {
      for (std::size_t v = 0; v < classes; ++v) {
        const double value = d_products.values[v], size = d_products.sizes[v];
        const double weight = head.weight(column, v);
        d_hidden.add(row * head.columns() + column, value * weight, size * std::fabs(weight));
        d_weight.add(column * classes + v, value * hidden[column],
                     size * std::fabs(hidden[column]));
      }
    }
    for (std::size_t v = 0; v < classes; ++v) {
      d_bias.add(v, d_products.values[v], d_products.sizes[v]);
    }
  }
};

}  // namespace tessera::reference
