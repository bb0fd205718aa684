#include "plan.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::generate {
namespace {

struct expectation {
  int rows = 0;
  int not_measured = 0;
  double seconds = 0;
  double mebibytes = 0;  ///< largest
  std::int64_t bytes = 0;
};

expectation expected_of(const std::vector<row>& rows, const cost_file& costs) {
  expectation sum;
  for (const row& row : rows) {
    const row_cost cost = costs.of(row);
    ++sum.rows;
    sum.not_measured += cost.measured ? 0 : 1;
    sum.seconds += cost.seconds;
    sum.mebibytes = std::max(sum.mebibytes, cost.mebibytes);
    sum.bytes += cost.bytes;
  }
  return sum;
}

void add(expectation& total, const expectation& more) {
  total.rows += more.rows;
  total.not_measured += more.not_measured;
  total.seconds += more.seconds;
  total.mebibytes = std::max(total.mebibytes, more.mebibytes);
  total.bytes += more.bytes;
}

std::string blocks_text(const table& table) {
  std::string text;
  for (const block_report& block : table.blocks) {
    text += fmt::format("  {:3} rows  {}\n            {} = {}\n", block.rows, block.about,
                        block.product, block.combinations);
    for (const auto& [rule, count] : block.dropped) {
      text += fmt::format("            dropped {}: {}\n", count, rule);
    }
  }
  return text;
}

}  // namespace

std::string plan_text(const family& family, const table& table, const std::vector<unit>& units,
                      const cost_file& costs) {
  std::string text =
      fmt::format("{}: {} rows in {} units\n", family.name, table.rows.size(), units.size());
  text += blocks_text(table);
  std::map<backend, expectation> by_backend;
  std::map<backend, int> unit_count;
  expectation total;
  expectation largest;
  for (const unit& unit : units) {
    const expectation expected = expected_of(unit.rows, costs);
    add(by_backend[unit.target], expected);
    add(total, expected);
    ++unit_count[unit.target];
    if (expected.seconds > largest.seconds) largest = expected;
  }
  text += fmt::format("  {:<18}{:>6}{:>7}{:>10}{:>11}{:>9}\n", "expected", "rows", "units",
                      "seconds", "peak MiB", "KiB");
  const auto line = [&](std::string_view name, int count, const expectation& expectation) {
    text += fmt::format("  {:<18}{:>6}{:>7}{:>10.1f}{:>11.0f}{:>9.0f}\n", name, expectation.rows,
                        count, expectation.seconds, expectation.mebibytes,
                        static_cast<double>(expectation.bytes) / 1024);
  };
  for (const auto& [target, expected] : by_backend)
    line(name_of(target), unit_count[target], expected);
  line("largest unit", 1, largest);
  line("total", static_cast<int>(units.size()), total);
  for (const device_part part : device_parts) {
    const budget& limits = family.of(part).limits;
    if (family.of(part).kernel_header.empty()) continue;
    text += fmt::format("  {:<18}{:>6}{:>7}{:>10.1f}{:>11.0f}{:>9.0f}\n",
                        part == device_part::cpu ? "budget, CPU" : "budget, CUDA", limits.rows, "",
                        limits.seconds, limits.unit_mebibytes,
                        static_cast<double>(limits.bytes) / 1024);
  }
  if (total.not_measured > 0) {
    text += fmt::format("  {} of {} rows are not measured; the mean of their backend stands in\n",
                        total.not_measured, total.rows);
  }
  return text;
}

namespace {

/// What the units of one kind of device are over its budget.
std::string exceeded_by(device_part part, const family& family, const std::vector<unit>& units,
                        const cost_file& costs) {
  const budget& limits = family.of(part).limits;
  std::string text;
  const auto need = [&](bool within, const std::string& message) {
    if (!within) text += fmt::format("{}: {}\n", family.name, message);
  };
  expectation total;
  for (const unit& unit : units) {
    if (part_of(unit.target) != part) continue;
    const expectation expected = expected_of(unit.rows, costs);
    add(total, expected);
    need(expected.seconds <= limits.unit_seconds,
         fmt::format("{} is expected to compile for {:.1f} s, the budget of a unit is {:.1f} s",
                     unit.path, expected.seconds, limits.unit_seconds));
    need(expected.mebibytes <= limits.unit_mebibytes,
         fmt::format("{} is expected to take {:.0f} MiB, the budget of a unit is {:.0f} MiB",
                     unit.path, expected.mebibytes, limits.unit_mebibytes));
  }
  need(total.rows <= limits.rows,
       fmt::format("the table has {} rows, the budget is {}", total.rows, limits.rows));
  need(total.seconds <= limits.seconds,
       fmt::format("the table is expected to compile for {:.0f} s, the budget is {:.0f} s",
                   total.seconds, limits.seconds));
  need(total.bytes <= limits.bytes,
       fmt::format("the table is expected to take {} bytes, the budget is {}", total.bytes,
                   limits.bytes));
  return text;
}

}  // namespace

std::string exceeded(const family& family, const std::vector<unit>& units, const cost_file& costs) {
  std::string text;
  for (const device_part part : device_parts) {
    text += exceeded_by(part, family, units, costs);
  }
  return text;
}

}  // namespace tessera::generate
