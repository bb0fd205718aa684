// The gradient of every token: that of its mean, times its share of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/mean_pooling/cpu/pieces.hpp>
#include <tessera/kernels/mean_pooling/cpu/scratch.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/stream.hpp>

namespace tessera::kernels::mean_pooling::cpu {

template <class Row>
class backward_launch {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  using isa_type = typename shape::isa_type;
  using element = typename shape::element;

 public:
  backward_launch(const mean_pooling_kernel_args& args, const scratch<Row>& memory)
      : args_(args), memory_(memory), cut_(args, memory.chunks_before) {}

  void run(int threads) const {
    prim::parallel_items<isa_type>(cut_.items(), threads, [&](std::int64_t item, int) {
      cut_.for_each_piece(item, [&](const segment& one, std::int64_t index) {
        write_piece(one, cut_.piece_begin(one, index), cut_.piece_end(one, index));
      });
      if (args_.cu_seqlens != nullptr) clear_unused(item);
      prim::stream<isa_type>::fence();
    });
  }

 private:
  void write_piece(const segment& one, std::int64_t begin, std::int64_t end) const {
    alignas(64) element row[shape::block_columns];
    for (std::int64_t head = 0; head < args_.heads; ++head) {
      const element* const mean = row_at<Row, const element>(args_.from, args_.mean_strides,
                                                             one.mean_entry, one.mean_row, head);
      for (std::int64_t column = 0; column < args_.columns; column += shape::block_columns) {
        const std::int64_t count = std::min(args_.columns - column, shape::block_columns);
        if (args_.mask == nullptr) {
          scale(mean + column, static_cast<float>(1.0 / static_cast<double>(one.tokens())), count,
                row);
          for (std::int64_t token = begin; token < end; ++token) {
            write(one.entry, token, head, column, row, count);
          }
        } else {
          write_weighted(one, begin, end, head, mean + column, column, count, row);
        }
      }
    }
  }

  /// Tokens of equal weight in a row share their gradient. A weight of 0 gives 0, whatever the
  /// gradient of the mean is.
  void write_weighted(const segment& one, std::int64_t begin, std::int64_t end, std::int64_t head,
                      const element* mean, std::int64_t column, std::int64_t count,
                      element* row) const {
    const double total = memory_.totals[one.entry];
    float last = 0.0f;
    std::fill(row, row + count, element());
    for (std::int64_t token = begin; token < end; ++token) {
      const float weight = total == 0.0 ? 0.0f : weight_of<Row>(args_, one.entry, token);
      if (!(weight == last)) {
        if (weight == 0.0f) {
          std::fill(row, row + count, element());
        } else {
          scale(mean, static_cast<float>(static_cast<double>(weight) / total), count, row);
        }
        last = weight;
      }
      write(one.entry, token, head, column, row, count);
    }
  }

  /// Tokens behind the last sequence.
  void clear_unused(std::int64_t item) const {
    const std::int64_t used = args_.cu_seqlens[args_.sequences];
    const std::int64_t begin = std::max(cut_.item_begin(item), used);
    const std::int64_t end = std::min(cut_.item_end(item), args_.tokens);
    for (std::int64_t token = begin; token < end; ++token) {
      for (std::int64_t head = 0; head < args_.heads; ++head) {
        element* const to = token_at(0, token, head);
        std::fill(to, to + args_.columns, element());
      }
    }
  }

  static void scale(const element* from, float factor, std::int64_t count, element* to) {
    const auto by = vec::broadcast(factor);
    std::int64_t column = 0;
    for (; column + shape::width <= count; column += shape::width) {
      vec::store_as(to + column, vec::mul(vec::load_as(from + column), by));
    }
    if (column < count) {
      const int n = static_cast<int>(count - column);
      vec::store_as_n(to + column, vec::mul(vec::load_as_n(from + column, n), by), n);
    }
  }

  element* token_at(std::int64_t entry, std::int64_t token, std::int64_t head) const {
    return row_at<Row, element>(args_.to, args_.token_strides, entry, token, head);
  }

  void write(std::int64_t entry, std::int64_t token, std::int64_t head, std::int64_t column,
             const element* row, std::int64_t count) const {
    auto* const to = reinterpret_cast<std::byte*>(token_at(entry, token, head) + column);
    const auto* const from = reinterpret_cast<const std::byte*>(row);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(element);
    if constexpr (shape::config.stores == pooling_stores::streaming) {
      prim::stream<isa_type>::copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  const mean_pooling_kernel_args& args_;
  const scratch<Row>& memory_;
  pieces<Row> cut_;
};

}  // namespace tessera::kernels::mean_pooling::cpu
