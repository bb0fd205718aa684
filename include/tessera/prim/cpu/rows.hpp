// Rows of tensors as floats and back, whatever the element type. A tensor is anything with the
// members `data` (void or const void) and `type` (f32, f16 or bf16); offsets count elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim {

/// Calls visit(pointer to the elements) with the tensor's element type.
template <class Isa, class Tensor, class Visit>
TESSERA_INLINE void with_elements(const Tensor& tensor, const Visit& visit) {
  const auto elements = [&]<class Element>(Element*) {
    using data = std::remove_pointer_t<decltype(tensor.data)>;
    return static_cast<std::conditional_t<std::is_const_v<data>, const Element, Element>*>(
        tensor.data);
  };
  switch (tensor.type) {
    case dtype::f16:
      return visit(elements(static_cast<f16*>(nullptr)));
    case dtype::bf16:
      return visit(elements(static_cast<bf16*>(nullptr)));
    default:
      return visit(elements(static_cast<float*>(nullptr)));
  }
}

/// `count` floats, up to whole registers.
template <class Isa>
constexpr std::int64_t padded(std::int64_t count) {
  constexpr std::int64_t width = simd<Isa>::width;
  return (count + width - 1) / width * width;
}

/// `count` elements side by side, and zeros up to a whole register.
template <class Isa, class Element>
TESSERA_INLINE void load_row(const Element* from, std::int64_t count, float* to) {
  using vec = simd<Isa>;
  std::int64_t at = 0;
  for (; at + vec::width <= count; at += vec::width) vec::store(to + at, vec::load_as(from + at));
  if (at < count) vec::store(to + at, vec::load_as_n(from + at, static_cast<int>(count - at)));
}
template <class Isa, class Tensor>
void load_row(const Tensor& tensor, std::int64_t offset, std::int64_t count, float* to) {
  with_elements<Isa>(tensor,
                     [&](const auto* elements) { load_row<Isa>(elements + offset, count, to); });
}

/// The first `count` floats, rounded to the element type.
template <class Isa, class Element>
TESSERA_INLINE void store_row(Element* to, std::int64_t count, const float* from) {
  using vec = simd<Isa>;
  std::int64_t at = 0;
  for (; at + vec::width <= count; at += vec::width) vec::store_as(to + at, vec::load(from + at));
  if (at < count) {
    const int rest = static_cast<int>(count - at);
    vec::store_as_n(to + at, vec::load_n(from + at, rest), rest);
  }
}
template <class Isa, class Tensor>
void store_row(const Tensor& tensor, std::int64_t offset, std::int64_t count, const float* from) {
  with_elements<Isa>(tensor,
                     [&](auto* elements) { store_row<Isa>(elements + offset, count, from); });
}

template <class Isa, class Tensor>
TESSERA_INLINE float element_at(const Tensor& tensor, std::int64_t offset) {
  float value = 0;
  with_elements<Isa>(tensor,
                     [&](const auto* elements) { value = static_cast<float>(elements[offset]); });
  return value;
}
template <class Isa, class Tensor>
void store_element(const Tensor& tensor, std::int64_t offset, float value) {
  with_elements<Isa>(tensor, [&](auto* elements) {
    elements[offset] = static_cast<std::remove_pointer_t<decltype(elements)>>(value);
  });
}

}  // namespace tessera::prim
