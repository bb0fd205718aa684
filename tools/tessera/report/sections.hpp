// The parts of the page. Each writes one section, complete in itself: a sentence that says what is
// seen, the picture, and the same numbers as a table. A section whose data was not given says which
// file has it.
#pragma once

#include <string_view>

#include "markup.hpp"
#include "model.hpp"

namespace tessera::tool::report {

/// The picture of one run: its ceilings and every case that has an intensity. `first` is the number
/// of the run's first case, counted over all runs.
void draw_roofline(markup& page, const bench_run& run, std::size_t first);

void bench_section(markup& page, const input& from);
void replay_section(markup& page, const input& from);
void map_section(markup& page, const input& from);
void gain_section(markup& page, const input& from);
void row_section(markup& page, const input& from);
void table_section(markup& page, const input& from);

/// What the command was asked, for the last section.
struct page_facts {
  std::string title;
  std::string command;
  std::string version;
};
void environment_section(markup& page, const input& from, const page_facts& facts);

/// Title, one sentence of findings and the most important numbers.
void summary(markup& page, const input& from, const page_facts& facts);

/// Opens a section with its heading. `id` is what the navigation links to.
[[nodiscard]] markup::scope section(markup& page, std::string_view id, std::string_view heading);

/// A paragraph that says which data is missing and the command that makes it.
void nothing_given(markup& page, std::string_view fact, std::string_view command);

/// A column of a table: its heading, and whether it holds numbers.
struct heading {
  std::string_view text;
  bool numeric = false;
};

/// Opens a table of about `rows` rows; the caption names it. What is written while it is open goes
/// into its body.
class table_scope {
 public:
  table_scope(markup& page, std::string_view caption, const std::vector<heading>& headings,
              std::size_t rows = 0);

 private:
  markup::scope area_;
  markup::scope table_;
  int head_;
  markup::scope body_;
};

/// A cell of text; names break at their dots.
void text_cell(markup& page, std::string_view name, std::string_view text);
void code_cell(markup& page, std::string_view name, std::string_view text);

/// A bar of `share` (0 to 1) of its cell's width. `style` is an extra class.
void bar(markup& page, double share, std::string_view style = "");

}  // namespace tessera::tool::report
