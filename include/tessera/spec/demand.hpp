// What a choice may depend on, read off a problem once: a plain struct of the family, kept as words
// so that comparing, hashing and remembering are the same for every family. Equal demands have
// equal bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/spec/copy.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>
#include <tessera/spec/names.hpp>

namespace tessera {

/// A demand of any family. `Struct` in the functions is the family's type; it has no padding.
class demand {
 public:
  demand() noexcept {}  // NOLINT: becomes one before it is read
  template <class Struct>
  requires(!std::is_same_v<Struct, demand>) explicit demand(const Struct& from) noexcept {
    set(from);
  }

  template <class Struct>
  void set(const Struct& from) noexcept {
    check<Struct>();
    copy_words(words_.data(), from);
    for_each_index<word_count - words_in<Struct>>(
        [&](auto at) { words_[words_in<Struct> + at] = 0; });
  }

  /// Becomes what `make()` returns, built in its place: words of a struct that has just been
  /// written in smaller pieces are slow to read. `make` does not look at the demand.
  template <class Make>
  void become(const Make& make) noexcept {
    using struct_type = decltype(make());
    check<struct_type>();
    ::new (static_cast<void*>(words_.data())) struct_type(make());
    for_each_index<word_count - words_in<struct_type>>(
        [&](auto at) { words_[words_in<struct_type> + at] = 0; });
  }

  template <class Struct>
  const Struct& as() const noexcept {
    check<Struct>();
    return *reinterpret_cast<const Struct*>(words_.data());
  }

  /// Each word times its own odd constant, so that no product waits for another.
  std::uint64_t hash() const noexcept {
    std::uint64_t sum = 0;
    for_each_index<word_count>([&](auto at) { sum += words_[at] * factors[at]; });
    sum = (sum ^ sum >> 32) * golden;
    return sum ^ sum >> 29;
  }

  friend bool operator==(const demand& a, const demand& b) noexcept {
    return equal_words(a.words_, b.words_);
  }

 private:
  template <class Struct>
  static constexpr void check() noexcept {
    static_assert(std::has_unique_object_representations_v<Struct> &&
                  sizeof(Struct) <= sizeof(words_));
  }

  static constexpr std::size_t word_count = 12;
  static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  static constexpr auto factors = [] {
    std::array<std::uint64_t, word_count> all{golden};
    for (std::size_t i = 1; i < word_count; ++i) all[i] = all[i - 1] * 0xD1342543DE82EF95u + 2;
    return all;
  }();

  std::array<std::uint64_t, word_count> words_;
};

/// How a field of a demand enters the key of a lookup table.
enum class key_part : std::uint8_t {
  none,          ///< overlays see it, tables do not
  identity,      ///< another value is another line
  size,          ///< the next power of two, at least 1
  size_or_none,  ///< the same, and 0 for none
};

/// A field of a demand, by name: what overlays test and keys are made of.
struct demand_field {
  std::string_view name;
  key_part part = key_part::none;
  std::int64_t (*value)(const demand&) = nullptr;
  /// Words for the values 0, 1, ...; empty: a number.
  std::span<const std::string_view> words{};
  /// The value is a set: bit i stands for words[i], joined by '+'.
  bool is_set = false;
  /// Key text leaves the field out where it has this value.
  std::int64_t usual = INT64_MIN;
};

inline constexpr std::array<std::string_view, 2> words_of_flags{"false", "true"};

/// Fields that are members of a demand, `fields::exact<&my_demand::type>("type")`, or members of a
/// member: `fields::bucket<&my_demand::sizes, &my_sizes::rows>("rows")`.
namespace fields {

template <auto Member, auto... Inner>
const auto& member_of(const demand& from) noexcept {
  const auto& member = from.as<decltype(class_of_member(Member))>().*Member;
  return (member.*....*Inner);
}
template <auto... Path>
std::int64_t value_of(const demand& from) noexcept {
  return static_cast<std::int64_t>(member_of<Path...>(from));
}

/// A field; the words of dtypes, flags and directions are known.
template <auto... Path>
constexpr demand_field field(std::string_view name, key_part part,
                             std::span<const std::string_view> words = {}) noexcept {
  using value = std::remove_cvref_t<decltype(member_of<Path...>(std::declval<const demand&>()))>;
  if (std::is_same_v<value, dtype>) words = dtype_names;
  if (std::is_same_v<value, bool>) words = words_of_flags;
  if (std::is_same_v<value, kernel_pass>) words = kernel_pass_names;
  return {.name = name, .part = part, .value = &value_of<Path...>, .words = words};
}
template <auto... Path>
constexpr demand_field exact(std::string_view name,
                             std::span<const std::string_view> words = {}) noexcept {
  return field<Path...>(name, key_part::identity, words);
}
/// The same; key text leaves out the value that is usual.
template <auto... Path>
constexpr demand_field exact_but(std::int64_t usual, std::string_view name,
                                 std::span<const std::string_view> words = {}) noexcept {
  demand_field identity = field<Path...>(name, key_part::identity, words);
  identity.usual = usual;
  return identity;
}
template <auto... Path>
constexpr demand_field bucket(std::string_view name) noexcept {
  return field<Path...>(name, key_part::size);
}
template <auto... Path>
constexpr demand_field bucket_or_none(std::string_view name) noexcept {
  return field<Path...>(name, key_part::size_or_none);
}
template <auto... Path>
constexpr demand_field of_overlays(std::string_view name) noexcept {
  return field<Path...>(name, key_part::none);
}

constexpr std::int64_t at_least_one(std::int64_t count) noexcept {
  return count > 1 ? count : 1;
}

/// "length": tokens of a sequence, of all on average.
template <auto Sequences, auto Tokens>
constexpr demand_field length() noexcept {
  return {.name = "length", .part = key_part::size, .value = [](const demand& from) {
            const std::int64_t sequences = at_least_one(Sequences(from));
            return (Tokens(from) + sequences - 1) / sequences;
          }};
}

}  // namespace fields

/// Tokens of a sequence whose batch nothing depends on: of packed ones 512, since the others decide
/// how long one is on average.
constexpr std::int64_t tokens_of_one(bool packed, std::int64_t sequences,
                                     std::int64_t tokens) noexcept {
  return packed ? 512 : tokens / fields::at_least_one(sequences);
}

}  // namespace tessera
