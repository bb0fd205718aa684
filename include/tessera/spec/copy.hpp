// Copies and comparisons in code that is compiled for size, written out: what compilers make of
// them there takes longer than everything else of a remembered choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tessera {

/// Calls body(index) for 0, 1, ..., written out.
template <std::size_t Count, class Body>
constexpr void for_each_index(const Body& body) noexcept {
  [&]<std::size_t... At>(std::index_sequence<At...>) {
    (body(std::integral_constant<std::size_t, At>{}), ...);
  }
  (std::make_index_sequence<Count>{});
}

template <class Struct>
inline constexpr std::size_t words_in = sizeof(Struct) / sizeof(std::uint64_t);

/// Copies a struct word by word: in code compiled for size a copy is a string instruction, which
/// takes longer than everything else of a remembered choice.
template <class Struct>
void copy_words(void* to, const Struct& from) noexcept {
  static_assert(std::is_trivially_copyable_v<Struct> &&
                sizeof(Struct) % sizeof(std::uint64_t) == 0);
  for_each_index<words_in<Struct>>([&](auto at) {
    constexpr std::size_t first = decltype(at)::value * sizeof(std::uint64_t);
    std::memcpy(static_cast<std::byte*>(to) + first,
                reinterpret_cast<const std::byte*>(&from) + first, sizeof(std::uint64_t));
  });
}

/// Copies a run of bytes by a call, for the same reason.
inline void copy_bytes(std::byte* to, const void* from, std::size_t bytes) noexcept {
  std::memmove(to, from, bytes);  // of a size that is not known memcpy becomes an instruction
}

/// Compares two structs word by word: no word decides before the last one has been looked at.
template <class Struct>
bool equal_words(const Struct& a, const Struct& b) noexcept {
  static_assert(std::has_unique_object_representations_v<Struct> &&
                sizeof(Struct) % sizeof(std::uint64_t) == 0);
  std::uint64_t differing = 0;
  for_each_index<words_in<Struct>>([&](auto at) {
    constexpr std::size_t first = decltype(at)::value * sizeof(std::uint64_t);
    std::uint64_t left, right;
    std::memcpy(&left, reinterpret_cast<const std::byte*>(&a) + first, sizeof left);
    std::memcpy(&right, reinterpret_cast<const std::byte*>(&b) + first, sizeof right);
    differing |= left ^ right;
  });
  return differing == 0;
}

}  // namespace tessera
