// The gradients of a whole call: the sums of what its rows add (attention_backward_row.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention_backward/args.hpp>

#include "attention_backward_row.hpp"

namespace tessera::reference {

/// A gradient in row-major order of its tensor's shape, with what each element's error is relative
/// to, and the size of the logits that it is made of.
struct gradient {
  std::vector<double> values, sizes, logits;

  void make(std::int64_t elements) {
    const auto count = static_cast<std::size_t>(elements);
    values.assign(count, 0.0), sizes.assign(count, 0.0), logits.assign(count, 0.0);
  }
  void add(std::int64_t at, double value, double size, double logit) {
    const auto index = static_cast<std::size_t>(at);
    values[index] += value;
    sizes[index] += size;
    logits[index] = std::max(logits[index], logit);
  }
};

struct backward_result {
  gradient d_q, d_k, d_v, d_bias_pre, d_bias_post, d_sinks;
};

/// Row-major place of (b, h, i, j) in a tensor whose axes of extent 1 are summed over.
inline std::int64_t reduced_place(const tensor_view& view, std::int64_t b, std::int64_t h,
                                  std::int64_t i, std::int64_t j) {
  const std::int64_t index[4] = {b, h, i, j};
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    place = place * view.extent[axis] + (view.extent[axis] == 1 ? 0 : index[axis]);
  }
  return place;
}

/// Evaluates the whole call.
template <class Precision>
class backward_evaluation {
 public:
  backward_evaluation(const attention_backward_args& args, const flash_attention_options& options)
      : args_(args), options_(options), size_(extents_of(forward_of(args))) {
    result_.d_q.make(args.d_q.elements());
    result_.d_k.make(args.d_k.elements());
    result_.d_v.make(args.d_v.elements());
    if (args.d_bias_pre.present()) result_.d_bias_pre.make(args.d_bias_pre.elements());
    if (args.d_bias_post.present()) result_.d_bias_post.make(args.d_bias_post.elements());
    if (args.d_sinks.present()) result_.d_sinks.make(args.d_sinks.elements());
    for (std::int64_t b = 0; b < size_.entries; ++b) {
      for (std::int64_t h = 0; h < size_.q_heads; ++h) {
        const backward_head<Precision> head(args, options, b, h);
        for (std::int64_t i = 0; i < head.rows().q_length; ++i) add_row(head, b, h, i);
      }
    }
    round(result_.d_k, args.q.type);
    round(result_.d_v, args.q.type);
    round(result_.d_bias_pre, args.d_bias_pre.type);
    round(result_.d_bias_post, args.d_bias_post.type);
  }

  backward_result& result() noexcept { return result_; }

 private:
  void round(gradient& to, dtype type) {
    for (double& value : to.values) {
      value = static_cast<double>(
          Precision::rounded(type, static_cast<typename Precision::real>(value)));
    }
  }

  void add_row(const backward_head<Precision>& head, std::int64_t b, std::int64_t h,
               std::int64_t i) {
    const backward_row row = head.row(i);
    if (row.shift == -HUGE_VAL) return;
    const used_rows& used = head.rows();
    const std::int64_t q_row = (size_.packed ? 0 : b * size_.q_rows) + used.q_begin + i;
    for (std::int64_t d = 0; d < size_.head_dim; ++d) {
      result_.d_q.add((q_row * size_.q_heads + h) * size_.head_dim + d,
                      row.d_q[static_cast<std::size_t>(d)], row.d_q_size, row.logit_size);
    }
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const std::int64_t j = row.keys[n];
      const std::int64_t token = (size_.packed ? 0 : b * size_.k_rows) + used.k_begin + j;
      const std::int64_t k_row = token * size_.kv_heads + size_.kv_head_of(h);
      const auto rounded = [&](double value) {
        return static_cast<double>(
            Precision::rounded(args_.q.type, static_cast<typename Precision::real>(value)));
      };
      for (std::int64_t d = 0; d < size_.head_dim; ++d) {
        const double q = row.q[static_cast<std::size_t>(d)] * head.scale();
        result_.d_k.add(k_row * size_.head_dim + d, rounded(row.d_before[n]) * q,
                        row.d_before_size[n] * std::fabs(q), row.logit_size);
      }
      for (std::int64_t d = 0; d < size_.v_head_dim; ++d) {
        const double d_out = row.d_out[static_cast<std::size_t>(d)];
        result_.d_v.add(k_row * size_.v_head_dim + d, rounded(row.weight[n]) * d_out,
                        row.weight[n] * std::fabs(d_out), row.logit_size);
      }
      if (args_.d_bias_pre.present()) {
        result_.d_bias_pre.add(reduced_place(args_.d_bias_pre, b, h, i, j), row.d_before[n],
                               row.d_before_size[n], row.logit_size);
      }
      if (args_.d_bias_post.present()) {
        result_.d_bias_post.add(reduced_place(args_.d_bias_post, b, h, i, j), row.d_score[n],
                                row.d_score_size[n], row.logit_size);
      }
    }
    add_sinks(row, h);
  }

  void add_sinks(const backward_row& row, std::int64_t h) {
    if (!args_.d_sinks.present()) return;
    const std::int64_t count = args_.sinks.extent[1];
    for (std::int64_t t = 0; t < count; ++t) {
      const double sink = at(args_.sinks, args_.sinks.extent[0] == 1 ? 0 : h, t);
      const double weight = sink == row.shift ? 1.0 : std::exp(sink - row.shift);
      const double logit = std::isfinite(sink) ? std::fabs(sink) : 0.0;
      result_.d_sinks.add((args_.d_sinks.extent[0] == 1 ? 0 : h) * count + t,
                          -weight * row.correction, weight * row.correction_size,
                          std::max(row.logit_size, weight > 0 ? logit : 0.0));
    }
  }

  const attention_backward_args& args_;
  const flash_attention_options& options_;
  flash_extents size_;
  backward_result result_;
};

}  // namespace tessera::reference
