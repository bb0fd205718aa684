// Gradients of what is added to scores: of a bias, summed over the axes that it broadcasts, and of
// sinks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Sums of the gradients of scores in the extents of a bias. An item owns rows of it.
template <class Kernel>
class score_sums {
 public:
  explicit score_sums(const latent_attention_kernel_args& args)
      : to_(args.d_bias), length_(args.length) {}

  std::int64_t items() const {
    return to_.rows == 1 ? 1 : (length_ + tokens_of_item - 1) / tokens_of_item;
  }
  /// The tokens whose rows an item takes.
  prim::key_interval tokens_of(std::int64_t item) const {
    if (to_.rows == 1) return {0, length_};
    return {item * tokens_of_item, std::min((item + 1) * tokens_of_item, length_)};
  }

  /// Adds a row's gradients for the keys of a tile.
  void add(const query_rows<Kernel>& rows, int r, const key_range& keys, const float* d_scores,
           float* sums) const {
    const query_row of = rows.row(r);
    const auto index = [](std::int64_t at, std::int64_t extent) { return extent == 1 ? 0 : at; };
    const std::int64_t row =
        (index(rows.sequence().index, to_.batches) * to_.heads + index(of.head, to_.heads)) *
            to_.rows +
        index(of.token, to_.rows);
    float* TESSERA_RESTRICT to = sums + row * to_.columns + index(keys.key0, to_.columns);
    if (to_.columns == 1) {
      for (int c = 0; c < keys.count; ++c) to[0] += d_scores[c];
    } else {
      for (int c = 0; c < keys.count; ++c) to[c] += d_scores[c];
    }
  }

 private:
  static constexpr std::int64_t tokens_of_item = 64;
  score_gradient to_;
  std::int64_t length_;
};

/// Writes the sums.
template <class Kernel>
void store_bias(const score_gradient& to, const float* sums) {
  using isa_type = typename traits<Kernel>::isa_type;
  for (std::int64_t b = 0; b < to.batches; ++b) {
    for (std::int64_t h = 0; h < to.heads; ++h) {
      for (std::int64_t i = 0; i < to.rows; ++i) {
        for (std::int64_t j = 0; j < to.columns; ++j) {
          prim::store_element<isa_type>(to, b * to.batch + h * to.head + i * to.row + j * to.column,
                                        *sums++);
        }
      }
    }
  }
}

/// - sum over rows of exp(sink - lse) times the row's correction, for each head or all of them.
template <class Kernel>
void store_sinks(const latent_attention_kernel_args& args, const float* corrections) {
  const bool all_heads = args.d_sink_heads == 1;
  for (std::int64_t row = 0; row < args.d_sink_heads; ++row) {
    const std::int64_t first = all_heads ? 0 : row, end = all_heads ? args.heads : row + 1;
    for (std::int64_t t = 0; t < args.sink_count; ++t) {
      double sum = 0;
      for (std::int64_t head = first; head < end; ++head) {
        const float sink = args.sinks[head * args.sink_head_stride + t * args.sink_stride];
        for (std::int64_t entry = 0; entry < args.entries; ++entry) {
          const float* const of_rows = corrections + (entry * args.heads + head) * args.length;
          for (std::int64_t i = 0; i < args.length; ++i) {
            const float lse =
                args.lse.data[entry * args.lse.batch + head * args.lse.head + i * args.lse.row];
            if (lse == prim::minus_infinity) continue;
            const float weight = sink == lse ? 1.0f : std::exp(sink - lse);
            sum -= static_cast<double>(weight) * static_cast<double>(of_rows[i]);
          }
        }
      }
      args.d_sinks[row * args.d_sink_head_stride + t * args.d_sink_stride] =
          static_cast<float>(sum);
    }
  }
}

}  // namespace tessera::kernels::latent_attention::cpu
