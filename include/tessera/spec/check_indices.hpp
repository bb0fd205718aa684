// Validates numbers of rows, or of none, in a tensor of any rank; see check_contents.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/spec/check_shapes.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::checks {

/// "0,3,2": entry `at` of list `list`, of those along the last axis.
[[gnu::cold, gnu::noinline]] inline std::string place_of_entry(const tensor_view& view,
                                                               std::int64_t list, std::int64_t at) {
  std::string place = std::to_string(at);
  for (auto axis = static_cast<std::size_t>(view.rank - 1); axis-- > 0; list /= view.extent[axis]) {
    place.insert(0, 1, ',').insert(0, std::to_string(list % view.extent[axis]));
  }
  return place;
}

/// Every number is -1, or that of a row of the owner.
inline bool are_indices_or_none(std::string_view name, const tensor_view& view,
                                std::string_view owner, std::int64_t rows, status& failure) {
  const auto last = static_cast<std::size_t>(view.rank - 1);
  const std::int64_t count = view.extent[last], lists = count > 0 ? view.elements() / count : 0;
  for (std::int64_t n = 0; n < lists; ++n) {
    std::int64_t offset = 0, rest = n;
    for (std::size_t axis = last; axis-- > 0; rest /= view.extent[axis]) {
      offset += rest % view.extent[axis] * view.stride[axis];
    }
    const auto* const list = static_cast<const std::int32_t*>(view.data) + offset;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t number = list[i * view.stride[last]];
      if (number >= -1 && number < rows) continue;
      return refuse(failure, name, ": entry ", place_of_entry(view, n, i), " is ", number,
                    ", must be -1 or one of the ", rows, " rows of ", owner);
    }
  }
  return true;
}

}  // namespace tessera::checks
