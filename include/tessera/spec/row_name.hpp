// Names of rows, said once and good both ways: a family lists the parts of its names in order, and
// from the list follow the name of a config and the config that a name spells.
//
//   template <>
//   inline constexpr auto spelling_of<pooling_config> = row_names<pooling_config>(
//       "pooling", word(&pooling_config::target), word(&pooling_config::type),
//       number(".s", &pooling_config::streams));            // pooling.cpu_avx2.f32.s4
//
// A part writes its own separator, so that parts may follow each other without one. It reads what
// it would write; a part that may be missing leaves its member at the default.
#pragma once

#include <charconv>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>

#include <tessera/spec/reflect.hpp>

namespace tessera {

/// Room for the name of any row, legal or not: ten digits in each of six numbers fit.
using row_name = fixed_text<128>;

namespace spelling {

/// Takes `word` off the beginning of `rest`, where a name or one of its parts may end.
constexpr bool take_word(std::string_view& rest, std::string_view word) noexcept {
  if (!rest.starts_with(word)) return false;
  if (rest.size() > word.size() && rest[word.size()] != '.') return false;
  rest.remove_prefix(word.size());
  return true;
}

/// Takes ".word" off the beginning of `rest`; empty if there is none.
constexpr std::string_view next_word(std::string_view& rest) noexcept {
  if (!rest.starts_with('.')) return {};
  const std::string_view word = rest.substr(1, rest.find('.', 1) - 1);
  rest.remove_prefix(word.size() + 1);
  return word;
}

/// A member of a member, for the parts below.
template <class Outer, class Inner>
struct within {
  Outer outer;
  Inner inner;

  template <class Config>
  constexpr auto& operator()(Config& config) const {
    return config.*outer.*inner;
  }
};
template <class Outer, class Inner>
within(Outer, Inner) -> within<Outer, Inner>;

/// ".cpu_avx2": an enumerator.
template <class Member>
struct word {
  Member member;

  template <class Config>
  constexpr void write(row_name& name, const Config& config) const {
    (name += '.') += enumerator_name(std::invoke(member, config));
  }
  template <class Config>
  constexpr bool read(std::string_view& rest, Config& config) const {
    auto& value = std::invoke(member, config);
    const auto known = enumerator_named<std::remove_reference_t<decltype(value)>>(next_word(rest));
    if (known) value = *known;
    return known.has_value();
  }
};
template <class Member>
word(Member) -> word<Member>;

/// ".d128": a number behind a prefix; `zero` stands for 0 where it is not empty (".dany").
template <class Member>
struct number {
  std::string_view prefix;
  Member member;
  std::string_view zero{};

  template <class Config>
  constexpr void write(row_name& name, const Config& config) const {
    name += prefix;
    const int value = std::invoke(member, config);
    if (value == 0 && !zero.empty()) {
      name += zero;
    } else {
      name += value;
    }
  }
  template <class Config>
  constexpr bool read(std::string_view& rest, Config& config) const {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    int& value = std::invoke(member, config);
    value = 0;
    if (!zero.empty() && take_word(rest, zero)) return true;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc{}) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
  }
};
template <class Member>
number(std::string_view, Member, std::string_view = {}) -> number<Member>;

/// ".decode", "r": stands in the name where the member has this value and not its default.
template <class Member, class Value>
struct mark {
  std::string_view text;
  Member member;
  Value value;

  template <class Config>
  constexpr void write(row_name& name, const Config& config) const {
    if (std::invoke(member, config) == value) name += text;
  }
  template <class Config>
  constexpr bool read(std::string_view& rest, Config& config) const {
    if (take_word(rest, text)) std::invoke(member, config) = value;
    return true;
  }
};
template <class Member, class Value>
mark(std::string_view, Member, Value) -> mark<Member, Value>;

/// Parts that only some configs have; whether one has them is said by the parts before.
template <class Condition, class... Parts>
struct where {
  Condition condition;
  std::tuple<Parts...> parts;

  constexpr explicit where(Condition holds, Parts... all) : condition(holds), parts(all...) {}

  template <class Config>
  constexpr void write(row_name& name, const Config& config) const {
    if (!condition(config)) return;
    std::apply([&](const auto&... part) { (part.write(name, config), ...); }, parts);
  }
  template <class Config>
  constexpr bool read(std::string_view& rest, Config& config) const {
    if (!condition(config)) return true;
    return std::apply([&](const auto&... part) { return (part.read(rest, config) && ...); }, parts);
  }
};

}  // namespace spelling

/// The names of a family's rows; see the head of this file.
template <class Config, class... Parts>
struct row_spelling {
  std::string_view family;
  std::tuple<Parts...> parts;

  /// The name of a config with its defaults filled in.
  constexpr row_name name_of(const Config& given) const {
    const Config config = resolved(given);
    row_name name;
    name += family;
    std::apply([&](const auto&... part) { (part.write(name, config), ...); }, parts);
    return name;
  }

  /// The config that a name spells, legal or not; nothing if it spells none. A name may spell the
  /// same config in another way than `name_of`.
  constexpr std::optional<Config> config_of(std::string_view name) const {
    Config config;
    std::string_view rest = name;
    if (!spelling::take_word(rest, family)) return std::nullopt;
    const bool known =
        std::apply([&](const auto&... part) { return (part.read(rest, config) && ...); }, parts);
    if (!known || !rest.empty()) return std::nullopt;
    return config;
  }
};

template <class Config, class... Parts>
constexpr auto row_names(std::string_view family, Parts... parts) {
  return row_spelling<Config, Parts...>{family, {parts...}};
}

/// The names of rows of a config: each family specialises it.
struct no_spelling {};
template <class Config>
inline constexpr no_spelling spelling_of{};

template <class Config>
concept spelled_config = !std::is_same_v<decltype(spelling_of<Config>), const no_spelling>;

/// The stable name of a row.
template <spelled_config Config>
constexpr row_name name_of(const Config& config) {
  return spelling_of<Config>.name_of(config);
}

}  // namespace tessera
