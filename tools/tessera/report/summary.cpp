// The top of the page: what was measured where, and the few numbers to remember.
#include <algorithm>

#include <fmt/format.h>

#include "numbers.hpp"
#include "sections.hpp"

namespace tessera::tool::report {
namespace {

/// The value of the first context key there is among `names`.
std::string fact_of(const std::vector<std::pair<std::string, std::string>>& facts,
                    std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (const auto& [key, value] : facts) {
      if (key == name && !value.empty()) return value;
    }
  }
  return {};
}

/// "2026-11-21 12:02" of "2026-11-21T12:02:36+00:00"; any other text as it is.
std::string readable_date(const std::string& date) {
  if (date.size() < 16 || date[4] != '-' || date[10] != 'T') return date;
  return date.substr(0, 10) + " " + date.substr(11, 5);
}

std::string machine_of(const input& from) {
  for (const bench_run& run : from.runs) {
    if (std::string found = fact_of(run.context, {"processor"}); !found.empty()) return found;
  }
  if (std::string found = fact_of(from.machine, {"product", "processor", "name"}); !found.empty()) {
    return found;
  }
  if (std::string found = fact_of(from.tuning, {"device", "device_class"}); !found.empty()) {
    return found;
  }
  for (const bench_run& run : from.runs) {
    if (std::string found = fact_of(run.context, {"host_name"}); !found.empty()) return found;
  }
  for (const replay_run& run : from.replays) {
    if (!run.device.empty()) return run.device;
  }
  return {};
}

/// What the cases of all runs add up to.
struct case_totals {
  std::size_t cases = 0;
  std::size_t failed = 0;
  const bench_case* best = nullptr;
  const bench_case* worst = nullptr;
  std::size_t best_number = 0;  ///< as in the tables of cases
  std::size_t worst_number = 0;
  std::vector<double> shares;

  explicit case_totals(const input& from) {
    for (const bench_run& run : from.runs) {
      for (const bench_case& timing : run.cases) {
        ++cases;
        if (!timing.error.empty()) ++failed;
        if (!timing.of_ceiling || timing.disturbed) continue;
        shares.push_back(*timing.of_ceiling);
        if (best == nullptr || *timing.of_ceiling > *best->of_ceiling) {
          best = &timing;
          best_number = cases;
        }
        if (worst == nullptr || *timing.of_ceiling < *worst->of_ceiling) {
          worst = &timing;
          worst_number = cases;
        }
      }
    }
    std::sort(shares.begin(), shares.end());
  }

  double median() const {
    const std::size_t half = shares.size() / 2;
    return shares.size() % 2 == 1 ? shares[half] : (shares[half - 1] + shares[half]) / 2;
  }
};

void tile(markup& page, std::string_view name, std::string_view text, std::string_view small) {
  const auto frame = page.element("div");
  page.leaf("dt", name);
  const auto value = page.element("dd");
  page.text(text);
  if (!small.empty()) page.leaf("small", small);
}

void tile(markup& page, std::string_view name, double exact_value, std::string_view text,
          std::string_view small) {
  const auto frame = page.element("div");
  page.leaf("dt", name);
  const auto value = page.element("dd");
  number(page, exact_value, text);
  if (!small.empty()) page.leaf("small", small);
}

/// A share of the ceiling with a link to its case.
void case_tile(markup& page, std::string_view name, const bench_case& timing, std::size_t place) {
  const auto whole = page.element("div");
  page.leaf("dt", name);
  const auto value = page.element("dd");
  number(page, *timing.of_ceiling, percent_text(*timing.of_ceiling));
  const auto small = page.element("small");
  page.leaf("a", {{"href", fmt::format("#case-{}", place)}}, fmt::format("case {}", place));
  page.text(", " + timing.group);
}

void case_tiles(markup& page, const case_totals& total, std::size_t runs) {
  if (total.cases == 0) return;
  tile(page, "Cases", std::to_string(total.cases),
       fmt::format("in {}{}", counted(runs, "run"),
                   total.failed > 0 ? fmt::format(", {} failed", total.failed) : ""));
  if (total.best == nullptr) return;
  case_tile(page, "Highest share", *total.best, total.best_number);
  tile(page, "Median share", total.median(), percent_text(total.median()),
       "of " + counted(total.shares.size(), "case"));
  case_tile(page, "Lowest share", *total.worst, total.worst_number);
}

void gain_tiles(markup& page, const input& from) {
  geometric_mean mean;
  double worst = 0;
  std::size_t count = 0;
  for (const tuned_problem& problem : from.problems) {
    const std::optional<double> gain = problem.gain();
    if (!gain) continue;
    mean.add(*gain, problem.count);
    worst = count == 0 ? *gain : std::min(worst, *gain);
    ++count;
  }
  if (count == 0) return;
  tile(page, "Tuned over default", mean.value(), gain_text(mean.value()),
       fmt::format("geometric mean of {}, worst {}", counted(count, "problem"), gain_text(worst)));
}

void row_tiles(markup& page, const input& from) {
  if (from.rows.empty()) return;
  double bytes = 0;
  double seconds = 0;
  for (const auto& [name, row] : from.rows) {
    bytes += row.cost.bytes.value_or(0);
    seconds += row.cost.seconds.value_or(0);
  }
  tile(page, "Rows", std::to_string(from.rows.size()),
       fmt::format("{:.0f} s to compile, {}", seconds, bytes_text(bytes)));
}

void replay_tiles(markup& page, const input& from) {
  for (const replay_run& run : from.replays) {
    if (run.sums.empty()) continue;
    const double rate = run.sums.front().tokens_per_second;
    tile(page, "Replay, tokens/s", rate, readable(rate),
         fmt::format("{}, {}", run.model, counted(run.steps.size(), "step")));
  }
}

}  // namespace

void summary(markup& page, const input& from, const page_facts&) {
  const case_totals total(from);
  {
    const auto lead = page.element("p", {{"class", "lead"}});
    const std::string machine = machine_of(from);
    std::string threads;
    std::string date;
    for (const bench_run& run : from.runs) {
      if (threads.empty()) threads = fact_of(run.context, {"threads"});
      if (date.empty()) date = fact_of(run.context, {"date"});
    }
    if (date.empty()) date = fact_of(from.tuning, {"date"});
    page.text("Measured on ");
    page.leaf("b", machine.empty() ? "a machine that the files do not name" : machine);
    if (!threads.empty()) page.text(fmt::format(", {} threads", threads));
    if (!date.empty()) {
      page.text(", ");
      page.leaf("time", {{"datetime", date}}, readable_date(date));
    }
    page.text(". Every percentage is of a ceiling that was measured in the same run.");
  }
  const auto tiles = page.element("dl", {{"class", "tiles"}});
  case_tiles(page, total, from.runs.size());
  replay_tiles(page, from);
  gain_tiles(page, from);
  row_tiles(page, from);
}

}  // namespace tessera::tool::report
