// Keys and values of pools, whose elements may have 8 bits: the numbers that attention sees.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include <tessera/spec/tensor_view.hpp>

#include "../support/random.hpp"
#include "elements.hpp"
#include "store.hpp"

namespace tessera::reference {

inline bool is_code_type(dtype type) noexcept {
  return size_of(type) == 1;
}

/// `value` as it is written to a tensor of that type; infinity in 8 bits is the largest finite
/// number.
inline double nearest_element(dtype type, double value) {
  std::array<std::byte, 8> memory{};
  tensor_view element{};
  element.data = memory.data();
  element.type = type;
  if (type == dtype::i8) {
    value = std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), -128.0, 127.0);
  }
  if (type == dtype::f8_e5m2 && std::isinf(value)) value = std::copysign(57344.0, value);
  store(element, 0, value);
  return read(element, 0);
}

/// The type of the gathered elements of a pool: codes become the numbers that they stand for.
inline dtype gathered_type(dtype pool) noexcept {
  return is_code_type(pool) ? dtype::f64 : pool;
}

/// The scale of a head; 1 where a call has no such tensor.
inline double scale_of_head(const tensor_view& scales, std::int64_t head) noexcept {
  return scales.present() ? read(scales, head * scales.stride[0]) : 1.0;
}

/// The scale of a token whose largest finite element is `largest` and that is divided by `by` too:
/// what makes that the largest number of the pool's type; the smallest normal number at least.
inline float scale_of_largest(float largest, float by, dtype pool) noexcept {
  const float most = pool == dtype::i8 ? 127.0f : pool == dtype::f8_e4m3 ? 448.0f : 57344.0f;
  return std::clamp(largest / by / most, std::numeric_limits<float>::min(),
                    std::numeric_limits<float>::max());
}

/// That of the row at `at` of new tokens, [tokens,Hkv,D].
inline float scale_of_new_row(const tensor_view& fresh, std::int64_t at, float by, dtype pool) {
  float largest = 0;
  for (std::int64_t d = 0; d < fresh.extent[2]; ++d) {
    const auto x = static_cast<float>(read(fresh, at + d));
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return scale_of_largest(largest, by, pool);
}
/// What is written of an element that a scale divides.
inline double nearest_code(dtype pool, double element, float scale) {
  return nearest_element(pool, static_cast<double>(static_cast<float>(element) / scale));
}

/// Where the scale of a slot of a page is in a tensor [P,T,Hkv] or [P T,Hkv].
inline std::int64_t place_of_scale(const tensor_view& scales, std::int64_t page_size,
                                   std::int64_t page, std::int64_t slot,
                                   std::int64_t head) noexcept {
  const auto& stride = scales.stride;
  if (scales.rank == 2) return (page * page_size + slot) * stride[0] + head * stride[1];
  return page * stride[0] + slot * stride[1] + head * stride[2];
}
/// It; 1 where a call has no such tensor.
inline double scale_of_slot(const tensor_view& scales, std::int64_t page_size, std::int64_t page,
                            std::int64_t slot, std::int64_t head) noexcept {
  if (!scales.present()) return 1.0;
  return read(scales, place_of_scale(scales, page_size, page, slot, head));
}

/// What codes are multiplied by.
struct code_scales {
  double of_head = 1;
  double of_token = 1;
  /// The type that products with the scale of a token are rounded to; none: they are exact.
  dtype rounded = dtype::none;

  double operator()(double code) const {
    const double product = code * of_token;
    return (rounded == dtype::none ? product : nearest_element(rounded, product)) * of_head;
  }
};
/// That of keys and values that rows may store before they multiply them.
inline dtype rounded_type(bool as_stored, const tensor_view& token_scales, dtype queries) noexcept {
  return as_stored && token_scales.present() ? queries : dtype::none;
}

/// One row of tokens to another place, as elements of the type `to` has. Codes are multiplied.
inline void gather_row(const tensor_view& from, std::int64_t at, const code_scales& scales,
                       const tensor_view& to, std::int64_t place, std::int64_t columns) {
  if (from.type == to.type) {
    const auto size = static_cast<std::int64_t>(size_of(from.type));
    std::memcpy(static_cast<std::byte*>(to.data) + place * size,
                static_cast<const std::byte*>(from.data) + at * size,
                static_cast<std::size_t>(columns * size));
    return;
  }
  for (std::int64_t d = 0; d < columns; ++d) store(to, place + d, scales(read(from, at + d)));
}

/// Fills scales of tokens: powers of 2, whose products with codes every type has, numbers of any
/// mantissa that are a thousand times apart, or those of either sign around 0; false if the tensor
/// is none.
inline bool fill_token_scales(std::string_view name, const tensor_view& view,
                              support::random_source& random) {
  if (!name.ends_with("_token_scales")) return false;
  const std::int64_t kind = random.below(3);
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    store(view, offset,
          kind == 0   ? random.pick({0.03125, 0.25, 0.5, 1.0, 2.0})
          : kind == 1 ? std::exp2(10.0 * random.uniform() - 9.0)
                      : static_cast<double>(random.bell()));
  });
  return true;
}

/// Fills a tensor of codes with numbers that no exponential is too small for; false if it is none.
inline bool fill_codes(const tensor_view& view, support::random_source& random) {
  if (!is_code_type(view.type)) return false;
  const double unit = view.type == dtype::i8 ? random.pick({1.0, 4.0, 40.0}) : 1.0;
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const double bell = static_cast<double>(random.bell());
    store(view, offset, nearest_element(view.type, bell * unit));
  });
  return true;
}

}  // namespace tessera::reference
