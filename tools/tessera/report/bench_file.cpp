#include "bench_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "../json.hpp"
#include "fields.hpp"

namespace tessera::tool::report {
namespace {

namespace json = boost::json;

/// Members that Google Benchmark gives every case; what else is a number is a counter of ours.
constexpr std::array frame_members{"family_index", "per_family_instance_index",
                                   "repetitions",  "repetition_index",
                                   "threads",      "iterations",
                                   "real_time",    "cpu_time"};
constexpr std::array shown_counters{
    "median_us", "lower_quartile_us", "upper_quartile_us", "GFLOP/s", "GB/s", "of_ceiling"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::string_view one_core = "_one_core";

/// "fma_f32_one_core" as people write it: "f32 FMA, one core".
std::string ceiling_name(std::string_view key, limit kind) {
  if (key == "peak") return kind == limit::compute ? "arithmetic" : "read";
  const bool single = key.ends_with(one_core);
  if (single) key.remove_suffix(one_core.size());
  constexpr std::string_view fma = "fma_";
  const bool multiply_add = key.starts_with(fma);
  if (multiply_add) key.remove_prefix(fma.size());
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name + (multiply_add ? " FMA" : "") + (single ? ", one core" : "");
}

std::vector<ceiling> ceilings_of(const fields& context) {
  std::vector<ceiling> found;
  for (const json::key_value_pair& member : context.object()) {
    const std::string_view key(member.key());
    for (const auto& [ending, kind] :
         {std::pair<std::string_view, limit>{"_gflops", limit::compute},
          {"_gbytes", limit::memory}}) {
      if (!key.ends_with(ending)) continue;
      const std::optional<double> rate = context.number(key);
      if (!rate || *rate == 0) continue;  // the machine lacks the instruction
      const std::string_view name = key.substr(0, key.size() - ending.size());
      found.push_back({ceiling_name(name, kind), kind, *rate, name.ends_with(one_core)});
    }
  }
  // Where a picture has no room for every name, the first ones are shown.
  std::stable_sort(found.begin(), found.end(), [](const ceiling& a, const ceiling& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    if (a.of_one_core != b.of_one_core) return b.of_one_core;
    return a.kind == limit::compute ? a.rate > b.rate : a.rate < b.rate;
  });
  return found;
}

/// A value of the context for people: members and elements in a row, without brackets and quotes.
std::string words_of(const json::value& value) {
  std::string text;
  if (value.is_string()) return std::string(std::string_view(value.get_string()));
  if (const json::array* array = value.if_array()) {
    for (const json::value& element : *array) {
      text += fmt::format("{}{}",
                          text.empty()          ? ""
                          : element.is_object() ? "; "
                                                : ", ",
                          words_of(element));
    }
    return text;
  }
  if (const json::object* object = value.if_object()) {
    for (const json::key_value_pair& member : *object) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", std::string_view(member.key()),
                          words_of(member.value()));
    }
    return text;
  }
  return json_line(value);
}

std::vector<std::pair<std::string, std::string>> context_of(const json::object& context) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const json::key_value_pair& member : context) {
    const std::string_view key(member.key());
    const json::value& value = member.value();
    // Of the benchmark library's own package, which says nothing about the code measured.
    if (key == "library_build_type") continue;
    facts.emplace_back(key, words_of(value));
  }
  return facts;
}

double microseconds_per(const fields& members) {
  const std::string unit = members.text("time_unit");
  if (unit == "ns" || unit.empty()) return 1e-3;
  if (unit == "us") return 1;
  if (unit == "ms") return 1e3;
  if (unit == "s") return 1e6;
  members.refuse("time_unit", fmt::format("is \"{}\", must be ns, us, ms or s", unit));
}

double counter_or_zero(const bench_case& timing, std::string_view name) {
  for (const auto& [key, value] : timing.counters) {
    if (key == name) return value;
  }
  return 0;
}

/// True if the run says that limits of this kind hold the case, or does not say which.
bool may_hold(const bench_case& timing, limit kind) {
  const double of_peak = counter_or_zero(timing, "of_peak");
  const double of_read = counter_or_zero(timing, "of_read");
  if (of_peak == 0 || of_read == 0) return true;
  return (of_read > of_peak) == (kind == limit::memory);
}

/// The limit whose share is what the run calls its share of the ceiling. A run may take the limit
/// again between the rounds of a case, and it moves with the machine: the nearest is meant, if it
/// is not far.
std::string limit_behind(const bench_case& timing, const std::vector<ceiling>& ceilings) {
  if (!timing.of_ceiling || !(*timing.of_ceiling > 0)) return {};
  double least = std::log(1.25);
  std::string found;
  for (const ceiling& roof : ceilings) {
    const std::optional<double> rate = roof.kind == limit::compute ? timing.gflops : timing.gbytes;
    if (!rate || !(*rate > 0) || !may_hold(timing, roof.kind)) continue;
    const double off = std::abs(std::log(*rate / roof.rate / *timing.of_ceiling));
    if (off >= least) continue;
    least = off;
    found = roof.name;
  }
  return found;
}

/// Two ways to the same number: refuses if they differ by more than one percent.
void check_product(const fields& members, std::string_view rate_name, std::optional<double> rate,
                   std::string_view amount_name, std::optional<double> amount,
                   std::optional<double> median_us) {
  if (!rate || !amount || !median_us || *amount == 0) return;
  const double product = *amount / *median_us * 1e-3;
  if (std::abs(product / *rate - 1) <= 0.01) return;
  members.refuse(rate_name, fmt::format("is {}, but {} {} in {} us make {:.6g}", *rate, amount_name,
                                        *amount, *median_us, product));
}

/// Fills in what a case measured and refuses numbers that contradict each other.
void read_numbers(const fields& members, bench_case& found) {
  found.median_us = members.time("median_us");
  if (!found.median_us) {
    if (const auto real = members.time("real_time"))
      found.median_us = *real * microseconds_per(members);
    found.is_mean = found.median_us.has_value();
  }
  found.lower_us = members.time("lower_quartile_us");
  found.upper_us = members.time("upper_quartile_us");
  if (found.lower_us && found.upper_us && *found.lower_us > *found.upper_us) {
    members.refuse("lower_quartile_us",
                   fmt::format("is {}, upper_quartile_us is {}: the lower must "
                               "not be above the upper",
                               *found.lower_us, *found.upper_us));
  }
  found.gflops = members.number("GFLOP/s");
  found.gbytes = members.number("GB/s");
  found.of_ceiling = members.number("of_ceiling");
  for (const json::key_value_pair& member : members.object()) {
    const std::string_view key(member.key());
    if (!member.value().is_number() || among(frame_members, key) || among(shown_counters, key)) {
      continue;
    }
    found.counters.emplace_back(key, member.value().to_number<double>());
  }
  const std::optional<double> flops = members.number("flops");
  const std::optional<double> bytes = members.number("bytes");
  check_product(members, "GFLOP/s", found.gflops, "flops", flops, found.median_us);
  check_product(members, "GB/s", found.gbytes, "bytes", bytes, found.median_us);
  if (!found.gbytes && bytes && found.median_us) found.gbytes = *bytes / *found.median_us * 1e-3;
  if (!found.gflops && flops && found.median_us) found.gflops = *flops / *found.median_us * 1e-3;
}

bench_case read_case(const fields& entry) {
  bench_case found;
  found.name = entry.required_text("name");
  for (const std::string_view frame : {"/iterations:", "/manual_time"}) {
    found.name.erase(std::min(found.name.find(frame), found.name.size()));
  }
  found.group = found.name.substr(0, found.name.find('/'));
  const fields members(entry.object(), fmt::format("{} (\"{}\")", entry.subject(), found.name));
  found.row = members.text("label");
  const json::value* failed = members.object().if_contains("error_occurred");
  found.error = members.text("error_message");
  if (failed != nullptr && failed->is_bool() && failed->get_bool() && found.error.empty()) {
    found.error = "failed without a message";
  }
  if (found.error.empty()) read_numbers(members, found);
  return found;
}

void add_notes(const bench_run& run, std::vector<std::string>& notes) {
  const auto disturbed = std::count_if(run.cases.begin(), run.cases.end(),
                                       [](const bench_case& timing) { return timing.disturbed; });
  if (disturbed > 0) {
    notes.push_back(
        fmt::format("{}: {} of {} cases were disturbed by other programs while they "
                    "were measured; the numbers at the top leave them out",
                    run.path, disturbed, run.cases.size()));
  }
  const auto above =
      std::count_if(run.cases.begin(), run.cases.end(), [](const bench_case& timing) {
        return timing.of_ceiling && *timing.of_ceiling > 1.02 && !timing.disturbed;
      });
  if (above > 0) {
    notes.push_back(fmt::format(
        "{}: {} of {} cases above the ceiling measured in the same run: the machine was busy while "
        "the ceiling was measured, or the work fits in a cache",
        run.path, above, run.cases.size()));
  }
}

}  // namespace

bool is_bench_record(const json::object& document) {
  return document.contains("context") && document.contains("benchmarks");
}

bench_run read_bench_run(const json::object& document, const std::string& path,
                         std::vector<std::string>& notes) {
  const fields whole(document, path);
  const json::value& context = document.at("context");
  if (!context.is_object()) {
    whole.refuse("context", fmt::format("is {}, must be an object", json_line(context)));
  }
  bench_run run;
  run.path = path;
  run.context = context_of(context.get_object());
  run.ceilings = ceilings_of({context.get_object(), path + ": context"});
  const json::array& entries = whole.required_array("benchmarks");
  for (std::size_t at = 0; at < entries.size(); ++at) {
    const fields entry = whole.element(entries, at, "benchmarks");
    if (entry.text("run_type") == "aggregate") continue;
    bench_case timing = read_case(entry);
    constexpr std::string_view peer = "peer:";
    if (timing.row.starts_with(peer) && timing.median_us) {
      run.peers[timing.name].push_back({timing.row.substr(peer.size()), *timing.median_us});
      continue;
    }
    timing.held_to = limit_behind(timing, run.ceilings);
    timing.disturbed = counter_or_zero(timing, "disturbed") > 0;
    run.cases.push_back(std::move(timing));
  }
  add_notes(run, notes);
  return run;
}

}  // namespace tessera::tool::report
