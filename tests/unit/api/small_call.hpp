// A small call with real memory and the answer by definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/flash_attention.hpp>

namespace tessera::testing {

/// f32, one batch entry; values follow from positions.
struct small_call {
  std::int64_t rows, keys, heads, head_dim;
  std::vector<float> q, k, v, out;

  small_call(std::int64_t rows_, std::int64_t keys_, std::int64_t heads_, std::int64_t head_dim_)
      : rows(rows_), keys(keys_), heads(heads_), head_dim(head_dim_) {
    const auto filled = [](std::int64_t size, float step) {
      std::vector<float> values(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(step * static_cast<float>(i + 1));
      }
      return values;
    };
    q = filled(rows * heads * head_dim, 0.37f);
    k = filled(keys * heads * head_dim, 0.71f);
    v = filled(keys * heads * head_dim, 0.13f);
    out.assign(q.size(), -7.0f);
  }

  flash_attention_args args() {
    return {.q = view(q.data(), {1, rows, heads, head_dim}),
            .k = view(k.data(), {1, keys, heads, head_dim}),
            .v = view(v.data(), {1, keys, heads, head_dim}),
            .out = view(out.data(), {1, rows, heads, head_dim})};
  }

  /// Largest distance of `out` from softmax(q k^T / sqrt(D)) v.
  double error() const {
    double worst = 0;
    const auto at = [&](const std::vector<float>& tensor, std::int64_t row, std::int64_t head,
                        std::int64_t d) {
      return static_cast<double>(
          tensor[static_cast<std::size_t>((row * heads + head) * head_dim + d)]);
    };
    std::vector<double> weight(static_cast<std::size_t>(keys));
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < head_dim; ++d)
            score += at(q, i, head, d) * at(k, j, head, d);
          score = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
          weight[static_cast<std::size_t>(j)] = score;
          sum += score;
        }
        for (std::int64_t d = 0; d < head_dim; ++d) {
          double expected = 0;
          for (std::int64_t j = 0; j < keys; ++j) {
            expected += weight[static_cast<std::size_t>(j)] / sum * at(v, j, head, d);
          }
          worst = std::max(worst, std::abs(expected - at(out, i, head, d)));
        }
      }
    }
    return worst;
  }
};

}  // namespace tessera::testing
