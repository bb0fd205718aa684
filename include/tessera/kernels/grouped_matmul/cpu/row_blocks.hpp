// How the rows of a call are cut: which belong to which matrix, and blocks of them that become
// tiles of a result.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_ranges.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows [first, first + rows) that are multiplied by matrix `group`; -1: by none.
struct row_block {
  std::int64_t group = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  /// Rows of no matrix are rows of a tensor that all matrices share.
  TESSERA_INLINE std::int64_t matrix() const { return group < 0 ? 0 : group; }
};

/// The rows of every matrix, and blocks of all rows in their order. Both follow from the sizes of
/// the groups alone: no bit of a result depends on how they are cut.
template <class Kernel>
struct row_lists {
  row_range* ranges = nullptr;  ///< [groups]
  row_block* blocks = nullptr;
  std::int64_t block_count = 0;

  static std::size_t bytes(const grouped_matmul_kernel_args& args) {
    const auto groups = static_cast<std::size_t>(args.groups);
    const std::size_t all = groups * sizeof(row_range) + most_blocks(args) * sizeof(row_block);
    return (all + 63) / 64 * 64;
  }

  row_lists(const grouped_matmul_kernel_args& args, std::byte* memory)
      : ranges(reinterpret_cast<row_range*>(memory)),
        blocks(reinterpret_cast<row_block*>(ranges + args.groups)) {
    find_ranges(args);
    std::int64_t done = 0;
    for (std::int64_t group = 0; group < args.groups; ++group) {
      add_blocks(-1, {done, ranges[group].begin});
      add_blocks(group, ranges[group]);
      done = ranges[group].end;
    }
    if (args.group_sizes != nullptr) add_blocks(-1, {done, args.m});
  }

 private:
  /// Each run of rows has a block that is not full, at most: of every matrix, in front and behind.
  static std::size_t most_blocks(const grouped_matmul_kernel_args& args) {
    const std::int64_t whole = args.m / traits<Kernel>::block_m;
    const bool shared = args.group_sizes != nullptr;
    return static_cast<std::size_t>(shared ? args.groups + 2 + whole : args.groups * (whole + 1));
  }

  void find_ranges(const grouped_matmul_kernel_args& args) {
    for (std::int64_t group = 0; args.group_sizes == nullptr && group < args.groups; ++group) {
      ranges[group] = {0, args.m};
    }
    if (args.group_sizes == nullptr) return;
    find_row_ranges<typename traits<Kernel>::isa_type>(
        {args.group_sizes, args.groups, args.group_offset, args.local_rows}, args.m, ranges);
  }

  /// As few blocks as hold the rows, of about equal size and whole register tiles.
  void add_blocks(std::int64_t group, row_range rows) {
    using shape = traits<Kernel>;
    if (rows.count() <= 0) return;
    const std::int64_t parts = blocks_of<Kernel>(rows.count(), shape::block_m);
    const std::int64_t each = blocks_of<Kernel>(rows.count(), parts * shape::mr) * shape::mr;
    for (std::int64_t first = rows.begin; first < rows.end; first += each) {
      const std::int64_t left = rows.end - first;
      blocks[block_count++] = {group, first, left < each ? left : each};
    }
  }
};

}  // namespace tessera::kernels::grouped_matmul::cpu
