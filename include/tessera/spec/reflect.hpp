// Reflection over the vocabulary: names of enumerators, members of structs, and the constexpr text
// that row names are built in. With the `reflect.hpp` of each family this is the only header that
// needs Boost (Describe and MP11); nothing on the path of a call includes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(dtype, none, f32, f16, bf16, f64, i32, i64, u8, f8_e4m3, f8_e5m2, i8, u32,
                    f8_e8m0, u4x2)
BOOST_DESCRIBE_ENUM(backend, cpu_generic, cpu_avx2, cpu_avx512, cpu_avx512_vnni, cpu_avx512_bf16,
                    cpu_amx_bf16, cuda_sm80, cuda_sm90)
BOOST_DESCRIBE_ENUM(device_kind, cpu, cuda)
BOOST_DESCRIBE_ENUM(kernel_pass, forward, backward)
BOOST_DESCRIBE_ENUM(status_code, ok, invalid_argument, no_row, ineligible_row, unknown_row,
                    workspace, device, malformed, io)

/// An enumeration whose enumerators are known by name.
template <class Enum>
concept described_enum = boost::describe::has_describe_enumerators<Enum>::value;

/// A struct whose public members are known by name.
template <class Struct>
concept described_struct = boost::describe::has_describe_members<Struct>::value;

/// Calls `visit(name, value)` for each enumerator, in declaration order.
template <described_enum Enum, class Visitor>
constexpr void for_each_enumerator(Visitor&& visit) {
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<Enum>>(
      [&](auto member) { visit(std::string_view(member.name), member.value); });
}

/// The enumerators of an enumeration with their names.
template <described_enum Enum>
inline constexpr auto enumerators_of = [] {
  std::array<std::pair<std::string_view, Enum>,
             boost::mp11::mp_size<boost::describe::describe_enumerators<Enum>>::value>
      all{};
  std::size_t count = 0;
  for_each_enumerator<Enum>([&](std::string_view name, Enum value) {
    all[count++] = {name, value};
  });
  return all;
}();

/// The name of an enumerator; "invalid" for a value that has none.
template <described_enum Enum>
constexpr std::string_view enumerator_name(Enum value) noexcept {
  for (const auto& [name, known] : enumerators_of<Enum>) {
    if (known == value) return name;
  }
  return "invalid";
}

/// The enumerator of that name, if there is one.
template <described_enum Enum>
constexpr std::optional<Enum> enumerator_named(std::string_view name) noexcept {
  for (const auto& [candidate, value] : enumerators_of<Enum>) {
    if (candidate == name) return value;
  }
  return std::nullopt;
}

/// "full, causal, window": the valid names, for messages.
template <described_enum Enum>
std::string enumerator_list() {
  std::string list;
  for_each_enumerator<Enum>([&](std::string_view name, Enum) {
    if (!list.empty()) list += ", ";
    list += name;
  });
  return list;
}

/// Calls `visit(name, member)` for each public data member of `object`, in declaration order; the
/// member is const if the object is.
template <class Object, class Visitor>
requires described_struct<std::remove_const_t<Object>>
constexpr void for_each_member(Object& object, Visitor&& visit) {
  using members =
      boost::describe::describe_members<std::remove_const_t<Object>, boost::describe::mod_public>;
  boost::mp11::mp_for_each<members>(
      [&](auto member) { visit(std::string_view(member.name), object.*member.pointer); });
}

/// Number of public data members.
template <described_struct Struct>
inline constexpr std::size_t member_count = boost::mp11::mp_size<
    boost::describe::describe_members<Struct, boost::describe::mod_public>>::value;

/// Text of at most `Capacity` characters that can be built and kept at compile time. Appending
/// beyond the capacity is a compile error in a constant expression and throws elsewhere.
template <std::size_t Capacity>
class fixed_text {
 public:
  [[gnu::noinline]] constexpr fixed_text& operator+=(std::string_view more) {
    for (const char letter : more) push_back(letter);
    return *this;
  }
  constexpr fixed_text& operator+=(char letter) {
    push_back(letter);
    return *this;
  }
  /// Decimal digits, with a sign if negative.
  [[gnu::noinline]] constexpr fixed_text& operator+=(int value) {
    std::int64_t number = value;
    if (number < 0) push_back('-');
    if (number < 0) number = -number;
    std::int64_t divisor = 1;
    while (number / divisor >= 10) divisor *= 10;
    for (; divisor > 0; divisor /= 10) push_back(static_cast<char>('0' + number / divisor % 10));
    return *this;
  }
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }
  constexpr operator std::string_view() const noexcept { return view(); }  // NOLINT
  friend constexpr bool operator==(const fixed_text& a, const fixed_text& b) noexcept {
    return a.view() == b.view();
  }

 private:
  constexpr void push_back(char letter) {
    if (size_ == Capacity) throw std::length_error("tessera::fixed_text is full");
    text_[size_++] = letter;
  }

  std::array<char, Capacity> text_{};
  std::size_t size_ = 0;
};

}  // namespace tessera
