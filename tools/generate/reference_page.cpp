#include "reference_page.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/runtime/family.hpp>

#include "signature_text.hpp"

namespace tessera::generate {
namespace {

constexpr std::string_view opening =
    R"( -->
# Operations

What each operation takes, as it is checked: the names are those of the argument and option structs, of tensors in
files and of `--option`. What a tensor or an option means is written where the struct is, in
`include/tessera/families/<family>/`.

Shapes: `Hq|1` is Hq, or 1, which broadcasts; `>=D` at least D. A tensor without a shape in a layout is absent
there. **Bold**: must be there. "only" and "not" name operations of the section that take a tensor or an option, or do not.
)";

/// In a table of Markdown a bar ends a cell.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

/// Which of the group's operations have a bit, where not all do: "only `matmul`", "not `matmul`".
std::string scope(const operation_group& group, auto has) {
  std::vector<std::string> with, without;
  for (const operation* op : group.operations) {
    (has(*op) ? with : without).push_back(fmt::format("`{}`", op->name));
  }
  if (without.empty()) return {};
  const bool fewer = with.size() <= without.size();
  return fmt::format("; {} {}", fewer ? "only" : "not", fmt::join(fewer ? with : without, ", "));
}

std::string_view use_text(const tensor_form& tensor) {
  switch (tensor.use) {
    case tensor_use::input:
      return "input";
    case tensor_use::output:
      return "output";
    case tensor_use::input_and_output:
      break;
  }
  return "input, overwritten";
}

std::string tensor_line(const operation_group& group, std::size_t index) {
  const signature& form = *group.form;
  const auto bit = std::uint32_t{1} << index;
  const bool taken = std::ranges::any_of(
      group.operations, [&](const operation* op) { return (op->taken & bit) != 0; });
  if (!taken) return {};
  const bool required = std::ranges::all_of(group.operations, [&](const operation* op) {
    return (op->taken & bit) == 0 || (op->required & bit) != 0;
  });
  const tensor_form& tensor = form.tensors[index];
  const std::string_view mark = required ? "**" : "";
  return cell(fmt::format("{0}`{1}`{0}\t{2}{3}\t{4}\t{5}", mark, tensor.name, use_text(tensor),
                          scope(group, [&](const operation& op) { return (op.taken & bit) != 0; }),
                          shapes_text(form, index), types_text(form, index)));
}

std::string option_line(const operation_group& group, std::size_t index) {
  const signature& form = *group.form;
  const bool taken = std::ranges::any_of(
      group.operations, [&](const operation* op) { return (op->excluded >> index & 1u) == 0; });
  if (!taken) return {};
  const option_form& option = form.options[index];
  std::string values = option.type == option_type::flag ? "true, false" : limit_text(option);
  if (option.type == option_type::choice) {
    values = fmt::format("{}", fmt::join(option.enumerators, ", "));
  }
  const std::string value = default_value(form, option);
  return cell(fmt::format(
      "{0}`{1}`{0}\t{2}{3}\t{4}", option.required ? "**" : "", option.name, values,
      scope(group, [&](const operation& op) { return (op.excluded >> index & 1u) == 0; }),
      value.empty() ? absence_text(option) : value));
}

/// Lines whose cells are parted by tabs, under a head; nothing without lines.
std::string table_of(std::string_view head, const std::vector<std::string>& lines) {
  std::string text;
  const auto add = [&](std::string_view line) {
    text += "| ";
    for (const char letter : line)
      text += letter == '\t' ? std::string(" | ") : std::string(1, letter);
    text += " |\n";
  };
  if (lines.empty()) return {};
  add(head);
  text += '|';
  for (auto cells = 1 + std::ranges::count(head, '\t'); cells > 0; --cells) text += "---|";
  text += '\n';
  for (const std::string& line : lines) add(line);
  return text + '\n';
}

std::string section(const operation_group& group) {
  std::vector<std::string> names, tensors, options;
  for (const operation* op : group.operations) {
    std::vector<std::string> aliases;
    for (const std::string_view alias : op->aliases) {
      if (!alias.empty()) aliases.push_back(fmt::format("`{}`", alias));
    }
    names.push_back(fmt::format("`{}`", op->name));
    if (!aliases.empty()) names.back() += fmt::format(" (also {})", fmt::join(aliases, ", "));
  }
  for (std::size_t i = 0; i < group.form->tensors.size(); ++i) {
    if (std::string line = tensor_line(group, i); !line.empty()) tensors.push_back(line);
  }
  for (std::size_t i = 0; i < group.form->options.size(); ++i) {
    if (std::string line = option_line(group, i); !line.empty()) options.push_back(line);
  }
  return fmt::format("### {}\n\nAxes: {}.\n\n", fmt::join(names, ", "), axes_text(*group.form)) +
         table_of("tensor\tuse\tshape\telements", tensors) +
         table_of("option\tvalues\tdefault", options);
}

}  // namespace

file_set reference_page(const std::vector<family>& families) {
  std::string text =
      fmt::format("<!-- {}: what operations take. Do not edit.{}", banner_start, opening);
  for (const family& family : families) {
    text += fmt::format("\n## Family {}\n\n", family.name);
    for (const operation_group& group : groups_of(family)) text += section(group);
  }
  text.pop_back();
  return {{"operations.md", text}};
}

}  // namespace tessera::generate
