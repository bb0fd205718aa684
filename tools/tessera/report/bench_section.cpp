// Bench runs: the roofline of each and every case as a table.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

/// Counters that other columns show, or that only explain them.
bool has_place(std::string_view counter) {
  return counter == "flops" || counter == "bytes" || counter == "rounds" ||
         counter.starts_with("peak_");
}

/// More counters than this go below their case instead of into columns.
constexpr std::size_t most_columns = 3;

/// Which columns a run fills.
struct columns {
  bool rates = false;
  bool bytes = false;
  bool share = false;
  bool peers = false;
  std::vector<std::string> counters;
  bool folded = false;  ///< counters are listed below each case

  explicit columns(const bench_run& run) : peers(!run.peers.empty()) {
    std::set<std::string> named;
    for (const bench_case& timing : run.cases) {
      rates = rates || timing.gflops;
      bytes = bytes || timing.gbytes;
      share = share || timing.of_ceiling;
      for (const auto& [name, value] : timing.counters) {
        if (!has_place(name) && named.insert(name).second) counters.push_back(name);
      }
    }
    folded = counters.size() > most_columns;
  }

  std::vector<heading> headings() const {
    std::vector<heading> all{{"#", true}, {"case and row"}, {"median", true}};
    if (rates) all.push_back({"GFLOP/s", true});
    if (bytes) all.push_back({"GB/s", true});
    if (rates && bytes) all.push_back({"FLOP/byte", true});
    if (share) all.push_back({"of ceiling", true});
    if (peers) all.push_back({"peers", true});
    if (folded) return all;
    for (const std::string& name : counters) all.push_back({name, true});
    return all;
  }
};

const double* counter_of(const bench_case& timing, std::string_view name) {
  for (const auto& [key, value] : timing.counters) {
    if (key == name) return &value;
  }
  return nullptr;
}

void write_counters(markup& page, const bench_case& timing) {
  const auto details = page.element("details");
  page.leaf("summary", counted(timing.counters.size(), "more counter"));
  const auto list = page.element("dl", {{"class", "facts inline"}});
  for (const auto& [name, value] : timing.counters) {
    const auto pair = page.element("div");
    page.leaf("dt", name);
    const auto cell = page.element("dd");
    number(page, value, readable(value));
  }
}

void write_name(markup& page, const bench_case& timing, bool with_counters) {
  const auto cell = page.element("td", {{"class", "case"}, {"data-name", "case"}});
  page.leaf("span", {{"class", "case-name"}}, timing.name);
  if (!timing.row.empty()) {
    const auto row = page.element("code", {{"class", "row-name"}});
    page.breakable(timing.row);
  }
  if (!timing.error.empty()) {
    const auto failed = page.element("strong", {{"class", "failed"}});
    page.text("failed: " + timing.error);
  }
  if (timing.disturbed) page.leaf("span", {{"class", "badge"}}, "disturbed while measured");
  if (with_counters && !timing.counters.empty()) write_counters(page, timing);
}

void write_time(markup& page, const bench_case& timing) {
  const auto cell = page.element("td", {{"class", "n"}, {"data-name", "median"}});
  if (!timing.median_us) return page.text("–");
  number(page, *timing.median_us, time_text(*timing.median_us));
  if (timing.is_mean) page.leaf("small", "mean");
  if (timing.lower_us && timing.upper_us) {
    const auto range = page.element("small");
    number(page, *timing.lower_us, time_text(*timing.lower_us));
    page.text(" – ");
    number(page, *timing.upper_us, time_text(*timing.upper_us));
  }
}

/// A rate, and below it the amount it is made of.
void write_rate(markup& page, std::string_view name, std::optional<double> rate,
                const double* amount, std::string_view unit) {
  const auto cell = page.element("td", {{"class", "n"}, {"data-name", name}});
  if (!rate) return page.text("–");
  number(page, *rate, readable(*rate));
  if (amount != nullptr) {
    const auto small = page.element("small");
    number(page, *amount, readable(*amount * 1e-6));
    page.text(fmt::format(" {}", unit));
  }
}

void write_share(markup& page, const bench_case& timing) {
  const auto cell = page.element("td", {{"class", "n share"}, {"data-name", "of ceiling"}});
  if (!timing.of_ceiling) return page.text("–");
  number(page, *timing.of_ceiling, percent_text(*timing.of_ceiling));
  bar(page, *timing.of_ceiling);
  if (!timing.held_to.empty()) page.leaf("small", timing.held_to);
  if (const double* const of_goal = counter_of(timing, "of_goal")) {
    const auto small = page.element("small", {{"class", *of_goal < 1 ? "failed" : "met"}});
    page.text(*of_goal < 1 ? "goal missed: " : "goal met: ");
    number(page, *of_goal, percent_text(*of_goal));
  }
}

void write_peers(markup& page, const bench_run& run, const bench_case& timing) {
  const auto cell = page.element("td", {{"class", "n"}, {"data-name", "peers"}});
  const auto found = run.peers.find(timing.name);
  if (found == run.peers.end()) return page.text("–");
  for (const peer_time& peer : found->second) {
    const auto line = page.element("span", {{"class", "line"}});
    number(page, peer.median_us, time_text(peer.median_us));
    std::string text = " " + peer.name;
    if (timing.median_us)
      text += fmt::format(", {}", gain_text(peer.median_us / *timing.median_us));
    page.leaf("small", text);
  }
}

void write_case(markup& page, const bench_run& run, const columns& shown, const bench_case& timing,
                std::size_t number_of_case) {
  const auto row = page.element("tr", {{"id", fmt::format("case-{}", number_of_case)}});
  page.leaf("th", {{"scope", "row"}, {"class", "n"}, {"data-name", "case"}},
            std::to_string(number_of_case));
  write_name(page, timing, shown.folded);
  write_time(page, timing);
  if (shown.rates) {
    write_rate(page, "GFLOP/s", timing.gflops, counter_of(timing, "flops"), "MFLOP");
  }
  if (shown.bytes) write_rate(page, "GB/s", timing.gbytes, counter_of(timing, "bytes"), "MB");
  if (shown.rates && shown.bytes) {
    const std::optional<double> intensity = timing.intensity();
    number_cell(page, "FLOP/byte", intensity, readable(intensity.value_or(0)));
  }
  if (shown.share) write_share(page, timing);
  if (shown.peers) write_peers(page, run, timing);
  if (shown.folded) return;
  for (const std::string& name : shown.counters) {
    const double* const value = counter_of(timing, name);
    number_cell(page, name, value == nullptr ? std::nullopt : std::optional(*value),
                value == nullptr ? "" : readable(*value));
  }
}

/// "Ceilings of this run: f32 FMA 234.3 GFLOP/s, ..."
void write_ceilings(markup& page, const bench_run& run) {
  if (run.ceilings.empty()) {
    page.leaf("p", {{"class", "nothing"}},
              "The run has no measured ceilings, so its cases have no roof above them.");
    return;
  }
  const auto list = page.element("dl", {{"class", "facts inline"}});
  for (const ceiling& roof : run.ceilings) {
    const auto pair = page.element("div");
    page.leaf("dt", roof.name);
    const auto value = page.element("dd");
    number(page, roof.rate, readable(roof.rate));
    page.text(roof.kind == limit::compute ? " GFLOP/s" : " GB/s");
  }
}

}  // namespace

void bench_section(markup& page, const input& from) {
  const auto whole = section(page, "roofline", "Roofline");
  if (from.runs.empty()) {
    return nothing_given(page, "No bench record was given.",
                         "tools/bench && tessera report build/bench/*.json -o report.html");
  }
  std::size_t first = 1;
  for (const bench_run& run : from.runs) {
    {
      const auto heading_of_run = page.element("h3");
      const auto name = page.element("code");
      page.breakable(run.path);
    }
    write_ceilings(page, run);
    draw_roofline(page, run, first);
    if (run.cases.empty()) {
      page.leaf("p", {{"class", "nothing"}}, "The record has no case.");
      continue;
    }
    const columns shown(run);
    const table_scope table(page, fmt::format("Cases of {}", run.path), shown.headings(),
                            run.cases.size());
    for (const bench_case& timing : run.cases) write_case(page, run, shown, timing, first++);
  }
}

}  // namespace tessera::tool::report
