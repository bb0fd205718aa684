// Weights that lie k-major, row by row in scratch memory: every kernel reads and writes them there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized {

/// Lines of numbers and what they become: number i of line j goes to place j of line i. Lies of
/// matrices are alike; numbers are as many bytes.
struct turned_lines {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t lines = 0, width = 0;        ///< of `from`
  std::int64_t from_line = 0, to_line = 0;  ///< from one line to the next, in numbers
  std::int64_t from_matrix = 0, to_matrix = 0;
  int size = 0;
};

/// The args of a launch whose weights lie row by row, and how they come there and back. Where they
/// do so in the call, these are the call's, and nothing is turned.
class row_copies {
 public:
  static constexpr std::size_t most_turned = 3;
  using turned_list = std::array<turned_lines, most_turned>;

  /// `packs`: weights are written. Null memory: copies are counted, and pointers stay what they
  /// are.
  row_copies(const quantized_kernel_args& call, bool packs, std::byte* memory)
      : args_(call), packs_(packs), memory_(memory) {
    if (!call.k_major) return;
    packed_weights& weights = args_.weights;
    const std::int64_t words = (weights.columns() * weights.bits + 31) / 32;
    turn(0, weights.codes, words);
    turn(1, weights.scales, weights.groups);
    turn(2, weights.zeros, weights.groups);
    turn(3, args_.d_scales, weights.groups);
    turn(4, args_.d_zeros, weights.groups);
    args_.k_major = false;
  }

  const quantized_kernel_args& args() const { return args_; }
  std::size_t bytes() const { return bytes_; }
  /// What is turned before the launch, and behind it.
  turned_list before() const {
    return packs_ ? turned_list{} : turned_list{to_rows_[0], to_rows_[1], to_rows_[2]};
  }
  turned_list behind() const {
    if (packs_) return {back(to_rows_[0]), back(to_rows_[1]), back(to_rows_[2])};
    return {back(to_rows_[3]), back(to_rows_[4]), {}};
  }

 private:
  /// Rows of whole 16 bytes, as copies want them.
  static constexpr std::int64_t line_bytes = 16, part_bytes = 64;

  void turn(std::size_t number, strided_matrix& matrix, std::int64_t columns) {
    if (matrix.data == nullptr) return;
    const auto size = std::max<std::int64_t>(static_cast<std::int64_t>(size_of(matrix.type)), 1);
    const std::int64_t rows = args_.weights.rows, in_line = line_bytes / size;
    strided_matrix copy = matrix;
    copy.row = (columns + in_line - 1) / in_line * in_line;
    copy.column = 1;
    copy.matrix = rows * copy.row;
    if (memory_ != nullptr) copy.data = memory_ + bytes_;
    const auto all = static_cast<std::size_t>(args_.matrices * copy.matrix * size);
    bytes_ += (all + part_bytes - 1) / part_bytes * part_bytes;
    to_rows_[number] = {.from = static_cast<const std::byte*>(matrix.data),
                        .to = static_cast<std::byte*>(copy.data),
                        .lines = columns,
                        .width = rows,
                        .from_line = matrix.column,
                        .to_line = copy.row,
                        .from_matrix = matrix.matrix,
                        .to_matrix = copy.matrix,
                        .size = static_cast<int>(size)};
    matrix = copy;
  }
  static turned_lines back(const turned_lines& there) {
    return {.from = there.to,
            .to = const_cast<std::byte*>(there.from),
            .lines = there.width,
            .width = there.lines,
            .from_line = there.to_line,
            .to_line = there.from_line,
            .from_matrix = there.to_matrix,
            .to_matrix = there.from_matrix,
            .size = there.size};
  }

  quantized_kernel_args args_;
  bool packs_;
  std::byte* memory_;
  std::size_t bytes_ = 0;
  std::array<turned_lines, 5> to_rows_{};
};

}  // namespace tessera::kernels::quantized
