// Means from tokens: pieces are summed, and those of long segments added up afterwards.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/mean_pooling/cpu/pieces.hpp>
#include <tessera/kernels/mean_pooling/cpu/scratch.hpp>
#include <tessera/kernels/mean_pooling/cpu/sum.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>

namespace tessera::kernels::mean_pooling::cpu {

template <class Row>
class forward_launch {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  using element = typename shape::element;

 public:
  forward_launch(const mean_pooling_kernel_args& args, const scratch<Row>& memory)
      : args_(args), memory_(memory), cut_(args, memory.chunks_before) {}

  void run(int threads) const {
    using isa_type = typename shape::isa_type;
    prim::parallel_items<isa_type>(cut_.items(), threads, [&](std::int64_t item, int) {
      cut_.for_each_piece(item,
                          [&](const segment& one, std::int64_t index) { sum_piece(one, index); });
    });
    if (!cut_.needs_merge()) return;
    const std::int64_t blocks = (args_.columns + merged_columns - 1) / merged_columns;
    prim::parallel_items<isa_type>(cut_.items() * blocks, threads, [&](std::int64_t item, int) {
      const std::int64_t begin = item % blocks * merged_columns;
      const std::int64_t count = std::min(args_.columns - begin, merged_columns);
      cut_.for_each_segment(item / blocks, [&](const segment& one) {
        if (cut_.count_of(one) != 1) merge(one, begin, count);
      });
    });
  }

 private:
  /// Columns that one item of the second pass adds up; their sums, in double, are 4 KiB.
  static constexpr std::int64_t merged_columns = 512;

  /// What the sums of a segment are divided by: its tokens, or the sum of their weights.
  float divisor_of(const segment& one) const {
    return args_.mask != nullptr ? static_cast<float>(memory_.totals[one.entry])
                                 : static_cast<float>(one.tokens());
  }

  float* partial(const segment& one, std::int64_t index, std::int64_t head) const {
    return memory_.partials + (cut_.slot_of(one, index) * args_.heads + head) * args_.columns;
  }

  element* mean_at(const segment& one, std::int64_t head) const {
    return row_at<Row, element>(args_.to, args_.mean_strides, one.mean_entry, one.mean_row, head);
  }

  void sum_piece(const segment& one, std::int64_t index) const {
    alignas(64) float sums[shape::block_columns];
    const bool alone = cut_.count_of(one) == 1;
    const std::int64_t begin = cut_.piece_begin(one, index);
    const std::int64_t end = cut_.piece_end(one, index);
    const float divisor = divisor_of(one);
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      const element* const tokens =
          row_at<Row, const element>(args_.from, args_.token_strides, one.entry, 0, head);
      for (std::int64_t column = 0; column < args_.columns; column += shape::block_columns) {
        const std::int64_t count = std::min(args_.columns - column, shape::block_columns);
        if (args_.mask == nullptr) {
          sum_tokens<Row>(tokens + begin * args_.token_strides.row + column,
                          args_.token_strides.row, end - begin, count, sums);
        } else {
          sum_weighted_tokens<Row>(args_, tokens + column, one.entry, begin, end, count, sums);
        }
        if (alone) {
          store_mean(mean_at(one, head) + column, sums, count, divisor);
        } else {
          std::copy(sums, sums + count, partial(one, index, head) + column);
        }
      }
    }
  }

  /// A divisor of 0 stands for no token, or only masked ones: the mean is 0.
  static void store_mean(element* to, const float* sums, std::int64_t count, float divisor) {
    const auto by = vec::broadcast(divisor);
    std::int64_t column = 0;
    for (; column + shape::width <= count; column += shape::width) {
      const auto mean = divisor == 0.0f ? vec::zero() : vec::div(vec::load(sums + column), by);
      vec::store_as(to + column, mean);
    }
    if (column < count) {
      const int n = static_cast<int>(count - column);
      const auto mean = divisor == 0.0f ? vec::zero() : vec::div(vec::load_n(sums + column, n), by);
      vec::store_as_n(to + column, mean, n);
    }
  }

  /// Adds up the pieces of a segment in double; none give 0.
  void merge(const segment& one, std::int64_t begin, std::int64_t count) const {
    double totals[merged_columns];
    alignas(64) float sums[merged_columns];
    const std::int64_t parts = cut_.count_of(one);
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      std::fill(totals, totals + count, 0.0);
      for (std::int64_t index = 0; index < parts; ++index) {
        const float* const part = partial(one, index, head) + begin;
        for (std::int64_t column = 0; column < count; ++column) {
          totals[column] += static_cast<double>(part[column]);
        }
      }
      for (std::int64_t column = 0; column < count; ++column) {
        sums[column] = static_cast<float>(totals[column]);
      }
      store_mean(mean_at(one, head) + begin, sums, count, divisor_of(one));
    }
  }

  const mean_pooling_kernel_args& args_;
  const scratch<Row>& memory_;
  pieces<Row> cut_;
};

}  // namespace tessera::kernels::mean_pooling::cpu
