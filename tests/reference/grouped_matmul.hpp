// The definition of grouped matrix products and of their gradients, one product after the other, in
// double or in float.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>

#include "../support/random.hpp"
#include "elements.hpp"

namespace tessera::reference {

/// A sum, and the squares of its terms: a sum of n terms of random signs is about as large as their
/// root, and so is what its rounding error is relative to.
template <class Number>
struct summed {
  Number value{};
  double squares = 0;

  void add(Number term) {
    value += term;
    squares += static_cast<double>(term) * static_cast<double>(term);
  }
  summed times(Number factor) const {
    const auto wide = static_cast<double>(factor);
    return {value * factor, squares * wide * wide};
  }
};

/// What an activation makes of a number, in its precision.
template <class Number>
Number activated(product_activation how, Number x) {
  const Number half = 0.5, one = 1;
  switch (how) {
    case product_activation::none:
      break;
    case product_activation::relu:
      return x < 0 ? Number{} : x;
    case product_activation::silu:
      return x / (one + std::exp(-x));
    case product_activation::gelu:
      return half * x * (one + std::erf(x * std::sqrt(half)));
    case product_activation::gelu_tanh: {
      const auto inner =
          static_cast<Number>(0.7978845608028654) * (x + static_cast<Number>(0.044715) * x * x * x);
      return half * x * (one + std::tanh(inner));
    }
  }
  return x;
}

/// Scales of elements of 8 bits.
struct code_scales {
  tensor_view lhs{}, rhs{};  ///< absent: elements have none
  product_scales how = product_scales::blocks;

  double of_lhs(std::int64_t row, std::int64_t k) const {
    return lhs.present() ? at(lhs, row, block(k)) : 1;
  }
  double of_rhs(std::int64_t group, std::int64_t n, std::int64_t k) const {
    return at(rhs, group, how == product_scales::blocks ? n / 128 : n, block(k));
  }

 private:
  std::int64_t block(std::int64_t k) const { return how == product_scales::blocks ? k / 128 : 0; }
};

/// Rows of each matrix of rhs.
struct group_rows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Sizes of groups of which some are 0; together as many rows as there are, fewer or more.
void fill_group_sizes(const tensor_view& sizes, std::int64_t rows, support::random_source& random);

inline std::vector<group_rows> group_rows_of(const grouped_matmul_args& args,
                                             const grouped_matmul_options& options) {
  const std::int64_t all = args.lhs.extent[0], groups = args.rhs.extent[0];
  const std::int64_t before = options.group_offset;
  std::int64_t row = 0;
  std::vector<group_rows> found;
  for (std::int64_t group = 0; group < before + groups; ++group) {
    if (options.lhs_rows == grouped_rows::local && group < before) continue;
    const auto size = static_cast<std::int64_t>(at(args.group_sizes, group));
    const std::int64_t end = std::min(row + std::max<std::int64_t>(size, 0), all);
    if (group >= before) found.push_back({row, end});
    row = end;
  }
  return found;
}

template <class Number>
class grouped_matmul_evaluation {
 public:
  using sums = std::vector<summed<Number>>;

  grouped_matmul_evaluation(const grouped_matmul_args& args, const grouped_matmul_options& options,
                            const code_scales& scales = {})
      : args_(args),
        options_(options),
        scales_(scales),
        transposed_(options.transpose_rhs),
        rows_(group_rows_of(args, options)),
        m_(args.lhs.extent[0]),
        k_(args.lhs.extent[1]),
        n_(args.rhs.extent[transposed_ ? 1 : 2]) {
    if (args.rhs_scale.present()) blocks_ = args.rhs_scale.extent[1];
  }

  sums out() const {
    sums result(size(m_ * n_));
    for_each_group([&](std::int64_t group, std::int64_t row) {
      for (std::int64_t n = 0; n < n_; ++n) {
        summed<Number>& to = result[size(row * n_ + n)];
        for (std::int64_t k = 0; k < k_; ++k) to.add(row_element(row, k) * weight(group, k, n));
        if (args_.rhs_bias.present()) to.add(number(args_.rhs_bias, group, n));
      }
    });
    for (std::int64_t at = 0; args_.out_init.present() && at < m_ * n_; ++at) {
      result[size(at)].add(number(args_.out_init, at / n_, at % n_));
    }
    for_each_group([&](std::int64_t, std::int64_t row) {
      for (std::int64_t n = 0; n < n_; ++n) {
        summed<Number>& to = result[size(row * n_ + n)];
        to = completed(to, row, n);
      }
    });
    return result;
  }

  sums d_lhs() const {
    sums result(size(m_ * k_));
    for_each_group([&](std::int64_t group, std::int64_t row) {
      for (std::int64_t k = 0; k < k_; ++k) {
        for (std::int64_t n = 0; n < n_; ++n) {
          result[size(row * k_ + k)].add(number(args_.d_out, row, n) * weight(group, k, n));
        }
      }
    });
    return result;
  }

  sums d_rhs() const {
    sums result(size(groups() * k_ * n_));
    for_each_weight([&](std::int64_t group, std::int64_t k, std::int64_t n) {
      const std::int64_t within = transposed_ ? n * k_ + k : k * n_ + n;
      result[size(group * k_ * n_ + within)] = product(group, k, n).times(scale(group, k, n));
    });
    return result;
  }

  sums d_rhs_scale() const {
    sums result(size(groups() * blocks_ * n_));
    for_each_weight([&](std::int64_t group, std::int64_t k, std::int64_t n) {
      const summed<Number> term = product(group, k, n).times(stored(group, k, n));
      summed<Number>& to = result[size((group * blocks_ + k / (k_ / blocks_)) * n_ + n)];
      to = {to.value + term.value, to.squares + term.squares};
    });
    return result;
  }

  sums d_rhs_bias() const {
    sums result(size(groups() * n_));
    for_each_group([&](std::int64_t group, std::int64_t row) {
      for (std::int64_t n = 0; n < n_; ++n) {
        result[size(group * n_ + n)].add(number(args_.d_out, row, n));
      }
    });
    return result;
  }

  sums d_out_init() const {
    sums result(size(m_ * n_));
    for (std::int64_t at = 0; at < m_ * n_; ++at) {
      result[size(at)].add(number(args_.d_out, at / n_, at % n_));
    }
    return result;
  }

 private:
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  static Number number(const tensor_view& of, std::int64_t row, std::int64_t column) {
    return static_cast<Number>(at(of, row, column));
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(rows_.size()); }

  /// Errors of activations are those of what they are applied to: slopes are about 1 at most.
  summed<Number> completed(const summed<Number>& sum, std::int64_t row, std::int64_t n) const {
    summed<Number> done{activated(options_.activation, sum.value), sum.squares};
    done = done.times(static_cast<Number>(options_.out_scale));
    if (args_.multiplier.present()) done = done.times(number(args_.multiplier, row, n));
    if (args_.residual.present()) done.add(number(args_.residual, row, n));
    return done;
  }

  template <class Visit>
  void for_each_group(const Visit& visit) const {
    for (std::int64_t group = 0; group < groups(); ++group) {
      const group_rows& rows = rows_[size(group)];
      for (std::int64_t row = rows.begin; row < rows.end; ++row) visit(group, row);
    }
  }
  /// Weights that some row is multiplied by.
  template <class Visit>
  void for_each_weight(const Visit& visit) const {
    for (std::int64_t at = 0; at < groups() * k_ * n_; ++at) {
      const std::int64_t group = at / (k_ * n_);
      if (rows_[size(group)].begin == rows_[size(group)].end) continue;
      visit(group, at / n_ % k_, at % n_);
    }
  }

  Number stored(std::int64_t group, std::int64_t k, std::int64_t n) const {
    return static_cast<Number>(transposed_ ? at(args_.rhs, group, n, k)
                                           : at(args_.rhs, group, k, n));
  }
  Number row_element(std::int64_t row, std::int64_t k) const {
    return number(args_.lhs, row, k) * static_cast<Number>(scales_.of_lhs(row, k));
  }
  Number scale(std::int64_t group, std::int64_t k, std::int64_t n) const {
    if (scales_.rhs.present()) return static_cast<Number>(scales_.of_rhs(group, n, k));
    if (!args_.rhs_scale.present()) return 1;
    return static_cast<Number>(at(args_.rhs_scale, group, k / (k_ / blocks_), n));
  }
  Number weight(std::int64_t group, std::int64_t k, std::int64_t n) const {
    return stored(group, k, n) * scale(group, k, n);
  }
  /// Element (k, n) of lhs^T d_out over the rows of a group.
  summed<Number> product(std::int64_t group, std::int64_t k, std::int64_t n) const {
    summed<Number> sum;
    const group_rows& rows = rows_[size(group)];
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      sum.add(number(args_.lhs, row, k) * number(args_.d_out, row, n));
    }
    return sum;
  }

  const grouped_matmul_args& args_;
  const grouped_matmul_options& options_;
  code_scales scales_;
  bool transposed_;
  std::vector<group_rows> rows_;
  std::int64_t m_, k_, n_;
  std::int64_t blocks_ = 1;
};

}  // namespace tessera::reference
