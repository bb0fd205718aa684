// The definition of the fused losses, a token after the other in double, and the size of the terms
// that each result is made of: what its error is relative to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/families/losses/reduction.hpp>
#include <tessera/spec/tensor_view.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// Numbers, and for each the sum of |terms| it is made of.
struct sized_numbers {
  std::vector<double> values;
  std::vector<double> sizes;

  void resize(std::size_t count) {
    values.resize(count);
    sizes.resize(count);
  }
  void add(std::size_t at, double value, double size) {
    values[at] += value;
    sizes[at] += size;
  }
};

/// Element of a tensor with a number for each token, which lie in so many axes.
inline std::int64_t offset_of_row(const tensor_view& view, std::int64_t row, int axes) {
  std::int64_t offset = 0;
  for (auto axis = static_cast<std::size_t>(axes); axis-- > 0;) {
    offset += row % view.extent[axis] * view.stride[axis];
    row /= view.extent[axis];
  }
  return offset;
}
inline double at_row(const tensor_view& view, std::int64_t row, int axes) {
  return read(view, offset_of_row(view, row, axes));
}
/// The row of a tensor with a row for each token.
inline std::vector<double> row_of(const tensor_view& view, std::int64_t row) {
  const int axes = view.rank - 1;
  const auto last = static_cast<std::size_t>(axes);
  std::vector<double> values;
  for (std::int64_t v = 0; v < view.extent[last]; ++v) {
    values.push_back(read(view, offset_of_row(view, row, axes) + v * view.stride[last]));
  }
  return values;
}

/// The tensors and options that decide what tokens weigh.
struct token_weighting {
  tensor_view targets{}, weights{}, mask{};
  std::int64_t rows = 0;
  int axes = 1;
  std::int64_t classes = 0;
  std::int64_t ignore_index = 0;

  /// The class of a token; -1: none.
  std::int64_t target(std::int64_t row) const {
    if (!targets.present()) return -1;
    const auto target = static_cast<std::int64_t>(at_row(targets, row, axes));
    return target != ignore_index && target >= 0 && target < classes ? target : -1;
  }
  double weight(std::int64_t row) const {
    double weight = targets.present() && target(row) < 0 ? 0 : 1;
    for (const tensor_view* factor : {&mask, &weights}) {
      if (factor->present() && weight != 0) weight *= at_row(*factor, row, axes);
    }
    return weight;
  }
  double sum() const {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += weight(row);
    return sum;
  }
  double size_of_sum() const {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += std::fabs(weight(row));
    return sum;
  }
  /// What the losses of a reduction are divided by.
  double divisor(loss_reduction reduction) const {
    return reduction == loss_reduction::mean ? std::max(sum(), 1e-8) : 1;
  }
};

/// What is added up over tokens.
inline sized_numbers reduced(loss_reduction reduction, const token_weighting& tokens,
                             const sized_numbers& rows) {
  if (reduction == loss_reduction::none) return rows;
  sized_numbers result;
  result.resize(1);
  const double divisor = tokens.divisor(reduction);
  for (std::size_t row = 0; row < rows.values.size(); ++row) {
    result.add(0, rows.values[row] / divisor, rows.sizes[row] / divisor);
  }
  return result;
}

/// A token's logits relative to the largest, and the logarithm of the sum of their powers.
struct log_softmax {
  explicit log_softmax(std::span<const double> logits, double factor = 1) {
    for (const double x : logits) shift = std::max(shift, x);
    if (shift == -HUGE_VAL) shift = 0;
    double sum = 0;
    for (const double x : logits) {
      differences.push_back((x - shift) * factor);
      sum += std::exp(differences.back());
    }
    log_sum = std::log(sum);
  }
  double log_probability(std::size_t v) const { return differences[v] - log_sum; }
  double probability(std::size_t v) const { return std::exp(log_probability(v)); }

  double shift = -HUGE_VAL;
  double log_sum = 0;
  std::vector<double> differences;
};

/// What a token's logits are compared with.
struct entropy_target {
  std::int64_t target = -1;
  std::span<const double> shares{};
  double label_smoothing = 0;
  double z_loss = 0;

  double on_target(std::size_t classes) const { return classes > 1 ? 1 - label_smoothing : 1; }
  double elsewhere(std::size_t classes) const {
    return classes > 1 ? label_smoothing / static_cast<double>(classes - 1) : 0;
  }
  double share(std::size_t v, std::size_t classes) const {
    if (target < 0) return shares[v];
    return v == static_cast<std::size_t>(target) ? on_target(classes) : elsewhere(classes);
  }
};

/// Loss of a token, and gradients for a loss whose gradient is `factor`.
struct token_entropy {
  double loss = 0, loss_size = 0, z_part = 0, z_size = 0;
  bool correct = false;
  sized_numbers d_logits, d_shares;
};

inline token_entropy entropy_of(std::span<const double> logits, const entropy_target& target,
                                double factor) {
  const log_softmax softmax(logits);
  const std::size_t classes = logits.size();
  const double lse = softmax.shift + softmax.log_sum;
  token_entropy result;
  double sum = 0, entropy = 0;
  result.d_logits.resize(classes);
  result.d_shares.resize(classes);
  for (std::size_t v = 0; v < classes; ++v) sum += target.share(v, classes);
  // The powers themselves have rounding errors, those of log_sum near 0 are theirs.
  result.loss_size = std::fabs(sum) * (1 + std::fabs(softmax.log_sum));
  result.loss = sum == 0 ? 0 : sum * softmax.log_sum;
  for (std::size_t v = 0; v < classes; ++v) {
    const double share = target.share(v, classes), difference = softmax.differences[v];
    const double of_class = share == 0 ? 0 : share * difference;
    result.loss -= of_class;
    result.loss_size += std::fabs(of_class);
    if (target.target >= 0 && share > 0) entropy -= share * std::log(share);
    const double of_z = 2 * target.z_loss * lse, probability = softmax.probability(v);
    const double scaled = target.z_loss == 0 ? sum : sum + of_z;
    result.d_logits.values[v] = factor * (scaled * probability - share);
    result.d_logits.sizes[v] =
        std::fabs(factor) * (std::fabs(scaled) * probability + std::fabs(share));
    result.d_shares.values[v] = factor * (softmax.log_sum - difference);
    result.d_shares.sizes[v] =
        std::fabs(factor) * (1 + std::fabs(softmax.log_sum) + std::fabs(difference));
  }
  result.loss -= entropy;
  result.loss_size += std::fabs(entropy);
  if (target.z_loss != 0) {
    result.z_part = target.z_loss * lse * lse;
    result.z_size = target.z_loss * std::pow(std::fabs(lse) + 1, 2);
  }
  result.loss += result.z_part;
  result.loss_size += result.z_size;
  const auto largest = std::max_element(logits.begin(), logits.end());
  result.correct = target.target >= 0 && largest - logits.begin() == target.target;
  return result;
}

}  // namespace tessera::reference
