// Numbers of a call that checks have bound: its dims, the lists it has, lengths by chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/spec/check_numbers.hpp>
#include <tessera/spec/declaration.hpp>

#include "../reference/elements.hpp"
#include "random.hpp"

namespace tessera::support {

inline std::int64_t dim_of(const bound_call& call, std::int8_t dim) {
  return call.dims[static_cast<std::size_t>(dim)];
}

inline std::vector<std::int64_t> numbers_in(const tensor_view& view) {
  std::vector<std::int64_t> numbers;
  for (const double value : reference::to_doubles(view)) {
    numbers.push_back(static_cast<std::int64_t>(value));
  }
  return numbers;
}

/// Those of a list that are looked at.
inline std::vector<std::int64_t> used_numbers_in(const bound_call& call, std::size_t list) {
  std::vector<std::int64_t> numbers = numbers_in(call.tensors[list]);
  numbers.resize(static_cast<std::size_t>(checks::entries_in_use(call, list)));
  return numbers;
}

inline std::int64_t drawn_length(std::int64_t most, random_source* random) {
  if (random == nullptr || random->chance(0.4)) return most;
  return random->chance(0.1) ? 0 : random->below(most + 1);
}

}  // namespace tessera::support
