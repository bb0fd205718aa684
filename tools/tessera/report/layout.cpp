#include <algorithm>

#include <fmt/format.h>

#include "sections.hpp"

namespace tessera::tool::report {
namespace {

/// Tables of more rows scroll by themselves on wide screens.
constexpr std::size_t tall = 25;

int write_head(markup& page, std::string_view caption, const std::vector<heading>& headings) {
  page.leaf("caption", caption);
  const auto head = page.element("thead");
  const auto row = page.element("tr");
  for (const heading& heading : headings) {
    page.leaf("th", {{"scope", "col"}, {"class", heading.numeric ? "n" : "t"}}, heading.text);
  }
  return 0;
}

}  // namespace

markup::scope section(markup& page, std::string_view id, std::string_view heading) {
  const std::string label = fmt::format("{}-heading", id);
  markup::scope opened = page.element("section", {{"id", id}, {"aria-labelledby", label}});
  page.leaf("h2", {{"id", label}}, heading);
  return opened;
}

void nothing_given(markup& page, std::string_view fact, std::string_view command) {
  const auto paragraph = page.element("p", {{"class", "nothing"}});
  page.text(fact);
  page.text(" To see it here: ");
  page.leaf("code", command);
}

table_scope::table_scope(markup& page, std::string_view caption,
                         const std::vector<heading>& headings, std::size_t rows)
    : area_(page.element("div", {{"class", rows > tall ? "scroll tall" : "scroll"},
                                 {"tabindex", "0"},
                                 {"role", "region"},
                                 {"aria-label", caption}})),
      table_(page.element("table", {{"class", "list"}})),
      head_(write_head(page, caption, headings)),
      body_(page.element("tbody")) {}

void text_cell(markup& page, std::string_view name, std::string_view text) {
  const auto cell = page.element("td", {{"data-name", name}});
  page.text(text.empty() ? "–" : text);
}

void code_cell(markup& page, std::string_view name, std::string_view text) {
  const auto cell = page.element("td", {{"data-name", name}});
  if (text.empty()) return page.text("–");
  const auto code = page.element("code");
  page.breakable(text);
}

void bar(markup& page, double share, std::string_view style) {
  const auto track = page.element("span", {{"class", "bar"}, {"aria-hidden", "true"}});
  page.leaf("span",
            {{"class", style.empty() ? std::string_view("fill") : style},
             {"style", fmt::format("width:{:.1f}%", std::clamp(share, 0.0, 1.0) * 100)}},
            "");
}

}  // namespace tessera::tool::report
