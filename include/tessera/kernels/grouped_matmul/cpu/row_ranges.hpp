// Which rows belong to which matrix, as the sizes of groups say.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows [begin, end) of a matrix.
struct row_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  TESSERA_INLINE std::int64_t count() const { return end - begin; }
};

/// Groups that have a matrix each, among all groups of a problem.
struct local_groups {
  const std::int32_t* sizes;  ///< of all groups
  std::int64_t count;
  std::int64_t offset;  ///< the group of matrix 0
  bool local_rows;      ///< row 0 is the first one of that group
};

/// The rows of every matrix, of `rows` in all: sizes below 0 count as 0, and what reaches beyond
/// the rows is cut off. The ISA in the type keeps translation units with different flags apart.
template <class Isa>
void find_row_ranges(const local_groups& groups, std::int64_t rows, row_range* ranges) {
  std::int64_t row = 0;
  const auto next = [&](std::int64_t group) {
    const std::int64_t size = groups.sizes[group], left = rows - row;
    row += size < 0 ? 0 : size < left ? size : left;
  };
  for (std::int64_t group = 0; !groups.local_rows && group < groups.offset; ++group) next(group);
  for (std::int64_t group = 0; group < groups.count; ++group) {
    ranges[group].begin = row;
    next(groups.offset + group);
    ranges[group].end = row;
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
