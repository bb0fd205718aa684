// Which rows of a batch meet which matrix of weights, and how that is cut into work items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_ranges.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

/// Rows of the batch that meet tiles of one matrix.
struct batch_part {
  std::int64_t matrix = 0;
  std::int64_t first = 0;
  int rows = 0;
};

/// All of them, at most `batch_of_item` rows each, in a launch's memory.
template <class Isa>
class batch_parts {
  using row_range = grouped_matmul::cpu::row_range;

 public:
  static std::size_t bytes(const quantized_kernel_args& args) {
    const std::size_t ranges =
        args.group_sizes == nullptr ? 0 : static_cast<std::size_t>(args.matrices);
    const std::size_t all =
        ranges * sizeof(row_range) + static_cast<std::size_t>(most(args)) * sizeof(batch_part);
    return (all + 63) / 64 * 64;
  }

  batch_parts(const quantized_kernel_args& args, std::byte* memory)
      : one_matrix_(args.group_sizes == nullptr), held_{0, args.batch} {
    if (one_matrix_) {
      parts_ = reinterpret_cast<batch_part*>(memory);
      add(0, held_);
      return;
    }
    auto* const ranges = reinterpret_cast<row_range*>(memory);
    parts_ = reinterpret_cast<batch_part*>(ranges + args.matrices);
    grouped_matmul::cpu::find_row_ranges<Isa>(
        {args.group_sizes, args.matrices, args.group_offset, args.local_rows}, args.batch, ranges);
    held_ =
        args.matrices > 0 ? row_range{ranges[0].begin, ranges[args.matrices - 1].end} : row_range{};
    for (std::int64_t matrix = 0; matrix < args.matrices; ++matrix) add(matrix, ranges[matrix]);
  }

  /// Whether some matrix has a row of the batch.
  TESSERA_INLINE bool holds(std::int64_t row) const {
    return row >= held_.begin && row < held_.end;
  }

  /// Parts of a call, at most: of each matrix that has rows one may be short.
  static std::int64_t most(const quantized_kernel_args& args) {
    const std::int64_t matrices = args.group_sizes == nullptr ? 1 : args.matrices;
    return args.batch / batch_of_item + std::min(matrices, args.batch);
  }
  /// The last part; null: no matrix has a row.
  const batch_part* last() const { return count_ == 0 ? nullptr : parts_ + count_ - 1; }
  std::int64_t number_of(const batch_part& part) const { return &part - parts_; }
  /// The part that holds a row of the batch.
  const batch_part& part_of(std::int64_t row) const {
    const auto* const behind = std::upper_bound(
        parts_, parts_ + count_, row,
        [](std::int64_t wanted, const batch_part& part) { return wanted < part.first; });
    return *(behind - 1);
  }

  std::int64_t items(std::int64_t tiles) const { return tiles * count_; }
  /// Calls body(first row of a tile of the weights, its rows, part, thread) for all items. A thread
  /// takes neighbouring items at once: where threads take turns with tiles, each asks for the start
  /// of what another one reads.
  template <class Body>
  void run_tiles(const packed_weights& weights, int rows_of_tile, int threads,
                 const Body& body) const {
    constexpr std::int64_t bytes_at_once = 512 << 10;
    constexpr int turns_of_thread = 8;  // so that all end at the same time
    const std::int64_t tiles = (weights.rows + rows_of_tile - 1) / rows_of_tile;
    const std::int64_t bytes = rows_of_tile * weights.codes.row * 4;
    const std::int64_t all = items(tiles);
    const std::int64_t most = std::min(bytes_at_once / std::max<std::int64_t>(bytes, 1),
                                       all / (std::int64_t{threads} * turns_of_thread));
    const std::int64_t together = std::max<std::int64_t>(most, 1);
    const std::int64_t turns = (all + together - 1) / together;
    prim::parallel_items<Isa>(turns, threads, [&](std::int64_t turn, int thread) {
      const std::int64_t end = std::min(all, (turn + 1) * together);
      for (std::int64_t item = turn * together; item < end; ++item) {
        run_item(item, tiles, [&](std::int64_t tile, const batch_part& part) {
          const std::int64_t row = tile * rows_of_tile;
          const auto rows =
              static_cast<int>(std::min<std::int64_t>(rows_of_tile, weights.rows - row));
          body(row, rows, part, thread);
        });
      }
    });
  }
  /// Calls body(tile of the weights, part): parts of one matrix meet a tile one after the other,
  /// tiles of a matrix the rows of its group.
  template <class Body>
  TESSERA_INLINE void run_item(std::int64_t item, std::int64_t tiles, const Body& body) const {
    if (one_matrix_) return body(item / count_, parts_[item % count_]);
    body(item % tiles, parts_[item / tiles]);
  }

 private:
  void add(std::int64_t matrix, row_range rows) {
    for (std::int64_t first = rows.begin; first < rows.end; first += batch_of_item) {
      parts_[count_++] = {matrix, first,
                          static_cast<int>(std::min(batch_of_item, rows.end - first))};
    }
  }

  bool one_matrix_;
  row_range held_;
  batch_part* parts_ = nullptr;
  std::int64_t count_ = 0;
};

/// A batch as a product packs it, something about each row beside its elements, and memory of
/// threads.
template <class Row, class Element>
struct packed_batch {
  Row* rows;
  Element* elements;
  float* sums;  ///< of the columns of groups
  float* scratch;
};

/// A row of a result that no matrix makes.
template <class Isa>
void store_zeros(const strided_matrix& out, std::int64_t row, std::int64_t columns) {
  constexpr int together = 64;
  constexpr float zeros[together] = {};
  for (std::int64_t at = 0; at < columns; at += together) {
    prim::store_row<Isa>(out, row * out.row + at, std::min<std::int64_t>(together, columns - at),
                         zeros);
  }
}

}  // namespace tessera::kernels::quantized::cpu
