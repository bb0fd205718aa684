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

/// Operations of a family with the same structs, which are named after the first.
struct c_structs {
  const signature* form = nullptr;
  std::vector<const operation*> operations;
  std::string_view name() const noexcept { return operations.front()->name; }
};

std::vector<c_structs> structs_of(const family& family) {
  std::vector<c_structs> all;
  for (const operation& op : family.operations) {
    const auto known = std::ranges::find(all, op.form, &c_structs::form);
    if (known == all.end()) {
      all.push_back({op.form, {&op}});
    } else {
      known->operations.push_back(&op);
    }
  }
  return all;
}

std::string axis_text(const axis_form& axis, const signature& form) {
  if (axis.dim < 0) return std::to_string(axis.plus);
  std::string text = axis.factor != 1 ? std::to_string(axis.factor) : "";
  text += form.dims[static_cast<std::size_t>(axis.dim)].symbol;
  if (axis.times >= 0) {
    text += fmt::format("*{}", form.dims[static_cast<std::size_t>(axis.times)].symbol);
  }
  if (axis.plus != 0) text += fmt::format("+{}", axis.plus);
  const bool at_least =
      axis.rule == extent_rule::at_least || axis.rule == extent_rule::one_or_at_least;
  const bool or_one =
      axis.rule == extent_rule::one_or_exact || axis.rule == extent_rule::one_or_at_least;
  return fmt::format("{}{}{}", at_least ? ">=" : "", text, or_one ? "|1" : "");
}

/// "dense [B,Sq,Hq,D], packed [Sq,Hq,D]"; the shape alone where it is the same in every layout.
std::string shapes_text(const signature& form, std::size_t tensor) {
  std::vector<std::string> shapes, named;
  for (std::size_t layout = 0; layout < form.layouts.size(); ++layout) {
    const shape_form& shape = form.shape(tensor, static_cast<int>(layout));
    if (shape.rank < 0) continue;
    std::vector<std::string> axes;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis) {
      axes.push_back(axis_text(shape.axes[axis], form));
    }
    shapes.push_back(fmt::format("[{}]", fmt::join(axes, ",")));
    named.push_back(fmt::format("{} {}", form.layouts[layout], shapes.back()));
  }
  const bool same = shapes.size() == form.layouts.size() &&
                    std::ranges::all_of(
                        shapes, [&](const std::string& shape) { return shape == shapes.front(); });
  return same ? shapes.front() : fmt::format("{}", fmt::join(named, ", "));
}

/// Some tensor of the signature has the dim.
bool is_used(const signature& form, std::size_t dim) {
  const auto number = static_cast<int>(dim);
  return std::ranges::any_of(form.shapes, [&](const shape_form& shape) {
    return std::ranges::any_of(
        std::span(shape.axes).first(static_cast<std::size_t>(std::max<int>(shape.rank, 0))),
        [&](const axis_form& axis) { return axis.dim == number || axis.times == number; });
  });
}

std::string tensor_text(const signature& form, std::size_t index) {
  const tensor_form& tensor = form.tensors[index];
  std::vector<std::string> types;
  for (std::size_t number = 1; number < dtype_names.size(); ++number) {
    const auto type = static_cast<dtype>(number);
    if (tensor.types.has(type)) types.emplace_back(name_of(type));
  }
  if (tensor.like >= 0) {
    const auto like = static_cast<std::size_t>(tensor.like);
    types.push_back(fmt::format("type of {}", form.tensors[like].name));
  }
  std::string text = tensor.is_output() ? "written; " : "";
  return text + fmt::format("{}; {}", shapes_text(form, index), fmt::join(types, ", "));
}

std::string args_struct(const c_structs& structs) {
  const signature& form = *structs.form;
  std::vector<std::string> dims;
  for (std::size_t i = 0; i < form.dims.size(); ++i) {
    const dim& axis = form.dims[i];
    if (!is_used(form, i)) continue;
    dims.push_back(fmt::format("{} {}", axis.symbol, axis.label));
    if (!axis.owner.empty()) dims.back() += fmt::format(" of {}", axis.owner);
  }
  std::string text = comment(fmt::format("Axes: {}.", fmt::join(dims, "; ")));
  text += fmt::format("typedef struct tessera_{}_args {{\n  uint32_t size;\n", structs.name());
  text += "  uint32_t reserved; /* 0 */\n";
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    text +=
        member(fmt::format("const tessera_tensor* {}", form.tensors[i].name), tensor_text(form, i));
  }
  return text + fmt::format("}} tessera_{}_args;\n\n", structs.name());
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
  std::vector<std::string> names;
  for (const std::string_view value : option.enumerators) {
    names.push_back(enumerator(option, value));
  }
  if (option.type == option_type::choice) return fmt::format("{}", fmt::join(names, ", "));
  switch (option.limit) {
    case option_limit::at_least:
      return fmt::format("at least {}", option.least);
    case option_limit::finite_float:
      return "finite as a float";
    case option_limit::positive_float:
      return "above 0";
    case option_limit::probability:
      return "at least 0, below 1";
    case option_limit::none:
      break;
  }
  return option.type == option_type::natural ? "any" : "any number";
}

std::string default_text(const signature& form, const option_form& option) {
  if (option.required) return "required";
  if (!checks::value_of(option, form.default_options).set) {
    return option.unset.empty() ? "optional" : fmt::format("optional, else {}", option.unset);
  }
  if (option.type == option_type::flag) {
    return checks::value_of(option, form.default_options).integer != 0 ? "default 1" : "default 0";
  }
  const std::string value = text::option_text(option, form.default_options);
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

std::string options_struct(const c_structs& structs) {
  const signature& form = *structs.form;
  const std::string prefix = upper(structs.name());
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
                    structs.name(), members);
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

std::string functions_of(const c_structs& structs, const operation& op) {
  const std::string number = fmt::format("TESSERA_OPERATION_{}", upper(op.name));
  const std::string args = fmt::format("const tessera_{}_args* args", structs.name());
  const std::string options = fmt::format("const tessera_{}_options* options", structs.name());
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
         '\n';
}

/// The values of all options that are choices. Options of one name are the same
/// choice, of which an operation may have the first ones only.
outcome<std::string> choices_text(const std::vector<family>& families) {
  std::vector<const option_form*> known;  // the longest list of each name
  for (const family& family : families) {
    for (const c_structs& structs : structs_of(family)) {
      for (const option_form& option : structs.form->options) {
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
                          option.name, structs.name())};
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
    for (const c_structs& structs : structs_of(family)) {
      bodies += fmt::format("/* ---- {}: family {} ---- */\n\n", structs.name(), family.name);
      bodies += args_struct(structs) + options_struct(structs);
      for (const operation* op : structs.operations) bodies += functions_of(structs, *op);
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
