#include "c_header.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/option_text.hpp>

#include "signature_text.hpp"

namespace tessera::generate {
namespace {

constexpr std::size_t columns = 100;

std::string upper(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return text;
}

/// The words behind `text`, in lines that start with `next`.
std::string wrapped(std::string text, std::span<const std::string> words, std::string_view next) {
  std::size_t width = text.size();
  for (const std::string& word : words) {
    if (width + word.size() > columns) {
      while (text.ends_with(' ')) text.pop_back();
      text += '\n';
      text += next;
      width = next.size();
    }
    text += word + ' ';
    width += word.size() + 1;
  }
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string comment(std::string_view text, std::string_view indent = {}) {
  std::vector<std::string> words;
  for (std::string_view rest = text; !rest.empty();) words.emplace_back(declared::next_word(rest));
  words.back() += " */";  // in the same line
  return wrapped(fmt::format("{}/* ", indent), words, fmt::format("{} * ", indent)) + '\n';
}

/// A member of a struct with its comment, behind it where there is room.
std::string member(const std::string& text, const std::string& about) {
  const std::string line = fmt::format("  {}; /* {} */\n", text, about);
  if (line.size() <= columns + 1) return line;
  return comment(about, "  ") + fmt::format("  {};\n", text);
}

std::string tensor_text(const signature& form, std::size_t index) {
  const std::string shapes = shapes_text(form, index);
  if (shapes.empty()) return "absent";
  const std::string_view use = form.tensors[index].is_output() ? "written; " : "";
  return fmt::format("{}{}; {}", use, shapes, types_text(form, index));
}

std::string args_struct(const operation_group& group) {
  const signature& form = *group.form;
  std::string text = comment(fmt::format("Axes: {}.", axes_text(form)));
  text += fmt::format("typedef struct tessera_{}_args {{\n  uint32_t size;\n", group.name());
  text += "  uint32_t reserved; /* 0 */\n";
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    text +=
        member(fmt::format("const tessera_tensor* {}", form.tensors[i].name), tensor_text(form, i));
  }
  return text + fmt::format("}} tessera_{}_args;\n\n", group.name());
}

/// "(PT)HD" is PT_HD in C.
std::string enumerator(const option_form& option, std::string_view value) {
  std::string name;
  for (const char letter : value) {
    if (letter != '(') name += letter == ')' ? '_' : letter;
  }
  return fmt::format("TESSERA_{}_{}", upper(option.name), upper(name));
}

std::string values_text(const option_form& option) {
  if (option.type == option_type::flag) return "0 or 1";
  if (option.type != option_type::choice) return limit_text(option);
  std::vector<std::string> names;
  for (const std::string_view value : option.enumerators) {
    names.push_back(enumerator(option, value));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string default_text(const signature& form, const option_form& option) {
  const std::string value = default_value(form, option);
  if (value.empty()) return absence_text(option);
  if (option.type == option_type::flag) return value == "true" ? "default 1" : "default 0";
  return "default " + (option.type == option_type::choice ? enumerator(option, value) : value);
}

std::string_view c_type(option_type type) {
  switch (type) {
    case option_type::number:
    case option_type::optional_number:
      return "double";
    case option_type::natural:
      return "uint64_t";
    default:
      return "int64_t";
  }
}

std::string options_struct(const operation_group& group) {
  const signature& form = *group.form;
  const std::string prefix = upper(group.name());
  std::string bits, members;
  for (std::size_t i = 0; i < form.options.size(); ++i) {
    const option_form& option = form.options[i];
    bits += fmt::format("  TESSERA_{}_{} = {},\n", prefix, upper(option.name), 1u << i);
    members += member(fmt::format("{} {}", c_type(option.type), option.name),
                      fmt::format("{}; {}", values_text(option), default_text(form, option)));
  }
  std::string text;
  if (!bits.empty()) {
    bits.erase(bits.size() - 2, 1);
    text = fmt::format("/* Bits of `given`. */\nenum {{\n{}}};\n", bits);
  }
  return text + fmt::format(
                    "typedef struct tessera_{0}_options {{\n  uint32_t size;\n"
                    "  uint32_t given; /* bits of the options whose zero counts */\n"
                    "{1}}} tessera_{0}_options;\n\n",
                    group.name(), members);
}

using word_list = std::vector<std::string>;

/// "a,", "b,", "c)".
word_list listed(word_list words, std::string_view end) {
  for (std::string& word : words) word += &word == &words.back() ? end : ",";
  return words;
}

/// An inline function that passes its arguments on to a generic one.
std::string function(std::string_view name, const word_list& parameters, std::string_view generic,
                     const word_list& arguments) {
  return wrapped(fmt::format("static inline int32_t tessera_{}(", name), listed(parameters, ") {"),
                 "    ") +
         wrapped(fmt::format("\n  return tessera_{}(", generic), listed(arguments, ");"),
                 "      ") +
         "\n}\n";
}

/// What an operation takes of the structs.
std::string about(const operation& op) {
  std::vector<std::string_view> required, optional, absent;
  for (int i = 0; i < op.tensor_count; ++i) {
    const std::size_t tensor = op.order[static_cast<std::size_t>(i)];
    auto& names = (op.required >> tensor & 1u) != 0 ? required : optional;
    names.push_back(op.form->tensors[tensor].name);
  }
  for (std::size_t i = 0; i < op.form->options.size(); ++i) {
    if ((op.excluded >> i & 1u) != 0) absent.push_back(op.form->options[i].name);
  }
  std::string text = fmt::format("{}: needs {}", op.name, fmt::join(required, ", "));
  if (!optional.empty()) text += fmt::format("; takes {}", fmt::join(optional, ", "));
  if (!absent.empty()) text += fmt::format("; has no option {}", fmt::join(absent, ", "));
  return text + '.';
}

/// The same functions by the other names of an operation.
std::string aliases_of(const operation& op) {
  std::string text;
  for (const std::string_view alias : op.aliases) {
    if (alias.empty()) continue;
    text += comment(fmt::format("{} is also called {}.", op.name, alias));
    for (const std::string_view start : {"", "plan_", "run_"}) {
      text += fmt::format("#define tessera_{0}{1} tessera_{0}{2}\n", start, alias, op.name);
    }
    text += fmt::format("#define TESSERA_OPERATION_{} TESSERA_OPERATION_{}\n\n", upper(alias),
                        upper(op.name));
  }
  return text;
}

std::string functions_of(const operation_group& group, const operation& op) {
  const std::string number = fmt::format("TESSERA_OPERATION_{}", upper(op.name));
  const std::string args = fmt::format("const tessera_{}_args* args", group.name());
  const std::string options = fmt::format("const tessera_{}_options* options", group.name());
  const std::string context = "const tessera_context* context", status = "tessera_status* status";
  return comment(about(op)) +
         function(op.name, {args, options, context, status}, "call",
                  {number, "args", "options", "context", "status"}) +
         function(fmt::format("plan_{}", op.name),
                  {args, options, context, "tessera_plan** plan", status}, "plan_make",
                  {number, "args", "options", "context", "plan", "status"}) +
         function(fmt::format("run_{}", op.name),
                  {"const tessera_plan* plan", args, "void* workspace", "size_t workspace_bytes",
                   "void* stream", status},
                  "plan_run",
                  {"plan", "args", "workspace", "workspace_bytes", "stream", "status"}) +
         '\n' + aliases_of(op);
}

/// The values of all options that are choices. Options of one name are the same
/// choice, of which an operation may have the first ones only.
outcome<std::string> choices_text(const std::vector<family>& families) {
  std::vector<const option_form*> known;  // the longest list of each name
  for (const family& family : families) {
    for (const operation_group& group : groups_of(family)) {
      for (const option_form& option : group.form->options) {
        if (option.type != option_type::choice) continue;
        const auto at = std::ranges::find(known, option.name, &option_form::name);
        if (at == known.end()) {
          known.push_back(&option);
          continue;
        }
        const auto first = (*at)->enumerators, second = option.enumerators;
        const std::size_t both = std::min(first.size(), second.size());
        if (!std::ranges::equal(first.first(both), second.first(both))) {
          return refusal{
              fmt::format("option {} of {} has other enumerators than that of another "
                          "operation; give it another name",
                          option.name, group.name())};
        }
        if (second.size() > first.size()) *at = &option;
      }
    }
  }
  std::string text;
  for (const option_form* option : known) {
    std::vector<std::string> values;
    for (std::size_t i = 0; i < option->enumerators.size(); ++i) {
      values.push_back(fmt::format("{} = {}", enumerator(*option, option->enumerators[i]), i));
    }
    text += fmt::format("enum {{ {} }};\n", fmt::join(values, ", "));
  }
  return text.empty() ? text : "/* Values of options. */\n" + text + '\n';
}

constexpr std::string_view header_opening =
    R"(: the operations of the C interface. Do not edit.
 *
 * Included by c.h, which says what holds for all of them. What tensors and options mean is written
 * in tessera/families/<family>/args.hpp and options.hpp, or in a folder of the operation there.
 * Shapes: B|1 is B, or 1, which broadcasts; >=D at least D. A tensor without a shape in a layout is
 * absent there. */
#ifndef TESSERA_INTEROP_C_OPERATIONS_H
#define TESSERA_INTEROP_C_OPERATIONS_H

#include <tessera/interop/c.h>

)";

std::string unit_text(const std::string& names, std::size_t count) {
  return fmt::format(
      "// {}: the C interface, a library of its own. Do not edit.\n"
      "#include <array>\n\n#include <tessera/interop/impl/c.hpp>\n\nnamespace tessera::c {{\n\n"
      "std::span<const operation_name> operation_names() noexcept {{\n"
      "  static constexpr std::array<operation_name, {}> all{{{{\n{}  }}}};\n  return all;\n}}\n\n"
      "}}  // namespace tessera::c\n",
      banner_start, count, names);
}

}  // namespace

outcome<file_set> c_interface_files(const std::vector<family>& families) {
  const auto choices = choices_text(families);
  if (const auto* why = std::get_if<refusal>(&choices)) return *why;
  std::map<int, std::string_view> numbers;
  std::string enumerators, names, bodies;
  std::size_t count = 0;
  for (const family& family : families) {
    if (const auto [other, fresh] = numbers.emplace(family.number, family.name); !fresh) {
      return refusal{fmt::format("families {} and {} have the number {}", other->second,
                                 family.name, family.number)};
    }
    for (const operation& op : family.operations) {
      const int number = operation_number(family.number, op);
      enumerators += fmt::format("{}  TESSERA_OPERATION_{} = {}", count++ == 0 ? "" : ",\n",
                                 upper(op.name), number);
      names += fmt::format("      {{{}, \"{}\", \"{}\"}},\n", number, op.name, family.name);
    }
    for (const operation_group& group : groups_of(family)) {
      bodies += fmt::format("/* ---- {}: family {} ---- */\n\n", group.name(), family.name);
      bodies += args_struct(group) + options_struct(group);
      for (const operation* op : group.operations) bodies += functions_of(group, *op);
    }
  }
  file_set files;
  files["include/tessera/interop/c_operations.h"] = fmt::format(
      "/* {}{}typedef enum tessera_operation {{\n{}\n}} tessera_operation;\n\n{}{}#endif\n",
      banner_start, header_opening, enumerators, std::get<std::string>(choices), bodies);
  files["units/c.cpp"] = unit_text(names, count);
  return files;
}

}  // namespace tessera::generate
