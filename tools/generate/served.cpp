#include "served.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::generate {
namespace {

std::string identifier(std::string_view name) {
  std::string text(name);
  std::ranges::replace_if(
      text, [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) text += '_';
  return text;
}

std::string rows_text(const family& family, const table& table, const row_reasons& reasons) {
  std::string text = fmt::format("inline constexpr std::array<{}, {}> {}_rows", family.config_type,
                                 table.rows.size(), family.name);
  if (table.rows.empty()) return text + "{};\n\n";
  text += "{{\n";
  for (const row& row : table.rows) {
    text += fmt::format("    // {}\n", row.name);
    if (const auto who = reasons.find(row.name); who != reasons.end()) {
      for (const std::string& reason : who->second)
        text += fmt::format("    //   for {}\n", reason);
    }
    text += fmt::format("    {{{}}},\n", row.config);
  }
  return text + "}};\n\n";
}

}  // namespace

file_set served_header(std::string_view name, const std::vector<family>& families,
                       const std::vector<table>& tables, const row_reasons& reasons) {
  const std::string space = identifier(name);
  std::string text = fmt::format(
      "// {}: the rows of {}, for questions at compile time. Do not edit.\n#pragma once\n\n"
      "#include <array>\n\n",
      banner_start, name);
  std::vector<std::string> plain;
  std::vector<std::string> on_device;
  for (const family& family : families) {
    text += fmt::format("#include <{}>\n", family.fits_header);
    plain.push_back(fmt::format("any_serves({}_rows, problem)", family.name));
    on_device.push_back(fmt::format("any_serves({}_rows, problem, device)", family.name));
  }
  text += "#include <tessera/spec/served.hpp>\n\n";
  text += fmt::format("namespace tessera::builds::{} {{\n\n", space);
  for (std::size_t index = 0; index < families.size(); ++index) {
    text += rows_text(families[index], tables[index], reasons);
  }
  text += fmt::format(
      "/// True if a row of this build runs the problem on some device.\n"
      "template <class Problem>\n"
      "constexpr bool serves(const Problem& problem) noexcept {{\n"
      "  return {};\n}}\n\n"
      "/// True if a row of this build runs the problem on devices of that backend.\n"
      "template <class Problem>\n"
      "constexpr bool serves(const Problem& problem, backend device) noexcept {{\n"
      "  return {};\n}}\n\n",
      fmt::join(plain, " ||\n         "), fmt::join(on_device, " ||\n         "));
  text +=
      fmt::format("}}  // namespace tessera::builds::{}\n\nnamespace {} = tessera::builds::{};\n",
                  space, space, space);
  return {{fmt::format("include/tessera/builds/{}.hpp", name), text}};
}

file_set lookup_unit(const std::vector<embedded_line>& lines) {
  std::string unit = fmt::format(
      "// {}: the lookup table inside the library. Do not edit.\n"
      "#include <tessera/lookup/table.hpp>\n\n"
      "std::string_view tessera::shipped_lookup() noexcept {{\n",
      banner_start);
  if (lines.empty()) return {{"units/lookup.cpp", unit + "  return {};\n}\n"}};
  unit += "  return\n";
  std::string_view inside;
  const auto pass_to = [&](std::string_view macro) {
    if (macro == inside) return;
    if (!inside.empty()) unit += "#endif\n";
    if (!macro.empty()) unit += fmt::format("#if defined({})\n", macro);
    inside = macro;
  };
  for (const embedded_line& line : lines) {
    pass_to(macro_of(line.target));
    unit += fmt::format("      R\"tessera({})tessera\" \"\\n\"\n", line.text);
  }
  pass_to({});
  return {{"units/lookup.cpp", unit + "      \"\";\n}\n"}};
}

}  // namespace tessera::generate
