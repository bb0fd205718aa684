// Problems of any operation as text, and back:
//
//   flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023
//
// Tensors, `unaligned`, then the options that differ from their defaults. A tensor whose
// declaration says that it has the dtype of another may leave the dtype out, and one whose shape is
// that of another is left out as a whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/option_text.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

/// A problem of any operation that owns its tensors and options.
struct owned_problem {
  const operation* op = nullptr;
  std::vector<tensor_view> tensors{};
  std::vector<std::uint64_t> options{};  ///< bytes of the options struct
  bool unaligned = false;

  /// All defaults, no tensor.
  explicit owned_problem(const operation& of)
      : op(&of),
        tensors(of.form->tensors.size()),
        options((of.form->options_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t)) {
    std::memcpy(options.data(), of.form->default_options, of.form->options_bytes);
  }
  explicit owned_problem(const problem_view& from) : owned_problem(*from.op) {
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = without_memory(from.tensors[i]);
    std::memcpy(options.data(), from.options, op->form->options_bytes);
    unaligned = from.unaligned;
  }

  problem_view view() const noexcept { return {op, tensors.data(), options.data(), unaligned}; }
};

namespace text {

inline void append_shape(std::string& out, const tensor_view& view, bool with_type) {
  out += '[';
  for (int axis = 0; axis < view.rank && axis < max_rank; ++axis) {
    if (axis > 0) out += ',';
    append_number(out, view.extent[static_cast<std::size_t>(axis)]);
  }
  out += ']';
  if (with_type) out += name_of(view.type);
}

/// `[1,2048,32,128]bf16`; the dtype may be missing, and is left as it was then.
inline bool read_shape(std::string_view word, tensor_view& view) {
  const std::size_t close = word.find(']');
  if (word.empty() || word.front() != '[' || close == std::string_view::npos) return false;
  const std::string_view type = word.substr(close + 1);
  if (!type.empty()) {
    std::size_t number = 1;
    while (number < dtype_names.size() && dtype_names[number] != type) ++number;
    if (number == dtype_names.size()) return false;
    view.type = static_cast<dtype>(number);
  }
  std::string_view list = word.substr(1, close - 1);
  view.rank = 0;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (view.rank == max_rank) return false;
    if (!read_number(list.substr(0, comma), view.extent[static_cast<std::size_t>(view.rank++)])) {
      return false;
    }
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
    if (list.empty()) return false;
  }
  return true;
}

inline bool same_shape(const tensor_view& a, const tensor_view& b) noexcept {
  return a.type == b.type && a.rank == b.rank && a.extent == b.extent;
}

/// The text of a problem of that operation may have the tensor.
constexpr bool is_field(const operation& op, std::size_t tensor) noexcept {
  return (op.fields >> tensor & 1u) != 0;
}

/// What the text says of an input: its gradient has its shape, and stands for it where an operation
/// needs only that.
inline const tensor_view& described(const problem_view& problem, std::size_t tensor) noexcept {
  const auto forms = problem.op->form->tensors;
  for (std::size_t i = 0; i < forms.size() && !problem.tensors[tensor].present(); ++i) {
    const bool required = (problem.op->required >> i & 1u) != 0;
    if (required && forms[i].gradient_of == static_cast<int>(tensor)) return problem.tensors[i];
  }
  return problem.tensors[tensor];
}

[[gnu::cold]] inline status malformed(sentence_parts parts) {
  return {status_code::malformed, "problem: " + sentence(parts)};
}

/// Adds an operation to a list: "kernel_delta_attention (kda)".
inline void append_names(std::string& list, const operation& op) {
  if (!list.empty()) list += ", ";
  list += op.name;
  bool first = true;
  for (const std::string_view alias : op.aliases) {
    if (alias.empty()) continue;
    list.append(first ? " (" : ", ").append(alias);
    first = false;
  }
  if (!first) list += ')';
}

inline std::string field_names(const operation& op) {
  std::string list;
  const auto add = [&](std::string_view name) {
    if (!list.empty()) list += ", ";
    list += name;
  };
  for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
    if (is_field(op, i)) add(op.form->tensors[i].name);
  }
  add("unaligned");
  for (const option_form& option : op.form->options) add(option.name);
  return list;
}

/// Reads `field=value` words into a problem.
class problem_reader {
 public:
  explicit problem_reader(owned_problem& problem) : problem_(problem), op_(*problem.op) {}

  status read(std::string_view word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return malformed({"'", word, "' has no '=', fields are name=value"});
    }
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    const auto tensors = op_.form->tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != name || !is_field(op_, i)) continue;
      tensor_view& view = problem_.tensors[i];
      return taken(name, value, seen_tensors_, i, read_shape(value, view),
                   "a shape of at most 5 extents and a dtype, [1,2]f32");
    }
    if (name == "unaligned") {
      problem_.unaligned = value == "true";
      return taken(name, value, seen_unaligned_, 0, value == "true" || value == "false",
                   "true or false");
    }
    for (std::size_t i = 0; i < op_.form->options.size(); ++i) {
      const option_form& option = op_.form->options[i];
      if (option.name != name) continue;
      const bool read = read_option(option, value, problem_.options.data());
      return taken(name, value, seen_options_, i, read, form_of(option));
    }
    return malformed({op_.name, " has no field '", name, "', the fields are ", field_names(op_)});
  }

  /// What may be left out; refuses what may not.
  status complete() {
    const auto tensors = op_.form->tensors;
    for (int i = 0; i < op_.tensor_count; ++i) {
      const std::size_t index = op_.order[static_cast<std::size_t>(i)];
      tensor_view& view = problem_.tensors[index];
      const std::int8_t shape_of = tensors[index].shape_of, like = tensors[index].like;
      const bool seen = (seen_tensors_ >> index & 1u) != 0;
      if (shape_of >= 0 && !seen && (op_.required >> index & 1u) != 0) {
        view = problem_.tensors[static_cast<std::size_t>(shape_of)];
      }
      if (!seen || view.present()) continue;
      if (like >= 0) {
        view.type = problem_.tensors[static_cast<std::size_t>(like)].type;
      }
      if (!view.present()) return malformed({tensors[index].name, " has no dtype"});
    }
    return {};
  }

 private:
  /// A field that is given once (`bit` of `seen`), with a value of that form.
  static status taken(std::string_view name, std::string_view value, std::uint32_t& seen,
                      std::size_t bit, bool read, std::string_view form) {
    const bool twice = (seen >> bit & 1u) != 0;
    seen |= 1u << bit;
    if (twice) return malformed({name, " is given twice"});
    if (read) return {};
    return malformed({name, " is '", value, "', must be ", form});
  }

  owned_problem& problem_;
  const operation& op_;
  std::uint32_t seen_tensors_ = 0, seen_options_ = 0, seen_unaligned_ = 0;  ///< bits
};

}  // namespace text

/// The problem as text that `parse_problem` reads back.
inline std::string text_of(const problem_view& problem) {
  const operation& op = *problem.op;
  const auto tensors = op.form->tensors;
  std::string out(op.name);
  const auto view_of = [&](std::int8_t index) -> const tensor_view& {
    return problem.tensors[static_cast<std::size_t>(index)];
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!text::is_field(op, i)) continue;
    const tensor_view& view = text::described(problem, i);
    if (!view.present()) continue;
    const bool required = (op.required >> i & 1u) != 0;
    if (required && tensors[i].shape_of >= 0 &&
        text::same_shape(view, view_of(tensors[i].shape_of))) {
      continue;
    }
    const bool like = tensors[i].like >= 0 && view_of(tensors[i].like).type == view.type &&
                      !tensors[i].types.has(view.type);
    out.append(" ").append(tensors[i].name).append("=");
    text::append_shape(out, view, !like);
  }
  if (problem.unaligned) out += " unaligned=true";
  for (const option_form& option : op.form->options) {
    if (text::is_default(option, *op.form, problem.options)) continue;
    out.append(" ").append(option.name).append("=");
    out += text::option_text(option, problem.options);
  }
  return out;
}

/// Reads the words behind the operation's name. Refuses unknown fields, repeated fields, and values
/// that do not have their field's form; whether the shapes fit together is for the checks to say.
inline result<owned_problem> parse_problem(const operation& op, std::string_view fields) {
  owned_problem problem(op);
  text::problem_reader reader(problem);
  for (auto word = text::next_word(fields); !word.empty(); word = text::next_word(fields)) {
    if (status done = reader.read(word); !done) return done;
  }
  if (status done = reader.complete(); !done) return done;
  return problem;
}

/// The same for the structs of a family: the problem as text, and a line with the operation's name
/// in front as a problem.
template <class Op, class Args, class Options>
std::string to_text(const basic_problem<Op, Args, Options>& problem) {
  return text_of(view_of(problem));
}

template <class Problem>
result<Problem> parse_problem(std::string_view line) {
  const std::string_view name = text::next_word(line);
  std::string known;
  const std::span<const operation> operations =
      operation_table<typename Problem::op_type>::operations;
  for (std::size_t number = 0; number < operations.size(); ++number) {
    const operation& op = operations[number];
    text::append_names(known, op);
    if (!op.is_called(name)) continue;
    const result<owned_problem> parsed = parse_problem(op, line);
    if (!parsed) return parsed.failure();
    Problem problem{.op = static_cast<typename Problem::op_type>(number)};
    std::copy(parsed->tensors.begin(), parsed->tensors.end(), tensors_of(problem.tensors));
    problem.unaligned = parsed->unaligned;
    std::memcpy(static_cast<void*>(&problem.options), parsed->options.data(),
                sizeof problem.options);
    return problem;
  }
  return text::malformed({"starts with '", name, "', must be one of ", known});
}

}  // namespace tessera
