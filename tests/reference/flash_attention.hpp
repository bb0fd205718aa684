// The plain definition of flash_attention, attention and scaled_dot_product_attention: one row of
// scores at a time, no tiles, nothing shared with a kernel. This is the only oracle.
//
//   s     = softmax_scale * <q[i], k[j]> + bias_pre[i,j]
//   s     = cap * tanh(s / cap)                       (with logits_soft_cap)
//   s     = s + bias_post[i,j]
//   m     = max(max over visible j of s[j], max over t of sink[t])
//   l     = sum over visible j of exp(s[j] - m) + sum over t of exp(sink[t] - m)
//   out   = sum over visible j of Z[i,j] exp(s[j] - m) v[j] / l,   lse = m + ln(l)
//
// Z is 1 without dropout, else 0 (dropped) or 1 / (1 - p). A row that sees nothing gives out 0; its
// lse is -inf, or that of the sinks alone; a row beyond its entry's length has lse -inf always.
//
// The same text serves two precisions: `exact` (double) is the truth, `as_stored` (float, operands
// of the second product and results rounded to the tensors' types) is what a kernel of that
// precision can be expected to reach; its distance from the truth sets the tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>

#include "elements.hpp"
#include "philox.hpp"
#include "visibility.hpp"

namespace tessera::reference {

struct exact {
  using real = double;
  static double rounded(dtype, double value) { return value; }
};

struct as_stored {
  using real = float;
  static float rounded(dtype type, float value) { return rounded_to(type, value); }
};

/// Extra terms of the header path: a logit modifier `s -> logits(s, b, h, i, j)`, applied after
/// bias_post, and a mask `visible(b, h, i, j)`. i and j are local to the entry.
struct no_hooks {
  template <class Real>
  Real logits(Real s, std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {
    return s;
  }
  bool visible(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const { return true; }
};

/// Results of one query row and head.
struct flash_row {
  std::vector<double> out;      ///< [Dv]
  std::vector<double> weights;  ///< [keys of the entry], after dropout
  double lse = -HUGE_VAL;
  double row_max = -HUGE_VAL;
  double out_size = 0.0;    ///< largest over d of the sum of |terms| that make out[d]
  double logit_size = 0.0;  ///< largest sum of |terms| that make a logit; finite sinks count
};

/// K and V of one entry and kv head, evaluated row by row.
template <class Precision, class Hooks = no_hooks>
class flash_head {
 public:
  using real = typename Precision::real;

  /// `head` is a query head; K and V are those of its group.
  flash_head(const flash_attention_args& args, const flash_attention_options& options,
             std::int64_t entry, std::int64_t head, Hooks hooks = {})
      : args_(args),
        options_(options),
        hooks_(hooks),
        extents_(extents_of(args)),
        rows_(rows_of(args, entry)),
        entry_(entry),
        head_(head),
        keys_(gather(args.k, extents_.head_dim)),
        values_(gather(args.v, extents_.v_head_dim)) {}

  /// Row i, counted from the entry's first.
  flash_row row(std::int64_t i) const {
    flash_row result;
    result.out.assign(static_cast<std::size_t>(extents_.v_head_dim), 0.0);
    result.weights.assign(static_cast<std::size_t>(rows_.k_length), 0.0);
    if (i >= rows_.q_length) return result;
    std::vector<std::int64_t> visible;
    for (std::int64_t j = 0; j < rows_.k_length; ++j) {
      if (sees(args_, options_, rows_, entry_, head_, i, j) &&
          hooks_.visible(entry_, head_, i, j)) {
        visible.push_back(j);
      }
    }
    const std::vector<real> s = logits(i, visible, result.logit_size);
    const std::vector<real> sinks = head_sinks();
    real m = -HUGE_VAL;
    for (const real logit : s) m = larger(m, logit);
    for (const real sink : sinks) {
      m = larger(m, sink);
      if (std::isfinite(sink)) {
        result.logit_size = std::max(result.logit_size, std::fabs(static_cast<double>(sink)));
      }
    }
    if (m == -HUGE_VAL) return result;
    finish(i, visible, s, sinks, m, result);
    return result;
  }

 private:
  static real larger(real a, real b) { return std::isnan(b) || b > a ? b : a; }

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

  /// Offset of (entry, row, head, 0) in a tensor shaped like q.
  std::int64_t row_offset(const tensor_view& view, std::int64_t row, std::int64_t head) const {
    if (extents_.packed) return row * view.stride[0] + head * view.stride[1];
    return entry_ * view.stride[0] + row * view.stride[1] + head * view.stride[2];
  }

  std::vector<real> logits(std::int64_t i, const std::vector<std::int64_t>& visible,
                           double& largest_size) const {
    const double scale =
        options_.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(extents_.head_dim)));
    const std::int64_t begin = row_offset(args_.q, rows_.q_begin + i, head_);
    std::vector<real> query(static_cast<std::size_t>(extents_.head_dim));
    for (std::int64_t d = 0; d < extents_.head_dim; ++d) {
      query[static_cast<std::size_t>(d)] = static_cast<real>(read(args_.q, begin + d));
    }
    std::vector<real> s;
    s.reserve(visible.size());
    for (const std::int64_t j : visible) {
      const real* key = keys_.data() + j * extents_.head_dim;
      real dot = 0, size = 0;
      for (std::size_t d = 0; d < query.size(); ++d) {
        dot += query[d] * key[d];
        size += std::fabs(query[d] * key[d]);
      }
      s.push_back(modified(dot * static_cast<real>(scale), i, j));
      largest_size = std::max(largest_size, std::fabs(scale) * static_cast<double>(size) +
                                                bias_size(args_.bias_pre, i, j) +
                                                bias_size(args_.bias_post, i, j));
    }
    return s;
  }

  double bias_size(const tensor_view& bias, std::int64_t i, std::int64_t j) const {
    return bias.present() ? std::fabs(at(bias, entry_, head_, i, j)) : 0.0;
  }

  real modified(real s, std::int64_t i, std::int64_t j) const {
    if (args_.bias_pre.present()) s += static_cast<real>(at(args_.bias_pre, entry_, head_, i, j));
    if (options_.logits_soft_cap) {
      const real cap = static_cast<real>(*options_.logits_soft_cap);
      s = cap * std::tanh(s / cap);
    }
    if (args_.bias_post.present()) s += static_cast<real>(at(args_.bias_post, entry_, head_, i, j));
    return hooks_.logits(s, entry_, head_, i, j);
  }

  std::vector<real> head_sinks() const {
    std::vector<real> sinks;
    if (!args_.sinks.present()) return sinks;
    for (std::int64_t t = 0; t < args_.sinks.extent[1]; ++t) {
      const std::int64_t row = args_.sinks.extent[0] == 1 ? 0 : head_;
      const std::int64_t offset = row * args_.sinks.stride[0] + t * args_.sinks.stride[1];
      sinks.push_back(static_cast<real>(read(args_.sinks, offset)));
    }
    return sinks;
  }

  void finish(std::int64_t i, const std::vector<std::int64_t>& visible, const std::vector<real>& s,
              const std::vector<real>& sinks, real m, flash_row& result) const {
    std::vector<real> p;
    p.reserve(s.size());
    real l = 0;
    for (const real logit : s) p.push_back(std::exp(logit - m));
    for (const real term : p) l += term;
    // A sink of +inf is the maximum and takes everything: its own term is 1, not exp(inf - inf).
    for (const real sink : sinks) l += sink == m ? real{1} : std::exp(sink - m);

    const double drop = options_.dropout_probability;
    const real normalizer = options_.normalize ? real{1} / l : real{1};
    std::vector<real> sum(result.out.size(), real{0});
    std::vector<real> size(result.out.size(), real{0});
    for (std::size_t n = 0; n < visible.size(); ++n) {
      const std::int64_t j = visible[n];
      real z = 1;
      if (drop > 0.0) {
        const bool kept = dropout_keeps(drop, options_.dropout_seed, entry_, head_, i, j);
        z = kept ? static_cast<real>(1.0 / (1.0 - drop)) : real{0};
      }
      result.weights[static_cast<std::size_t>(j)] = static_cast<double>(
          Precision::rounded(args_.weights.type, z == real{0} ? real{0} : z * p[n] * normalizer));
      if (z == real{0}) continue;
      const real operand = Precision::rounded(args_.q.type, z * p[n]);
      const real* value = values_.data() + j * extents_.v_head_dim;
      for (std::size_t d = 0; d < sum.size(); ++d) {
        sum[d] += operand * value[d];
        size[d] += std::fabs(operand * value[d]);
      }
    }
    for (std::size_t d = 0; d < sum.size(); ++d) {
      result.out[d] = static_cast<double>(Precision::rounded(args_.out.type, sum[d] * normalizer));
      result.out_size = std::max(result.out_size, static_cast<double>(size[d] * normalizer));
    }
    result.lse = static_cast<double>(m + std::log(l));
    result.row_max = static_cast<double>(m);
  }

  const flash_attention_args& args_;
  const flash_attention_options& options_;
  Hooks hooks_;
  flash_extents extents_;
  used_rows rows_;
  std::int64_t entry_;
  std::int64_t head_;
  std::vector<real> keys_;    // [keys of the entry, D]
  std::vector<real> values_;  // [keys of the entry, Dv]
};

/// Results of a whole call, each in row-major order of its tensor's shape. Packed rows that belong
/// to no sequence hold out 0 and lse -inf.
struct flash_result {
  std::vector<double> out;                 ///< [B,Sq,Hq,Dv]; packed [Tq,Hq,Dv]
  std::vector<double> lse;                 ///< [B,Hq,Sq]; packed [Hq,Tq]
  std::vector<double> row_max;             ///< like lse
  std::vector<double> weights;             ///< [B,Hq,Sq,Sk] if args.weights is present
  std::vector<std::uint8_t> dropout_mask;  ///< [B,Hq,Sq,Sk] if args.dropout_mask is present
  std::vector<double> out_size;            ///< of each row of out, see flash_row
  std::vector<double> out_logit_size;      ///< of each row of out
  std::vector<double> lse_logit_size;      ///< of each element of lse
};

/// The bits of a dropout mask, masked elements included.
inline std::vector<std::uint8_t> dropout_mask(const flash_extents& size, double probability,
                                              std::uint64_t seed) {
  std::vector<std::uint8_t> bits;
  bits.reserve(static_cast<std::size_t>(size.entries * size.q_heads * size.q_rows * size.k_rows));
  for (std::int64_t b = 0; b < size.entries; ++b) {
    for (std::int64_t h = 0; h < size.q_heads; ++h) {
      for (std::int64_t i = 0; i < size.q_rows; ++i) {
        for (std::int64_t j = 0; j < size.k_rows; ++j) {
          bits.push_back(dropout_keeps(probability, seed, b, h, i, j) ? 1 : 0);
        }
      }
    }
  }
  return bits;
}

/// Evaluates the whole call. Outputs of `args` are read for presence and type, never written; `out`
/// may be absent.
template <class Precision = exact, class Hooks = no_hooks>
flash_result flash_attention(const flash_attention_args& args,
                             const flash_attention_options& options, Hooks hooks = {}) {
  const flash_extents size = extents_of(args);
  const std::int64_t rows = size.packed ? size.q_rows : size.entries * size.q_rows;
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  flash_result result;
  result.out.assign(count(rows * size.q_heads * size.v_head_dim), 0.0);
  result.lse.assign(count(rows * size.q_heads), -HUGE_VAL);
  result.row_max = result.lse;
  result.out_size.assign(count(rows * size.q_heads), 0.0);
  result.out_logit_size = result.out_size;
  result.lse_logit_size = result.out_size;
  if (args.weights.present()) {
    result.weights.assign(count(rows * size.q_heads * size.k_rows), 0.0);
  }
  if (args.dropout_mask.present()) {
    result.dropout_mask = dropout_mask(size, options.dropout_probability, options.dropout_seed);
  }
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const used_rows used = rows_of(args, b);
    for (std::int64_t h = 0; h < size.q_heads; ++h) {
      const flash_head<Precision, Hooks> head(args, options, b, h, hooks);
      for (std::int64_t i = 0; i < used.q_length; ++i) {
        const flash_row row = head.row(i);
        const std::int64_t q_row = size.packed ? used.q_begin + i : b * size.q_rows + i;
        const std::int64_t statistic =
            size.packed ? h * size.q_rows + q_row : (b * size.q_heads + h) * size.q_rows + i;
        std::copy(row.out.begin(), row.out.end(),
                  result.out.begin() + (q_row * size.q_heads + h) * size.v_head_dim);
        result.lse[count(statistic)] = row.lse;
        result.row_max[count(statistic)] = row.row_max;
        result.out_size[count(q_row * size.q_heads + h)] = row.out_size;
        result.out_logit_size[count(q_row * size.q_heads + h)] = row.logit_size;
        result.lse_logit_size[count(statistic)] = row.logit_size;
        if (args.weights.present()) {
          std::copy(row.weights.begin(), row.weights.end(),
                    result.weights.begin() + statistic * size.k_rows);
        }
      }
    }
  }
  return result;
}

}  // namespace tessera::reference
