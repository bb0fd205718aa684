// Products with packed weights and their gradients, one sum at a time, in two precisions: the truth
// in double, and what float arithmetic and the tensors' types make of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/families/quantized/fits.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/product_args.hpp>

#include "elements.hpp"
#include "operations.hpp"
#include "quantized.hpp"

namespace tessera::reference {

/// A sum of products that knows how large its terms are.
template <class Number>
struct term_sum {
  Number value = 0;
  double squares = 0;

  void add(Number a, Number b) {
    const Number term = a * b;
    value += term;
    squares += static_cast<double>(term) * static_cast<double>(term);
  }
  /// What an error is relative to: the sum, or what terms of any sign would come to.
  double size() const {
    return std::max(std::sqrt(squares), std::fabs(static_cast<double>(value)));
  }
};

/// Sums row by row, and the largest size of each row.
struct sum_rows {
  std::vector<double> values, sizes;

  template <class Number>
  void add_row(const std::vector<term_sum<Number>>& row, dtype type) {
    double most = 0;
    for (const term_sum<Number>& sum : row) {
      const auto value = static_cast<double>(sum.value);
      values.push_back(sizeof(Number) == sizeof(double)
                           ? value
                           : static_cast<double>(rounded_to(type, static_cast<float>(value))));
      if (!std::isnan(sum.size())) most = std::max(most, sum.size());
    }
    sizes.push_back(most);
  }
};

/// The weights of a product, as they are stored, and the sums over their columns or rows.
template <class Number>
class quantized_product {
 public:
  quantized_product(const quantized_matmul_args& args, const quantized_options& options)
      : from_{options, args.w_q, args.scales, args.zeros, args.tensor_scale},
        rows_(from_.rows()),
        columns_(from_.columns()) {
    // A product in the precision of x has its weights in it, where f16 holds them.
    const bool held =
        args.x.type != dtype::f16 || fits_of<quantized_config>::fits_f16(options.mode);
    const dtype precision = held ? args.x.type : dtype::f32;
    for (const double weight : decoded(from_)) {
      weights_.push_back(
          sizeof(Number) == sizeof(double)
              ? static_cast<Number>(weight)
              : static_cast<Number>(rounded_to(precision, static_cast<float>(weight))));
    }
  }

  /// x to out, and d_out to d_x.
  sum_rows out(const tensor_view& x, dtype type) const {
    return has_groups_of_inputs(from_.options.axis) ? over_columns(x, type) : over_rows(x, type);
  }
  sum_rows d_x(const tensor_view& d_out, dtype type) const {
    return has_groups_of_inputs(from_.options.axis) ? over_rows(d_out, type)
                                                    : over_columns(d_out, type);
  }
  /// a [M, columns] to [M, rows].
  sum_rows over_columns(const tensor_view& a, dtype type) const {
    return over(a, type, columns_, rows_, 1, columns_);
  }
  /// a [M, rows] to [M, columns].
  sum_rows over_rows(const tensor_view& a, dtype type) const {
    return over(a, type, rows_, columns_, columns_, 1);
  }

  /// The gradients of scales and zeros; `by_row` [M, rows], `by_column` [M, columns].
  std::pair<sum_rows, sum_rows> of_scales(const tensor_view& by_row, const tensor_view& by_column,
                                          dtype type) const {
    const std::vector<double> p = to_doubles(by_row), q = to_doubles(by_column);
    const std::int64_t batch = by_row.extent[0], size = group_size_of(from_.options);
    std::pair<sum_rows, sum_rows> all;
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::vector<term_sum<Number>> scales, zeros;
      for (std::int64_t first = 0; first < columns_; first += size) {
        term_sum<Number> scale, zero;
        const Number factor =
            from_.is_biased() ? Number{1} : -static_cast<Number>(from_.scale(row, first / size));
        for (std::int64_t column = first; column < first + size; ++column) {
          const auto code = static_cast<Number>(from_.unscaled(row, column));
          for (std::int64_t m = 0; m < batch; ++m) {
            const auto gradient = static_cast<Number>(p[index(m, rows_, row)]) *
                                  static_cast<Number>(q[index(m, columns_, column)]);
            scale.add(gradient, code);
            zero.add(gradient, factor);
          }
        }
        scales.push_back(scale);
        zeros.push_back(zero);
      }
      all.first.add_row(scales, type);
      all.second.add_row(zeros, type);
    }
    return all;
  }

 private:
  static std::size_t index(std::int64_t row, std::int64_t columns, std::int64_t column) {
    return static_cast<std::size_t>(row * columns + column);
  }

  /// `along` and `across` are the distances of weights that are summed, and of sums.
  sum_rows over(const tensor_view& a, dtype type, std::int64_t terms, std::int64_t sums,
                std::int64_t along, std::int64_t across) const {
    const std::vector<double> operand = to_doubles(a);
    sum_rows all;
    for (std::int64_t m = 0; m < a.extent[0]; ++m) {
      std::vector<term_sum<Number>> row(static_cast<std::size_t>(sums));
      for (std::int64_t n = 0; n < sums; ++n) {
        for (std::int64_t k = 0; k < terms; ++k) {
          row[static_cast<std::size_t>(n)].add(
              static_cast<Number>(operand[index(m, terms, k)]),
              weights_[static_cast<std::size_t>(k * along + n * across)]);
        }
      }
      all.add_row(row, type);
    }
    return all;
  }

  packed_view from_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<Number> weights_;
};

}  // namespace tessera::reference
