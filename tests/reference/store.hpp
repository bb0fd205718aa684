// Writing single tensor elements, whatever their type.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/spec/tensor_view.hpp>

#include "float8.hpp"

namespace tessera::reference {

/// Stores `value` as the tensor's type holds it, infinity as such where the type has it.
inline void store(const tensor_view& view, std::int64_t offset, double value) {
  auto* const base = static_cast<std::byte*>(view.data);
  const auto put = [&](auto element) {
    std::memcpy(base + offset * static_cast<std::int64_t>(sizeof element), &element,
                sizeof element);
  };
  switch (view.type) {
    case dtype::f32:
      return put(static_cast<float>(value));
    case dtype::f64:
      return put(value);
    case dtype::f16:
      return put(f16(static_cast<float>(value)));
    case dtype::bf16:
      return put(bf16(static_cast<float>(value)));
    case dtype::i32:
      return put(static_cast<std::int32_t>(value));
    case dtype::i64:
      return put(static_cast<std::int64_t>(value));
    case dtype::u8:
      return put(static_cast<std::uint8_t>(value));
    case dtype::i8:
      return put(static_cast<std::int8_t>(value));
    case dtype::u32:
      return put(static_cast<std::uint32_t>(value));
    case dtype::f8_e5m2:
      if (std::isinf(value)) return put(static_cast<std::uint8_t>(value < 0 ? 0xfc : 0x7c));
      [[fallthrough]];
    case dtype::f8_e4m3:
      return put(nearest_code(view.type, value));
    case dtype::none:
    case dtype::f8_e8m0:
    case dtype::u4x2:
      return;
  }
}

}  // namespace tessera::reference
