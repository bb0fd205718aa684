// Problems of every family as one line of text, both ways, by reflection:
//
//   flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023
//
// The operation's name, then `field=value` in any order. Fields are the members of the problem that
// are shapes or flags, and those of its `options`; absent tensors and defaults are left out. What a
// family adds is in its own problem_text.hpp. Needs Boost; nothing on the path of a call includes
// this header.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <tessera/spec/reflect.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::text {

template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) void append_value(std::string& out,
                                                                                 Number value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}
inline void append_value(std::string& out, bool value) {
  out += value ? "true" : "false";
}
template <described_enum Enum>
void append_value(std::string& out, Enum value) {
  out += enumerator_name(value);
}
template <class Value>
void append_value(std::string& out, const std::optional<Value>& value) {
  append_value(out, *value);
}

inline void append_shape(std::string& out, const tensor_shape& shape, bool with_type) {
  out += '[';
  for (int axis = 0; axis < shape.rank && axis < max_rank; ++axis) {
    if (axis > 0) out += ',';
    append_value(out, shape.extent[static_cast<std::size_t>(axis)]);
  }
  out += ']';
  if (with_type) out += name_of(shape.type);
}

/// True if all of `word` was read as a number.
template <class Number>
requires(std::integral<Number> ||
         std::floating_point<Number>) bool read_value(std::string_view word, Number& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size();
}
inline bool read_value(std::string_view word, bool& value) {
  value = word == "true";
  return value || word == "false";
}
template <described_enum Enum>
bool read_value(std::string_view word, Enum& value) {
  const std::optional<Enum> named = enumerator_named<Enum>(word);
  if (named) value = *named;
  return named.has_value();
}
template <class Value>
bool read_value(std::string_view word, std::optional<Value>& value) {
  return read_value(word, value.emplace());
}

/// `[1,2048,32,128]bf16`; the dtype may be missing, and is left as it was then.
inline bool read_shape(std::string_view word, tensor_shape& shape) {
  const std::size_t close = word.find(']');
  if (word.empty() || word.front() != '[' || close == std::string_view::npos) return false;
  const std::string_view type = word.substr(close + 1);
  if (!type.empty() && (!read_value(type, shape.type) || shape.type == dtype::none)) return false;
  std::string_view list = word.substr(1, close - 1);
  shape.rank = 0;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (shape.rank == max_rank) return false;
    auto& extent = shape.extent[static_cast<std::size_t>(shape.rank++)];
    if (!read_value(list.substr(0, comma), extent)) return false;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
    if (list.empty()) return false;
  }
  return true;
}

/// What a value of that type looks like, for messages.
template <class Value>
std::string form_of() {
  if constexpr (std::is_same_v<Value, tensor_shape>) {
    return "a shape of at most " + std::to_string(max_rank) + " extents and a dtype, [1,2]f32";
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (described_enum<Value>) {
    return "one of " + enumerator_list<Value>();
  } else if constexpr (std::floating_point<Value>) {
    return "a number";
  } else if constexpr (std::integral<Value>) {
    return std::is_signed_v<Value> ? "a 64-bit integer" : "an unsigned 64-bit integer";
  } else {
    return form_of<typename Value::value_type>();
  }
}

/// Members of a problem that are fields of its text: shapes and flags.
template <class Member>
inline constexpr bool is_field =
    std::is_same_v<Member, tensor_shape> || std::is_same_v<Member, bool>;

/// Calls visit(name, member) for every field: the tensors and flags, then the options.
template <class Problem, class Visitor>
void for_each_field(Problem& problem, const Visitor& visit) {
  for_each_member(problem, [&](std::string_view name, auto& member) {
    using type = std::remove_cvref_t<decltype(member)>;
    if constexpr (is_field<type>) visit(name, member);
  });
  for_each_member(problem.options, visit);
}

inline status malformed(std::string sentence) {
  return {status_code::malformed, std::move(sentence)};
}

/// The first word; `rest` loses it and the blanks around it.
inline std::string_view next_word(std::string_view& rest) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = rest.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return rest = {};
  rest.remove_prefix(begin);
  const std::string_view word = rest.substr(0, rest.find_first_of(blanks));
  rest.remove_prefix(word.size());
  return word;
}

/// How a shape is written.
enum class shape_text : std::uint8_t {
  omitted,  ///< not at all: absent, or what the reader assumes
  extents,  ///< without the dtype that the reader assumes
  whole,
};

/// `op field=value ...`; `form(name, shape)` says how a shape is written.
template <class Problem, class Form>
std::string problem_text(std::string_view op, const Problem& problem, const Form& form) {
  std::string out(op);
  const Problem defaults;
  for_each_member(problem, [&](std::string_view name, const auto& member) {
    using type = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<type, bool>) {
      if (member) out.append(" ").append(name).append("=true");
    } else if constexpr (std::is_same_v<type, tensor_shape>) {
      const shape_text how = member.present() ? form(name, member) : shape_text::omitted;
      if (how == shape_text::omitted) return;
      out.append(" ").append(name).append("=");
      append_shape(out, member, how == shape_text::whole);
    }
  });
  for_each_member(problem.options, [&](std::string_view name, const auto& member) {
    for_each_member(defaults.options, [&](std::string_view other, const auto& standard) {
      if constexpr (std::is_same_v<decltype(member), decltype(standard)>) {
        if (name != other || member == standard) return;
        out.append(" ").append(name).append("=");
        append_value(out, member);
      }
    });
  });
  return out;
}

/// Collects `field=value` words into a problem.
template <class Problem>
class problem_reader {
 public:
  /// `problem` has its operation, whose name is `op`.
  problem_reader(const Problem& problem, std::string_view op) : problem_(problem), op_(op) {}

  Problem& problem() noexcept { return problem_; }

  status read(std::string_view word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return malformed("problem: '" + std::string(word) + "' has no '=', fields are name=value");
    }
    const std::string_view field = word.substr(0, equals);
    std::optional<status> done;
    std::size_t index = 0;
    for_each_field(problem_, [&](std::string_view name, auto& member) {
      if (name == field) done = read_member(name, word.substr(equals + 1), member, seen_[index]);
      ++index;
    });
    if (done) return *done;
    return malformed("problem: " + std::string(op_) + " has no field '" + std::string(field) +
                     "', the fields are " + names());
  }

  /// All words of a line.
  status read_all(std::string_view line) {
    for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
      if (status done = read(word); !done) return done;
    }
    return {};
  }

  /// Refuses a tensor that was given without a dtype; `excused` is said of those that need none.
  status every_shape_has_a_type(std::string_view excused) {
    std::size_t index = 0;
    status done;
    for_each_field(problem_, [&](std::string_view name, const auto& member) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, tensor_shape>) {
        if (done && seen_[index] && !member.present()) {
          done =
              malformed("problem: " + std::string(name) + " has no dtype" + std::string(excused));
        }
      }
      ++index;
    });
    return done;
  }

  bool saw(std::string_view field) {
    std::size_t index = 0;
    bool found = false;
    for_each_field(problem_, [&](std::string_view name, const auto&) {
      found = found || (name == field && seen_[index]);
      ++index;
    });
    return found;
  }

 private:
  template <class Member>
  static status read_member(std::string_view name, std::string_view value, Member& member,
                            bool& seen) {
    if (seen) return malformed("problem: " + std::string(name) + " is given twice");
    seen = true;
    if constexpr (std::is_same_v<Member, tensor_shape>) {
      if (read_shape(value, member)) return {};
    } else {
      if (read_value(value, member)) return {};
    }
    return malformed("problem: " + std::string(name) + " is '" + std::string(value) +
                     "', must be " + form_of<Member>());
  }

  std::string names() {
    std::string list;
    for_each_field(problem_, [&](std::string_view name, const auto&) {
      if (!list.empty()) list += ", ";
      list += name;
    });
    return list;
  }

  using options_type = std::remove_cvref_t<decltype(Problem::options)>;

  Problem problem_;
  std::string_view op_;
  std::array<bool, member_count<Problem> + member_count<options_type>> seen_{};
};

/// The operation that a line starts with, taken off it.
template <described_enum Op>
result<Op> read_op(std::string_view& line) {
  const std::string_view name = next_word(line);
  const std::optional<Op> op = enumerator_named<Op>(name);
  if (op) return *op;
  return malformed("problem: starts with '" + std::string(name) + "', must be one of " +
                   enumerator_list<Op>());
}

}  // namespace tessera::text
