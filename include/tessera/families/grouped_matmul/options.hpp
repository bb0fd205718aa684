// Options of the grouped matmul operations, under the names that tools and files use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Which rows of the problem lhs holds, where rhs holds some of its groups only.
enum class grouped_rows : std::uint8_t {
  global,  ///< those of all groups; rows of other groups are not read
  local,   ///< those of the local groups: row 0 is the first one of group `group_offset`
};
inline constexpr std::array<std::string_view, 2> grouped_rows_names{"global", "local"};

struct grouped_matmul_options {
  /// rhs is [G,N,K] instead of [G,K,N].
  bool transpose_rhs = false;
  /// Matrix g of rhs belongs to group group_offset + g of group_sizes. At least 0.
  std::int64_t group_offset = 0;
  grouped_rows lhs_rows = grouped_rows::global;

  friend bool operator==(const grouped_matmul_options&, const grouped_matmul_options&) = default;
};

}  // namespace tessera
