// The plain definition of the gradients of attention: one row of scores at a time, no tiles,
// nothing shared with a kernel.
//
//   s, Z, m, l, out, lse as in flash_attention.hpp;  w = m where outputs are unnormalized, else lse
//   P     = exp(s - w)                                 of the keys that the row sees
//   D     = sum of d_out out - d_lse exp(w' - lse) + sum of Z P d_weights,  w' = w
//           (unnormalized: without the first sum, for m is a constant)
//   d_s   = P (Z (<d_out, v> + d_weights) - D)
//   d_bias_post = d_s,   d_bias_pre = d_s (1 - tanh(x / cap)^2) with x before the cap
//   d_q   = scale * sum over j of d_bias_pre k,  d_k = scale * sum over i of d_bias_pre q,
//   d_v   = sum over i of Z P d_out,  d_sinks = - sum over i of exp(sink - w) D
//
// `exact` takes nothing from a forward call: the gradient as it is. `as_stored` reads out, lse and
// row_max as a kernel does, in float, operands and results rounded to the tensors' types; its
// distance from the truth sets the tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention_backward/args.hpp>

#include "elements.hpp"
#include "flash_attention.hpp"
#include "philox.hpp"
#include "visibility.hpp"

namespace tessera::reference {

/// What one query row and head adds to the gradients, for each key that it sees; with the sums of
/// magnitudes of terms that errors are relative to.
struct backward_row {
  std::vector<std::int64_t> keys;
  std::vector<double> weight;                   ///< Z P
  std::vector<double> d_score, d_score_size;    ///< d_bias_post
  std::vector<double> d_before, d_before_size;  ///< d_bias_pre
  std::vector<double> q, d_out;                 ///< [D], [Dv]: the row itself
  std::vector<double> d_q;                      ///< [D]
  double d_q_size = 0;
  double correction = 0, correction_size = 0;  ///< D
  double shift = -HUGE_VAL;                    ///< w; -inf: the row has no gradient
  double logit_size = 0;
};

/// The rows of one entry and query head.
template <class Precision>
class backward_head {
 public:
  using real = typename Precision::real;
  static constexpr bool is_exact = std::is_same_v<Precision, exact>;

  backward_head(const attention_backward_args& args, const flash_attention_options& options,
                std::int64_t entry, std::int64_t head)
      : args_(args),
        forward_(forward_of(args)),
        options_(options),
        extents_(extents_of(forward_)),
        rows_(rows_of(forward_, entry)),
        entry_(entry),
        head_(head),
        scale_(options.softmax_scale.value_or(1.0 /
                                              std::sqrt(static_cast<double>(extents_.head_dim)))),
        keys_(gather(args.k, extents_.head_dim)),
        values_(gather(args.v, extents_.v_head_dim)) {}

  /// Row i, counted from the entry's first.
  backward_row row(std::int64_t i) const {
    backward_row result;
    result.d_q.assign(static_cast<std::size_t>(extents_.head_dim), 0.0);
    result.q = elements_of(args_.q, i, extents_.head_dim);
    result.d_out = elements_of(args_.d_out, i, extents_.v_head_dim);
    for (std::int64_t j = 0; j < rows_.k_length; ++j) {
      if (sees(forward_, options_, rows_, entry_, head_, i, j)) result.keys.push_back(j);
    }
    std::vector<real> slope;
    const std::vector<real> s = logits(i, result, slope);
    const residuals of_forward = residuals_of(i, result, s);
    if (of_forward.shift == -HUGE_VAL) return result;
    result.shift = static_cast<double>(of_forward.shift);
    if (std::isfinite(result.shift)) {
      result.logit_size = std::max(result.logit_size, std::fabs(result.shift));
    }
    evaluate(i, s, slope, of_forward, result);
    return result;
  }

  const used_rows& rows() const { return rows_; }
  double scale() const { return scale_; }

 private:
  /// Row i of a tensor shaped like q.
  std::vector<double> elements_of(const tensor_view& view, std::int64_t i,
                                  std::int64_t width) const {
    const std::int64_t begin = row_offset(view, rows_.q_begin + i, head_);
    std::vector<double> elements;
    for (std::int64_t d = 0; d < width; ++d) elements.push_back(read(view, begin + d));
    return elements;
  }

  struct residuals {
    real shift = -HUGE_VAL;
    real lse = -HUGE_VAL;
    std::vector<real> out;
  };

  std::vector<real> gather(const tensor_view& view, std::int64_t width) const {
    const std::int64_t kv_head = extents_.kv_head_of(head_);
    std::vector<real> rows(static_cast<std::size_t>(rows_.k_length * width));
    for (std::int64_t j = 0; j < rows_.k_length; ++j) {
      const std::int64_t begin = row_offset(view, rows_.k_begin + j, kv_head);
      for (std::int64_t d = 0; d < width; ++d) {
        rows[static_cast<std::size_t>(j * width + d)] = static_cast<real>(read(view, begin + d));
      }
    }
    return rows;
  }
  std::int64_t row_offset(const tensor_view& view, std::int64_t row, std::int64_t head) const {
    if (extents_.packed) return row * view.stride[0] + head * view.stride[1];
    return entry_ * view.stride[0] + row * view.stride[1] + head * view.stride[2];
  }
  real statistic(const tensor_view& view, std::int64_t i) const {
    return static_cast<real>(extents_.packed ? at(view, head_, rows_.q_begin + i)
                                             : at(view, entry_, head_, i));
  }
  real kept(std::int64_t i, std::int64_t j) const {
    const double drop = options_.dropout_probability;
    if (drop <= 0.0) return 1;
    const bool keeps = dropout_keeps(drop, options_.dropout_seed, entry_, head_, i, j);
    return keeps ? static_cast<real>(1.0 / (1.0 - drop)) : real{0};
  }

  std::vector<real> logits(std::int64_t i, backward_row& result, std::vector<real>& slope) const {
    std::vector<real> s;
    for (const std::int64_t j : result.keys) {
      real dot = 0, size = 0;
      for (std::int64_t d = 0; d < extents_.head_dim; ++d) {
        const real term = static_cast<real>(result.q[static_cast<std::size_t>(d)]) *
                          keys_[static_cast<std::size_t>(j * extents_.head_dim + d)];
        dot += term;
        size += std::fabs(term);
      }
      real x = dot * static_cast<real>(scale_);
      size *= static_cast<real>(std::fabs(scale_));
      slope.push_back(1);
      if (args_.bias_pre.present()) {
        const real bias = static_cast<real>(at(args_.bias_pre, entry_, head_, i, j));
        x += bias;
        size += std::fabs(bias);
      }
      if (options_.logits_soft_cap) {
        const real cap = static_cast<real>(*options_.logits_soft_cap);
        const real share = real{1} / std::cosh(x / cap);  // 1 - tanh^2 has nothing left of it
        slope.back() = share * share;
        x = cap * std::tanh(x / cap);
      }
      if (args_.bias_post.present()) {
        const real bias = static_cast<real>(at(args_.bias_post, entry_, head_, i, j));
        x += bias;
        size += std::fabs(bias);
      }
      s.push_back(x);
      result.logit_size = std::max(result.logit_size, static_cast<double>(size));
    }
    return s;
  }

  std::vector<real> head_sinks() const {
    std::vector<real> sinks;
    if (!args_.sinks.present()) return sinks;
    const std::int64_t row = args_.sinks.extent[0] == 1 ? 0 : head_;
    for (std::int64_t t = 0; t < args_.sinks.extent[1]; ++t) {
      sinks.push_back(static_cast<real>(
          read(args_.sinks, row * args_.sinks.stride[0] + t * args_.sinks.stride[1])));
    }
    return sinks;
  }

  /// What the forward call knew of the row: evaluated again, or as it was stored.
  residuals residuals_of(std::int64_t i, const backward_row& row,
                         const std::vector<real>& s) const {
    residuals known;
    known.out.assign(static_cast<std::size_t>(extents_.v_head_dim), real{0});
    if constexpr (!is_exact) {
      known.lse = statistic(args_.lse, i);
      known.shift = options_.normalize ? known.lse : statistic(args_.row_max, i);
      if (known.lse == -HUGE_VAL) known.shift = known.lse;
      if (known.shift == -HUGE_VAL) return known;
      const std::vector<double> out = elements_of(args_.out, i, extents_.v_head_dim);
      for (std::size_t d = 0; d < out.size(); ++d) known.out[d] = static_cast<real>(out[d]);
      return known;
    }
    const std::vector<real> sinks = head_sinks();
    real m = -HUGE_VAL;
    for (const real logit : s) m = std::isnan(logit) || logit > m ? logit : m;
    for (const real sink : sinks) m = std::max(m, sink);
    if (m == -HUGE_VAL) return known;
    real l = 0;
    for (const real logit : s) l += std::exp(logit - m);
    for (const real sink : sinks) l += sink == m ? real{1} : std::exp(sink - m);
    known.lse = m + std::log(l);
    known.shift = options_.normalize ? known.lse : m;
    for (std::size_t n = 0; n < s.size(); ++n) {
      const real weight = kept(i, row.keys[n]) * std::exp(s[n] - known.shift);
      for (std::size_t d = 0; d < known.out.size(); ++d) {
        known.out[d] +=
            weight * values_[static_cast<std::size_t>(row.keys[n] * extents_.v_head_dim) + d];
      }
    }
    return known;
  }

  void evaluate(std::int64_t i, const std::vector<real>& s, const std::vector<real>& slope,
                const residuals& known, backward_row& result) const {
    const std::size_t count = s.size();
    std::vector<real> p(count), into(count), into_size(count);  // P; Z (<d_out, v> + d_weights)
    real correction = 0, correction_size = 0;
    if (options_.normalize) {
      for (std::size_t d = 0; d < known.out.size(); ++d) {
        const real term = static_cast<real>(result.d_out[d]) * known.out[d];
        correction += term;
        correction_size += std::fabs(term);
      }
    }
    if (args_.d_lse.present()) {
      const real term = statistic(args_.d_lse, i) * std::exp(known.shift - known.lse);
      correction -= term;
      correction_size += std::fabs(term);
    }
    for (std::size_t n = 0; n < count; ++n) {
      const std::int64_t j = result.keys[n];
      p[n] = std::exp(s[n] - known.shift);
      const real z = kept(i, j);
      result.weight.push_back(static_cast<double>(z * p[n]));
      for (std::int64_t d = 0; d < extents_.v_head_dim; ++d) {
        const real term = static_cast<real>(result.d_out[static_cast<std::size_t>(d)]) *
                          values_[static_cast<std::size_t>(j * extents_.v_head_dim + d)];
        into[n] += term;
        into_size[n] += std::fabs(term);
      }
      if (args_.d_weights.present()) {
        const real term = static_cast<real>(at(args_.d_weights, entry_, head_, i, j));
        into[n] += term;
        into_size[n] += std::fabs(term);
        correction += z * p[n] * term;
        correction_size += std::fabs(z * p[n] * term);
      }
      into[n] *= z;
      into_size[n] *= z;
    }
    result.correction = static_cast<double>(correction);
    result.correction_size = static_cast<double>(correction_size);
    std::vector<real> sum(result.d_q.size()), size(sum);
    for (std::size_t n = 0; n < count; ++n) {
      const real d_score = p[n] * (into[n] - correction);
      const real d_size = p[n] * (into_size[n] + correction_size);
      result.d_score.push_back(static_cast<double>(d_score));
      result.d_score_size.push_back(static_cast<double>(d_size));
      result.d_before.push_back(static_cast<double>(d_score * slope[n]));
      result.d_before_size.push_back(static_cast<double>(d_size * slope[n]));
      const real operand = Precision::rounded(args_.q.type, d_score * slope[n]);
      const real* key = keys_.data() + result.keys[n] * extents_.head_dim;
      for (std::size_t d = 0; d < sum.size(); ++d) {
        sum[d] += operand * key[d];
        size[d] += d_size * slope[n] * std::fabs(key[d]);
      }
    }
    for (std::size_t d = 0; d < sum.size(); ++d) {
      result.d_q[d] =
          static_cast<double>(Precision::rounded(args_.q.type, sum[d] * static_cast<real>(scale_)));
      result.d_q_size = std::max(result.d_q_size, std::fabs(scale_) * static_cast<double>(size[d]));
    }
  }

  const attention_backward_args& args_;
  flash_attention_args forward_;
  const flash_attention_options& options_;
  flash_extents extents_;
  used_rows rows_;
  std::int64_t entry_;
  std::int64_t head_;
  double scale_;
  std::vector<real> keys_;    // [keys of the entry, D]
  std::vector<real> values_;  // [keys of the entry, Dv]
};

}  // namespace tessera::reference
