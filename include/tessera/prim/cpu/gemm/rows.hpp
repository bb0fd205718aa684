// Rows of elements that packing reads: wherever they lie, row i is at row(i).
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

/// Row i starts at data + i * stride; its elements are contiguous.
template <class Element>
struct strided_rows {
  using element = Element;
  const Element* data = nullptr;
  std::int64_t stride = 0;
  TESSERA_INLINE const Element* row(std::int64_t i) const { return data + i * stride; }
};

/// At most `Most` rows from number `first` on, each somewhere.
template <class Element, int Most>
struct listed_rows {
  using element = Element;
  const Element* address[Most];
  std::int64_t first = 0;
  TESSERA_INLINE const Element* row(std::int64_t i) const { return address[i - first]; }
};

}  // namespace tessera::prim
