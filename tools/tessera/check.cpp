// `tessera check`: golden files, the user's own too: our error and the source's beside each other.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "command.hpp"
#include "execution.hpp"
#include "families.hpp"
#include "json.hpp"
#include "table.hpp"
#include "tests/reference/elements.hpp"
#include "tests/support/file_judge.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

struct check_flags : common_flags {
  std::vector<std::string> files;
  bool all_rows = false;
  execution_flags execution;
};

/// What is said of one `ref.*` tensor.
struct verdict {
  std::string tensor;
  bool computed = false;  ///< not by the other direction, nor where no operation computes it
  support::comparison ours;
  std::optional<double> source_error;

  bool failed() const { return computed && !ours.passed; }
};

struct checked_row {
  std::string op;
  std::string row;
  std::string tier;
  std::vector<verdict> verdicts;
};

struct checked_file {
  std::string file;
  std::string op;
  std::string about;
  std::string source;
  std::vector<checked_row> rows;
  std::string refusal;  ///< why the file cannot be used; empty if it can
  exit_status refusal_status = exit_status::bad_input;

  std::size_t failures() const {
    std::size_t count = 0;
    for (const checked_row& row : rows) {
      for (const verdict& verdict : row.verdicts) count += verdict.failed() ? 1 : 0;
    }
    return count;
  }

  /// References that no row of any direction gave an answer to.
  std::size_t not_computed() const {
    std::set<std::string> open;
    for (const checked_row& row : rows) {
      for (const verdict& verdict : row.verdicts) open.insert(verdict.tensor);
    }
    for (const checked_row& row : rows) {
      for (const verdict& verdict : row.verdicts) {
        if (verdict.computed) open.erase(verdict.tensor);
      }
    }
    return open.size();
  }
};

void require_same_shape(const file_call& call, std::string_view name, const tensor_view& ours,
                        const tensor_view& other) {
  if (ours.rank == other.rank && ours.extent == other.extent) return;
  throw failure(fmt::format("{}: tensor {} has {} elements in {} axes, {} gives {} in {}",
                            call.path(), name, other.elements(), other.rank, call.op(),
                            ours.elements(), ours.rank));
}

verdict judge(const file_call& call, const safetensors_entry& reference) {
  verdict verdict;
  verdict.tensor = reference.name.substr(std::string_view("ref.").size());
  const tensor_view* ours = nullptr;
  const std::vector<safetensors_entry> outputs = call.outputs();
  for (const safetensors_entry& output : outputs) {
    if (output.name == "out." + verdict.tensor) ours = &output.tensor;
  }
  if (ours == nullptr) return verdict;
  verdict.computed = true;
  require_same_shape(call, reference.name, *ours, reference.tensor);
  if (const tensor_view* source = call.file().tensor("out." + verdict.tensor)) {
    require_same_shape(call, "out." + verdict.tensor, *ours, *source);
  }
  const support::file_verdict found = support::judge_by_file(
      call.file(), verdict.tensor, reference::to_doubles(*ours), ours->type, call.operand_type());
  verdict.ours = found.ours;
  verdict.source_error = found.source_error;
  return verdict;
}

checked_row run_row(file_call& call, const check_flags& flags, const std::string& row) {
  execution_flags execution = flags.execution;
  if (!row.empty()) execution.row = row;
  call.allocate_outputs(execution);
  const std::unique_ptr<planned_call> plan = call.plan(execution);
  require(plan->run(), call.path());
  require(plan->fetch(), call.path());
  checked_row checked{
      std::string(call.op()), std::string(plan->row()), std::string(name_of(plan->tier())), {}};
  for (const safetensors_entry& entry : call.file().entries()) {
    if (entry.name.starts_with("ref.")) checked.verdicts.push_back(judge(call, entry));
  }
  if (checked.verdicts.empty()) {
    throw failure(fmt::format("{}: has {} tensors, 0 of them named ref.*: nothing to judge by",
                              call.path(), call.file().entries().size()));
  }
  return checked;
}

/// The rows to run: all that fit, or one (empty: the chosen one).
std::vector<std::string> rows_to_run(file_call& call, const check_flags& flags) {
  if (!flags.all_rows) return {std::string()};
  call.allocate_outputs(flags.execution);
  const result<explanation> found = call.explain(flags.execution);
  if (!found) throw failure(call.path() + ": " + found.message());
  std::vector<std::string> rows;
  for (const row_estimate& fits : found->eligible) rows.emplace_back(fits.row);
  return rows;
}

/// Runs the call on its rows and keeps the verdicts.
void check_call(file_call& call, const check_flags& flags, checked_file& checked) {
  for (const std::string& row : rows_to_run(call, flags)) {
    checked.rows.push_back(run_row(call, flags, row));
  }
}

/// True if the file has an incoming gradient and a gradient to judge by: the file serves both
/// directions then.
bool serves_gradient(const file_call& call) {
  const auto has = [&call](const auto& is_wanted) {
    const auto& entries = call.file().entries();
    return std::any_of(entries.begin(), entries.end(), is_wanted);
  };
  return has([](const safetensors_entry& entry) {
           return entry.name == "in.d_out" || entry.name == "d_out" || entry.name == "in.d_loss";
         }) &&
         has([](const safetensors_entry& entry) { return entry.name.starts_with("ref.d_"); });
}

/// The forward call and the gradient of that name, if there is one. A row that is named runs in the
/// direction that it can; it is an error if it runs in none, and why a row cannot run says more
/// than that the other direction has no such row.
void check_directions(file_call& forward, std::string_view backward, const check_flags& flags,
                      checked_file& checked) {
  std::optional<failure> refused;
  const auto attempt = [&](const auto& check) {
    try {
      check();
    } catch (const failure& failed) {
      if (flags.execution.row.empty()) throw;
      if (!refused || failed.status() > refused->status()) refused = failed;
    }
  };
  attempt([&] { check_call(forward, flags, checked); });
  if (!backward.empty()) {
    attempt([&] { check_call(*open_call(forward.path(), backward), flags, checked); });
  }
  if (checked.rows.empty() && refused) throw *refused;
}

/// Leaves out of a row what a row of the other direction answers.
void keep_own_verdicts(checked_file& checked) {
  std::set<std::string> answered;
  for (const checked_row& row : checked.rows) {
    for (const verdict& verdict : row.verdicts) {
      if (verdict.computed) answered.insert(verdict.tensor);
    }
  }
  for (checked_row& row : checked.rows) {
    std::erase_if(row.verdicts, [&](const verdict& verdict) {
      return !verdict.computed && answered.contains(verdict.tensor);
    });
  }
}

checked_file check_one(const std::string& path, const check_flags& flags) {
  checked_file checked;
  checked.file = path;
  try {
    const std::unique_ptr<file_call> call = open_call(path);
    const auto text = [&](const char* key) {
      const auto found = call->file().metadata().find(key);
      return found == call->file().metadata().end() ? std::string() : found->second;
    };
    checked.op = call->op();
    checked.about = text("about");
    checked.source = text("source");
    std::string_view backward = family_of(call->op(), path).backward_of(call->op());
    if (!serves_gradient(*call)) backward = {};
    check_directions(*call, backward, flags, checked);
    keep_own_verdicts(checked);
  } catch (const failure& failed) {
    checked.refusal = failed.what();
    checked.refusal_status = failed.status();
  }
  return checked;
}

json::object json_of(const checked_file& checked) {
  json::array rows;
  for (const checked_row& row : checked.rows) {
    json::array tensors;
    for (const verdict& verdict : row.verdicts) {
      json::object tensor{{"name", verdict.tensor}, {"computed", verdict.computed}};
      if (verdict.computed) {
        tensor["error"] = verdict.ours.error;
        tensor["source_error"] =
            verdict.source_error ? json::value(*verdict.source_error) : nullptr;
        tensor["bound"] = verdict.ours.bound;
        tensor["nan_and_inf_agree"] = verdict.ours.specials_agree;
        tensor["passed"] = verdict.ours.passed;
      }
      tensors.push_back(std::move(tensor));
    }
    rows.push_back(json::object{
        {"op", row.op}, {"row", row.row}, {"tier", row.tier}, {"tensors", std::move(tensors)}});
  }
  json::object file{
      {"file", checked.file},    {"op", checked.op},
      {"about", checked.about},  {"source", checked.source},
      {"rows", std::move(rows)}, {"passed", checked.failures() == 0 && checked.refusal.empty()}};
  if (!checked.refusal.empty()) file["refusal"] = checked.refusal;
  return file;
}

std::string number(double value) {
  return value == 0.0 ? "0" : fmt::format("{:.1e}", value);
}

/// One line per judged tensor; the file's name on its first, the row's name on the row's last.
void add_rows(table& out, const checked_file& checked) {
  std::string file = std::filesystem::path(checked.file).stem().string();
  for (const checked_row& row : checked.rows) {
    const auto last = std::find_if(row.verdicts.rbegin(), row.verdicts.rend(),
                                   [](const verdict& verdict) { return verdict.computed; });
    for (const verdict& verdict : row.verdicts) {
      if (!verdict.computed) continue;
      std::string answer = verdict.ours.passed ? "ok" : "out of bound";
      if (!verdict.ours.specials_agree) answer = "NaN or Inf differs";
      out.add({file,
               verdict.tensor,
               {number(verdict.ours.error), verdict.ours.passed ? style::plain : style::bad},
               verdict.source_error ? number(*verdict.source_error) : "-",
               number(verdict.ours.bound),
               {answer, verdict.ours.passed ? style::good : style::bad},
               &verdict == &*last ? row.row : ""});
      file.clear();
    }
  }
}

void print_report(const std::vector<checked_file>& all) {
  table out({{"file"},
             {"tensor"},
             {"our error", side::right},
             {"source's", side::right},
             {"bound", side::right},
             {""},
             {"row", side::left, true}});
  std::size_t judged = 0;
  std::size_t not_computed = 0;
  std::size_t failures = 0;
  std::size_t refused = 0;
  for (const checked_file& checked : all) {
    add_rows(out, checked);
    failures += checked.failures();
    refused += checked.refusal.empty() ? 0 : 1;
    for (const checked_row& row : checked.rows) {
      for (const verdict& verdict : row.verdicts) judged += verdict.computed ? 1 : 0;
    }
    not_computed += checked.not_computed();
  }
  if (!out.empty()) print(out.text(terminal_width()) + "\n");
  std::string verdict_text = judged > 0 ? styled(style::good, "all within bound") : "none to judge";
  if (failures > 0) verdict_text = styled(style::bad, fmt::format("{} out of bound", failures));
  print(fmt::format("{} file{}, {} tensor{} judged, {}", all.size(), all.size() == 1 ? "" : "s",
                    judged, judged == 1 ? "" : "s", verdict_text));
  if (refused > 0) print(fmt::format(", {} cannot be used", refused));
  if (not_computed > 0) {
    print(fmt::format("; {} ref.* that no operation of this build computes", not_computed));
  }
  print("\n");
}

exit_status check(const check_flags& flags) {
  std::vector<checked_file> all;
  exit_status status = exit_status::success;
  {
    progress steps(flags.quiet || !has_colour(STDERR_FILENO), flags.files.size());
    for (const std::string& path : flags.files) {
      steps.step(std::filesystem::path(path).filename().string());
      all.push_back(check_one(path, flags));
    }
  }
  bool passed = true;
  for (const checked_file& checked : all) {
    passed = passed && checked.failures() == 0 && checked.refusal.empty();
    if (checked.failures() > 0) status = std::max(status, exit_status::no);
    if (checked.refusal.empty()) continue;
    print_message(checked.refusal);
    status = std::max(status, checked.refusal_status);
  }
  if (flags.json) {
    json::array files;
    for (const checked_file& checked : all) files.push_back(json_of(checked));
    print_json(json::object{{"passed", passed}, {"files", std::move(files)}});
  } else {
    print_report(all);
  }
  return status;
}

}  // namespace

void add_check(CLI::App& program, exit_status& status) {
  CLI::App* command = program.add_subcommand("check", "Judge results against golden files");
  const auto flags = std::make_shared<check_flags>();
  command
      ->add_option("FILE", flags->files,
                   "safetensors files with in.*, ref.* and, for the source's own error, out.*")
      ->required();
  add_execution_flags(*command, flags->execution);
  command
      ->add_flag("--all-rows", flags->all_rows, "Run every row that fits, not only the chosen one")
      ->excludes("--row");
  add_common_flags(*command, *flags);
  command->footer("Example:\n  tessera check tests/golden/*minilm*.safetensors");
  command->callback([flags, &status] { status = check(*flags); });
}

}  // namespace tessera::tool
