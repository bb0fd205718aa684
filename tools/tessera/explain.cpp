// `tessera explain`: the whole selection, also for a device that is not there.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
  std::string row;
  std::string overlay;
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
    eligible.push_back(json::object{{"row", json::string(row.row)},
                                    {"predicted_milliseconds", row.seconds * 1e3}});
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
  line("device", fmt::format("{} ({}), {} threads",
                             device.product_name().empty() ? "unnamed" : device.product_name(),
                             name_of(device.highest), device.available_threads));
  line("key", what.device_class + " | " + what.identity + " | " + what.size);
  if (what.row.empty()) {
    line("row", styled(style::bad, "none: " + as_flags(what.refusal)));
  } else {
    line("row", styled(style::good, what.row));
    line("because", fmt::format("{}: {}", name_of(what.tier), what.reason_text));
  }
  if (!what.better_row.empty())
    line("better", "a table with this row would serve it better: " + what.better_row);
}

void print_report(const explanation& what, const device_facts& device) {
  print_head(what, device);
  table tiers({{"tier"}, {"decided"}, {"row"}, {"answer", side::left, true}});
  for (const tier_answer& tier : what.tiers) {
    tiers.add({std::string(name_of(tier.tier)),
               {tier.decided ? "yes" : "no", tier.decided ? style::good : style::dim},
               {tier.row.empty() ? "-" : tier.row, tier.row.empty() ? style::dim : style::plain},
               as_flags(tier.reason)});
  }
  print("\n" + tiers.text(terminal_width()));
  table eligible({{"rows that fit"}, {"predicted ms", side::right}});
  for (const row_estimate& row : what.eligible) {
    const style look = row.row == what.row ? style::good : style::plain;
    eligible.add({{std::string(row.row), look}, {fmt::format("{:.4g}", row.seconds * 1e3), look}});
  }
  if (!eligible.empty()) print("\n" + eligible.text(terminal_width()));
  table rejected({{"rows that do not fit"}, {"because", side::left, true}});
  for (const row_rejection& row : what.rejected) {
    rejected.add({std::string(row.row), {row.reason, style::dim}});
  }
  if (!rejected.empty()) print("\n" + rejected.text(terminal_width()));
}

exit_status explain_problem(const explain_flags& flags) {
  const family& asked = family_of(flags.op, "OP");
  const std::string problem = problem_from(flags);
  const bool elsewhere = !flags.device.empty();
  const device_facts device = elsewhere ? read_device(flags.device) : this_device();
  const std::optional<tessera::overlay> rules = overlay_from(flags);
  const result<explanation> what = asked.explain(
      problem,
      context{.row = flags.row, .threads = flags.threads, .overlays = rules ? &*rules : nullptr},
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
    print_report(*what, device);
  }
  return what->row.empty() ? exit_status::no : exit_status::success;
}

}  // namespace

void add_explain(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("explain", "Why a problem runs on the row it runs on");
  const auto flags = std::make_shared<explain_flags>();
  command->add_option("OP", flags->op, op_list())->required();
  command->add_option("--problem", flags->problem, "Shapes, dtypes and options as problem text")
      ->required()
      ->type_name("SPEC");
  command
      ->add_option("--device", flags->device,
                   "Describes a device that need not be there: what `tessera doctor --json` prints")
      ->type_name("FILE");
  command
      ->add_option("--overlay", flags->overlay,
                   "As if these rules were in force: text or a file, as in TESSERA_OVERLAY")
      ->type_name("RULES");
  command->add_option("--row", flags->row, "As if this row had been asked for")->type_name("NAME");
  command->add_option("--threads", flags->threads, "As if the call had this many threads")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  add_common_flags(*command, *flags);
  command->footer(
      "Example:\n  tessera explain flash_attention \\\n"
      "      --problem 'q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023'");
  command->callback([flags, &status] { status = explain_problem(*flags); });
}

}  // namespace tessera::tool
