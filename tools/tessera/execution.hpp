// A planned call run and timed: what `run`, `check` and `model` have in common.
#pragma once

#include <string>
#include <string_view>

#include <CLI/App.hpp>

#include <tessera/api/context.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::tool {

/// Flags of the commands that run something.
struct execution_flags {
  std::string row;      ///< empty: chosen
  std::string backend;  ///< "cpu", "cuda" or empty
  int threads = 0;      ///< 0: what OpenMP would use
};

/// Adds `--row`, `--backend` and `--threads`.
void add_execution_flags(CLI::App& command, execution_flags& flags);

/// A message of the library in the words of the command line: `context.row` is `--row` there.
std::string as_flags(std::string message);

/// Fails unless this build has rows of the flags' backend.
void require_backend(const execution_flags& flags);

/// Ends the command with the library's refusal of a plan. A row that is not in the build is the
/// answer "no".
[[noreturn]] void refuse_plan(const status& refusal, const std::string& subject);

/// The plan of a problem of any family. `subject` comes first in what goes wrong.
template <class Problem>
auto plan_for(const Problem& problem, const execution_flags& flags, const std::string& subject) {
  require_backend(flags);
  auto made = plan(problem, context{.row = flags.row, .threads = flags.threads});
  if (!made) refuse_plan(made.failure(), subject);
  return *std::move(made);
}

/// "lowest predicted time among the rows that fit": a sentence for people.
std::string_view sentence_of(selection_reason reason) noexcept;

/// "AMD EPYC 9R14 (cpu_avx512_bf16)".
std::string device_text();

}  // namespace tessera::tool
