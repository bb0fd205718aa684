// The definition of mean pooling and of its gradient, one element after the other. `exact` is
// double, the truth; `as_stored` is float with the result rounded to the tensors' type: what sets
// the tolerance.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// Precisions of an evaluation.
struct pooling_exact {
  using number = double;
  static double rounded(dtype, double value) { return value; }
};
struct pooling_as_stored {
  using number = float;
  static double rounded(dtype type, float value) {
    return static_cast<double>(rounded_to(type, value));
  }
};

/// The output (out, or d_x) in row-major order, and for each element the size of the terms that
/// make it: what its error is relative to.
struct pooling_result {
  std::vector<double> values;
  std::vector<double> sizes;
};

/// Tokens [begin, end) of an entry and the mean they have.
struct pooled_tokens {
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t mean = 0;  ///< row-major row of the means
};

/// The sequences or chunks of a call.
inline std::vector<pooled_tokens> pooled_of(mean_pooling_op op, const mean_pooling_args& args,
                                            const mean_pooling_options& options) {
  const tensor_view& tokens = is_backward(op) ? args.d_x : args.x;
  const bool packed = args.cu_seqlens.present();
  const bool entries = has_chunks(op) || !packed;
  const std::int64_t sequences = packed ? args.cu_seqlens.extent[0] - 1 : tokens.extent[0];
  std::vector<pooled_tokens> all;
  for (std::int64_t n = 0; n < sequences; ++n) {
    const auto offset = [&](std::int64_t at) {
      return static_cast<std::int64_t>(read(args.cu_seqlens, at * args.cu_seqlens.stride[0]));
    };
    const std::int64_t begin = packed ? offset(n) : 0;
    const std::int64_t end = packed ? offset(n + 1) : tokens.extent[entries ? 1 : 0];
    const std::int64_t step = has_chunks(op) ? options.chunk_size : end - begin;
    std::int64_t at = begin;
    do {
      if (has_chunks(op) && at >= end) break;
      const std::int64_t stop = end - at > step ? at + step : end;
      all.push_back({packed ? 0 : n, at, stop, static_cast<std::int64_t>(all.size())});
      at = stop;
    } while (at < end);
  }
  return all;
}

/// One call in precision `Precision`.
template <class Precision>
class pooling_evaluation {
  using number = typename Precision::number;

 public:
  pooling_evaluation(mean_pooling_op op, const mean_pooling_args& args,
                     const mean_pooling_options& options)
      : op_(op),
        args_(args),
        tokens_(is_backward(op) ? args.d_x : args.x),
        means_(is_backward(op) ? args.d_out : args.out),
        with_entry_(has_chunks(op) || !args.cu_seqlens.present()) {
    const tensor_view& output = is_backward(op) ? tokens_ : means_;
    result_.values.assign(static_cast<std::size_t>(output.elements()), 0.0);
    result_.sizes.assign(result_.values.size(), 0.0);
    for (const pooled_tokens& tokens : pooled_of(op, args, options)) evaluate(tokens);
  }

  const pooling_result& result() const noexcept { return result_; }

 private:
  void evaluate(const pooled_tokens& tokens) {
    number total = 0;
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token)
      total += weight(tokens, token);
    if (total == number{0}) return;
    const std::int64_t width = columns();
    for (std::int64_t column = 0; column < width; ++column) {
      if (is_backward(op_)) {
        spread(tokens, column, total);
      } else {
        gather(tokens, column, total);
      }
    }
  }

  void gather(const pooled_tokens& tokens, std::int64_t column, number total) {
    number sum = 0;
    number size = 0;
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const number w = weight(tokens, token);
      if (w == number{0}) continue;
      const number term = w * static_cast<number>(token_at(tokens.entry, token, column));
      sum += term;
      size += std::fabs(term);
    }
    store(tokens.mean * columns() + column, sum / total, size / std::fabs(total));
  }

  void spread(const pooled_tokens& tokens, std::int64_t column, number total) {
    const auto gradient = static_cast<number>(mean_at(tokens.mean, column));
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const number w = weight(tokens, token);
      if (w == number{0}) continue;
      const number value = gradient * w / total;
      const std::int64_t row = tokens.entry * (with_entry_ ? tokens_.extent[1] : 0) + token;
      store(row * columns() + column, value, std::fabs(value));
    }
  }

  void store(std::int64_t at, number value, number size) {
    result_.values[static_cast<std::size_t>(at)] = Precision::rounded(tokens_.type, value);
    result_.sizes[static_cast<std::size_t>(at)] = static_cast<double>(size);
  }

  number weight(const pooled_tokens& tokens, std::int64_t token) const {
    if (!args_.mask.present()) return 1;
    return static_cast<number>(
        read(args_.mask, tokens.entry * args_.mask.stride[0] + token * args_.mask.stride[1]));
  }

  /// Columns of a token over all heads.
  std::int64_t columns() const {
    const auto last = static_cast<std::size_t>(tokens_.rank - 1);
    return tokens_.extent[last] * (has_chunks(op_) ? tokens_.extent[2] : 1);
  }

  std::int64_t inside(const tensor_view& view, std::int64_t column) const {
    const auto last = static_cast<std::size_t>(view.rank - 1);
    if (!has_chunks(op_)) return column * view.stride[last];
    return column / view.extent[last] * view.stride[2] +
           column % view.extent[last] * view.stride[3];
  }
  double token_at(std::int64_t entry, std::int64_t token, std::int64_t column) const {
    const std::int64_t row = with_entry_ ? entry * tokens_.stride[0] + token * tokens_.stride[1]
                                         : token * tokens_.stride[0];
    return read(tokens_, row + inside(tokens_, column));
  }
  /// `mean` counts the means of all entries.
  double mean_at(std::int64_t mean, std::int64_t column) const {
    const std::int64_t row = has_chunks(op_) ? mean / means_.extent[1] * means_.stride[0] +
                                                   mean % means_.extent[1] * means_.stride[1]
                                             : mean * means_.stride[0];
    return read(means_, row + inside(means_, column));
  }

  mean_pooling_op op_;
  const mean_pooling_args& args_;
  const tensor_view& tokens_;
  const tensor_view& means_;
  bool with_entry_;
  pooling_result result_;
};

template <class Precision = pooling_exact>
pooling_result mean_pooling(mean_pooling_op op, const mean_pooling_args& args,
                            const mean_pooling_options& options = {}) {
  return pooling_evaluation<Precision>(op, args, options).result();
}

}  // namespace tessera::reference
