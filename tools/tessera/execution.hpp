// A planned call run and timed: what `run`, `check` and `model` have in common.
#pragma once

#include <string>
#include <string_view>

#include <CLI/App.hpp>

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::tool {

/// Flags of the commands that run something.
struct execution_flags {
  std::string row;      ///< empty: chosen
  std::string backend;  ///< "cpu", "cuda", "cuda:1", ... or empty
  int threads = 0;      ///< 0: what OpenMP would use
};

/// Adds `--row`, `--backend` and `--threads`.
void add_execution_flags(CLI::App& command, execution_flags& flags);

/// A message of the library in the words of the command line: `context.row` is `--row` there.
std::string as_flags(std::string message);

/// The device of a `--backend`; empty: the CPU. Fails unless this build has rows for it. A GPU is
/// not asked whether it is there.
device_id named_device(const std::string& backend);

/// The same; fails also where it is a GPU and not there.
device_id device_of_backend(const std::string& backend);

/// Ends the command with the library's refusal of a plan. A row that is not in the build is the
/// answer "no".
[[noreturn]] void refuse_plan(const status& refusal, const std::string& subject);

/// The plan of a problem on a device. `subject` comes first in what goes wrong.
template <class Problem>
basic_plan<Problem> plan_for(const Problem& problem, const execution_flags& flags, device_id device,
                             void* stream, const std::string& subject) {
  auto planned =
      plan(problem,
           context{.row = flags.row, .threads = flags.threads, .device = device, .stream = stream});
  if (!planned) refuse_plan(planned.failure(), subject);
  return *std::move(planned);
}
operation_plan plan_for(const tessera::family& kind, const problem_view& problem,
                        const execution_flags& flags, device_id device, void* stream,
                        const std::string& subject);

/// "lowest predicted time among the rows that fit": a sentence for people.
std::string_view sentence_of(selection_reason reason) noexcept;

/// "AMD EPYC 9R14 (cpu_avx512_bf16)", "NVIDIA H200 (cuda:0, compute capability 9.0)".
std::string text_of(const device_facts& facts);
std::string device_text(device_id device = {});

/// "2 threads", "132 multiprocessors".
std::string workers_text(device_id device, int workers);

}  // namespace tessera::tool
