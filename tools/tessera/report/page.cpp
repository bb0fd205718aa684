#include "page.hpp"

#include <array>

#include <fmt/format.h>

#include "style.hpp"

namespace tessera::tool::report {
namespace {

// Nothing may be fetched: whatever a file smuggled in, the browser refuses it.
constexpr std::string_view content_policy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'";

constexpr std::array places{
    std::pair{"roofline", "Roofline"},
    std::pair{"replay", "Replay"},
    std::pair{"map", "Best tile"},
    std::pair{"gain", "Tuned against default"},
    std::pair{"rows", "Rows"},
    std::pair{"table", "Table"},
    std::pair{"environment", "Environment"},
};

void write_head(markup& page, const page_facts& facts) {
  const auto head = page.element("head");
  page.empty("meta", {{"charset", "utf-8"}});
  page.empty("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", content_policy}});
  page.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.empty("meta", {{"name", "generator"}, {"content", "tessera " + facts.version}});
  page.empty("link", {{"rel", "icon"}, {"href", "data:,"}});
  page.leaf("title", facts.title);
  const auto style = page.element("style");
  page.raw(style_sheet());
}

void write_navigation(markup& page) {
  const auto navigation = page.element("nav", {{"aria-label", "Sections"}});
  const auto list = page.element("ul");
  for (const auto& [id, text] : places) {
    const auto item = page.element("li");
    page.leaf("a", {{"href", fmt::format("#{}", id)}}, text);
  }
}

void write_header(markup& page, const input& from, const page_facts& facts) {
  const auto header = page.element("header");
  {
    const auto line = page.element("div", {{"class", "head"}});
    page.leaf("h1", facts.title);
    page.leaf("button", {{"id", "theme"}, {"type", "button"}, {"hidden", "hidden"}}, "Theme");
  }
  summary(page, from, facts);
  write_navigation(page);
}

void write_body(markup& page, const input& from, const page_facts& facts) {
  const auto body = page.element("body");
  page.leaf("a", {{"class", "skip"}, {"href", "#roofline"}}, "To the figures");
  {
    const auto wrap = page.element("div", {{"class", "wrap"}});
    write_header(page, from, facts);
    {
      const auto content = page.element("main");
      bench_section(page, from);
      replay_section(page, from);
      map_section(page, from);
      gain_section(page, from);
      row_section(page, from);
      table_section(page, from);
      environment_section(page, from, facts);
    }
    const auto footer = page.element("footer");
    page.text(fmt::format("Made by tessera {}. ", facts.version));
    page.text("Times are medians. Pictures link to their table rows; columns sort by click.");
  }
  const auto code = page.element("script");
  page.raw(script());
}

}  // namespace

std::string page_of(const input& from, const page_facts& facts) {
  markup page;
  page.raw("<!DOCTYPE html>\n");
  {
    const auto root = page.element("html", {{"lang", "en"}});
    write_head(page, facts);
    write_body(page, from, facts);
  }
  return page.str();
}

}  // namespace tessera::tool::report
