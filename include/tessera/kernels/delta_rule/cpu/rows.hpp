// Rows of operands as floats, and back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Where the row of a token and head begins, in elements.
template <class Data>
TESSERA_INLINE std::int64_t row_of(const delta_rule_rows<Data>& rows, std::int64_t entry,
                                   std::int64_t token, std::int64_t head) {
  return entry * rows.entry + token * rows.token + head * rows.head;
}

/// `count` elements as floats; up to the end of the last register zeros behind them.
template <class Isa, class Element>
TESSERA_INLINE void load_row(const Element* from, std::int64_t count, float* to) {
  using vec = prim::simd<Isa>;
  std::int64_t c = 0;
  for (; c + vec::width <= count; c += vec::width) vec::store(to + c, vec::load_as(from + c));
  if (c < count) vec::store(to + c, vec::load_as_n(from + c, static_cast<int>(count - c)));
}
template <class Isa, class Element>
TESSERA_INLINE void store_row(const float* from, std::int64_t count, Element* to) {
  using vec = prim::simd<Isa>;
  std::int64_t c = 0;
  for (; c + vec::width <= count; c += vec::width) vec::store_as(to + c, vec::load(from + c));
  if (c < count) vec::store_as_n(to + c, vec::load(from + c), static_cast<int>(count - c));
}

/// Calls body(pointer) with the tensor's element type.
template <class Isa, class Data, class Body>
TESSERA_INLINE void with_elements(Data* data, dtype type, const Body& body) {
  const auto as = [data]<class Element>(Element*) {
    if constexpr (std::is_const_v<Data>) {
      return static_cast<const Element*>(data);
    } else {
      return static_cast<Element*>(data);
    }
  };
  switch (type) {
    case dtype::f16:
      return body(as(static_cast<f16*>(nullptr)));
    case dtype::bf16:
      return body(as(static_cast<bf16*>(nullptr)));
    default:
      return body(as(static_cast<float*>(nullptr)));
  }
}

/// The row of a tensor whose type is known at run time only.
template <class Isa>
inline void load_row(const delta_rule_input& from, std::int64_t at, std::int64_t count, float* to) {
  with_elements<Isa>(from.data, from.type,
                     [&](const auto* elements) { load_row<Isa>(elements + at, count, to); });
}
template <class Isa>
inline void store_row(const float* from, std::int64_t count, const delta_rule_output& to,
                      std::int64_t at) {
  with_elements<Isa>(to.data, to.type,
                     [&](auto* elements) { store_row<Isa>(from, count, elements + at); });
}
template <class Isa>
inline float element_at(const delta_rule_input& from, std::int64_t at) {
  float value = 0;
  with_elements<Isa>(from.data, from.type,
                     [&](const auto* elements) { value = static_cast<float>(elements[at]); });
  return value;
}
template <class Isa>
inline void store_element(float value, const delta_rule_output& to, std::int64_t at) {
  with_elements<Isa>(to.data, to.type, [&](auto* elements) {
    elements[at] = static_cast<std::remove_reference_t<decltype(*elements)>>(value);
  });
}

/// Columns of a state, which lie `channel` apart in memory, as a tile whose rows are whole
/// registers: zeros behind the columns.
template <class Isa>
void load_tile(const float* from, std::int64_t channel, std::int64_t channels, std::int64_t columns,
               std::int64_t pitch, float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const row = to + c * pitch;
    std::copy_n(from + c * channel, columns, row);
    std::fill(row + columns, row + pitch, 0.0f);
  }
}
template <class Isa>
void store_tile(const float* from, std::int64_t pitch, std::int64_t channels, std::int64_t columns,
                std::int64_t channel, float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    std::copy_n(from + c * pitch, columns, to + c * channel);
  }
}

}  // namespace tessera::kernels::delta_rule::cpu
