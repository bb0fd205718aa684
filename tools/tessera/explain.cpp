// `tessera explain`: the whole selection, also for a device that is not there.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <tessera/runtime/overlay.hpp>

#include "command.hpp"
#include "device_file.hpp"
#include "execution.hpp"
#include "families.hpp"
#include "json.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct explain_flags : common_flags {
  std::string op;
  std::string problem;
  std::string device;
  std::string backend;
  std::string row;
  std::string overlay;
  std::string promise;
  int threads = 0;
};

/// The rules of `--overlay`: text with an arrow, else a file; none if it was not given.
std::optional<tessera::overlay> overlay_from(const explain_flags& flags) {
  if (flags.overlay.empty()) return std::nullopt;
  const bool text = flags.overlay.find("=>") != std::string::npos;
  const result<tessera::overlay> rules =
      text ? parse_overlay(flags.overlay) : read_overlay(flags.overlay);
  if (!rules) throw failure("--overlay: " + rules.message());
  return *rules;
}

/// The policy in force with the promise of `--promise`, if it was given.
selection_policy policy_from(const explain_flags& flags) {
  selection_policy policy = policy_in_force();
  if (flags.promise == "deterministic") policy.promise = bits_promise::deterministic;
  if (flags.promise == "batch_invariant") policy.promise = bits_promise::batch_invariant;
  return policy;
}

/// `message` with `prefix`, which it may have already.
std::string with_prefix(std::string_view prefix, const std::string& message) {
  return message.starts_with(prefix) ? message : std::string(prefix) + message;
}

/// The problem text of `--problem`, which may start with the operation's name.
std::string problem_from(const explain_flags& flags) {
  const std::size_t begin = flags.problem.find_first_not_of(" \t");
  const std::string text = begin == std::string::npos ? "" : flags.problem.substr(begin);
  const std::string first = text.substr(0, text.find_first_of(" \t"));
  const bool named = !first.empty() && first.find('=') == std::string::npos;
  if (named && first != flags.op) {
    throw failure(
        fmt::format("--problem: names the operation \"{}\", OP is \"{}\"", first, flags.op));
  }
  return named ? text : flags.op + " " + text;
}

/// What the table line that answers has for a row; 0 if nothing.
double measured_seconds(const explanation& what, std::string_view row) {
  for (const row_measurement& measurement : what.measured) {
    if (measurement.row == row) return measurement.seconds;
  }
  return 0;
}

json::object explanation_json(const explanation& what) {
  json::array tiers;
  for (const tier_answer& tier : what.tiers) {
    tiers.push_back(
        json::object{{"tier", json::string(name_of(tier.tier))},
                     {"decided", tier.decided},
                     {"row", tier.row.empty() ? json::value(nullptr) : json::value(tier.row)},
                     {"reason", tier.reason}});
  }
  json::array stale;
  for (const stale_line& line : what.stale) {
    stale.push_back(json::object{{"row", line.row}, {"reason", line.reason}});
  }
  json::array eligible;
  for (const row_estimate& row : what.eligible) {
    const double measured = measured_seconds(what, row.row);
    eligible.push_back(json::object{
        {"row", json::string(row.row)},
        {"predicted_milliseconds", row.seconds * 1e3},
        {"measured_milliseconds", measured > 0 ? json::value(measured * 1e3) : nullptr}});
  }
  json::array rejected;
  for (const row_rejection& row : what.rejected) {
    rejected.push_back(json::object{{"row", json::string(row.row)}, {"reason", row.reason}});
  }
  return {{"op", what.op},
          {"problem", what.problem},
          {"row", what.row.empty() ? json::value(nullptr) : json::value(what.row)},
          {"tier", json::string(name_of(what.tier))},
          {"reason", json::string(name_of(what.reason))},
          {"reason_text", what.reason_text},
          {"refusal", what.refusal.empty() ? json::value(nullptr) : json::value(what.refusal)},
          {"device_class", what.device_class},
          {"identity", what.identity},
          {"size", what.size},
          {"tiers", std::move(tiers)},
          {"stale", std::move(stale)},
          {"eligible", std::move(eligible)},
          {"rejected", std::move(rejected)},
          {"better_row",
           what.better_row.empty() ? json::value(nullptr) : json::value(what.better_row)}};
}

void print_head(const explanation& what, const device_facts& device) {
  const auto line = [](std::string_view name, const std::string& text) {
    print(fmt::format("{} {}\n", styled(style::bold, fmt::format("{:<8}", name)), text));
  };
  line("problem", what.problem);
  const bool cpu = device.kind == device_kind::cpu;
  line("device",
       text_of(device) + ", " +
           workers_text(device.id(), cpu ? device.available_threads : device.multiprocessors));
  line("key", what.device_class + " | " + what.identity + " | " + what.size);
  if (what.row.empty()) {
    line("row", styled(style::bad, "none: " + as_flags(what.refusal)));
  } else {
    line("row", styled(style::good, what.row));
    line("because", fmt::format("{}: {}", name_of(what.tier), as_flags(what.reason_text)));
  }
  if (!what.better_row.empty())
    line("better", "a table with this row would serve it better: " + what.better_row);
}

void print_tiers(const explanation& what) {
  table tiers({{"tier"}, {"decided"}, {"row"}, {"answer", side::left, true}});
  for (const tier_answer& tier : what.tiers) {
    tiers.add({std::string(name_of(tier.tier)),
               {tier.decided ? "yes" : "no", tier.decided ? style::good : style::dim},
               {tier.row.empty() ? "-" : tier.row, tier.row.empty() ? style::dim : style::plain},
               as_flags(tier.reason)});
  }
  print("\n" + tiers.text(terminal_width()));
}

void print_fitting(const explanation& what) {
  if (what.eligible.empty()) return;
  std::vector<column> columns{{"rows that fit"}, {"predicted", side::right}};
  if (!what.measured.empty()) columns.push_back({"measured", side::right});
  table rows(std::move(columns));
  for (const row_estimate& row : what.eligible) {
    const style look = row.row == what.row ? style::good : style::plain;
    std::vector<cell> cells{{std::string(row.row), look}, {duration_text(row.seconds), look}};
    if (!what.measured.empty()) {
      const double measured = measured_seconds(what, row.row);
      cells.emplace_back(measured > 0 ? duration_text(measured) : "-", look);
    }
    rows.add(std::move(cells));
  }
  print("\n" + rows.text(terminal_width()));
}

/// The names below each other, or side by side as far as the terminal is wide.
std::string in_columns(const std::vector<std::string_view>& names) {
  std::size_t widest = 1;
  for (const std::string_view name : names) widest = std::max(widest, name.size());
  const std::size_t width = terminal_width();
  const std::size_t columns = width == 0 ? 1 : std::max<std::size_t>(width / (widest + 2), 1);
  std::string text;
  for (std::size_t at = 0; at < names.size(); ++at) {
    const bool last = at % columns == columns - 1 || at + 1 == names.size();
    text += fmt::format("  {:<{}}{}", names[at], last ? 0 : widest, last ? "\n" : "");
  }
  return text;
}

/// Grouped by what is in the way, in the order of the registry.
void print_rejected(const explanation& what) {
  std::vector<std::pair<std::string_view, std::vector<std::string_view>>> groups;
  for (const row_rejection& row : what.rejected) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& known) { return known.first == row.reason; });
    if (group == groups.end()) group = groups.insert(group, {row.reason, {}});
    group->second.push_back(row.row);
  }
  if (groups.empty()) return;
  print(fmt::format("\n{}\n", styled(style::bold, "rows that do not fit")));
  for (const auto& [reason, names] : groups) {
    print(fmt::format("{} ({} row{})\n", reason, names.size(), names.size() == 1 ? "" : "s"));
    print(styled(style::dim, in_columns(names)));
  }
}

void print_report(const explanation& what, const device_facts& device, bool elsewhere) {
  print_head(what, device);
  print_tiers(what);
  print_fitting(what);
  print_rejected(what);
  const bool measured = what.tier == selection_tier::persistent || !what.measured.empty();
  if (measured || what.eligible.size() < 2 || elsewhere) return;
  const bool cpu = device.kind == device_kind::cpu;
  print(
      fmt::format("\nno table line answers for this problem; to measure the rows that fit:\n"
                  "  echo '{}' | tessera tune{} --problems -\n",
                  what.problem, cpu ? "" : fmt::format(" --backend {}", text_of(device.id()))));
}

/// The facts of a device that is there.
device_facts facts_of(device_id device) {
  const result<const device_facts*> found = find_device(device);
  if (!found) throw failure("--backend: " + found.message(), exit_status::no);
  return **found;
}

exit_status explain_problem(const explain_flags& flags) {
  const family& asked = family_of(flags.op, "OP");
  const std::string problem = problem_from(flags);
  const bool elsewhere = !flags.device.empty();
  const device_id here = device_of_backend(flags.backend);
  const device_facts device = elsewhere ? read_device(flags.device) : facts_of(here);
  const std::optional<tessera::overlay> rules = overlay_from(flags);
  const result<explanation> what = asked.explain(problem,
                                                 context{.row = flags.row,
                                                         .threads = flags.threads,
                                                         .device = here,
                                                         .policy = policy_from(flags),
                                                         .overlays = rules ? &*rules : nullptr},
                                                 elsewhere ? &device : nullptr);
  if (!what) {
    const bool unknown = what.code() == status_code::unknown_row;
    throw failure(
        unknown ? as_flags(what.message()) : "--" + with_prefix("problem: ", what.message()),
        unknown ? exit_status::no : exit_status::bad_input);
  }
  if (flags.json) {
    json::object document = explanation_json(*what);
    document["device"] = to_json(device);
    print_json(document);
  } else {
    print_report(*what, device, elsewhere);
  }
  return what->row.empty() ? exit_status::no : exit_status::success;
}

}  // namespace

void add_explain(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("explain", "Why a problem runs on the row it runs on");
  const auto flags = std::make_shared<explain_flags>();
  command->add_option("OP", flags->op, "One of the operations below")->required();
  command->add_option("--problem", flags->problem, "Shapes, dtypes and options as problem text")
      ->required()
      ->type_name("SPEC");
  command
      ->add_option("--device", flags->device,
                   "Describes a device that need not be there: what `tessera doctor --json` prints")
      ->type_name("FILE");
  command->add_option("--backend", flags->backend, "For a GPU of this machine; default: the CPU")
      ->type_name("cpu|cuda[:N]")
      ->excludes("--device");
  command
      ->add_option("--overlay", flags->overlay,
                   "As if these rules were in force: text or a file, as in TESSERA_OVERLAY")
      ->type_name("RULES");
  command
      ->add_option("--promise", flags->promise,
                   "As if the policy asked for it; what it costs is said with the row")
      ->type_name("deterministic|batch_invariant")
      ->check(CLI::IsMember({"deterministic", "batch_invariant"}));
  command->add_option("--row", flags->row, "As if this row had been asked for")->type_name("NAME");
  command->add_option("--threads", flags->threads, "As if the call had this many threads")
      ->type_name("N")
      ->check(between(1, 4096));
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera explain flash_attention \\\n"
      "      --problem 'q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023'\n\n" +
      op_paragraphs());
  command->callback([flags, &status] { status = explain_problem(*flags); });
}

}  // namespace tessera::tool
