// A planned call run and timed: what `run`, `check` and `model` have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <boost/json/object.hpp>

#include <tessera/api/flash_attention.hpp>

#include "bench/support/timing.hpp"
#include "bench/support/work.hpp"

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

/// The plan of a problem. `subject` comes first in what goes wrong. A row that is not in the build
/// is the answer "no".
flash_plan plan_for(const flash_problem& problem, const execution_flags& flags,
                    const std::string& subject);

/// "lowest predicted time among the rows that fit": a sentence for people.
std::string_view sentence_of(selection_reason reason) noexcept;

/// "AMD EPYC 9R14 (cpu_avx512_bf16)".
std::string device_text();

/// {"milliseconds": {"min", "median", "max"}, "flops", "bytes", "gflops_per_second",
/// "gigabytes_per_second", "row", "tier", "reason", "device", "threads", "repeat"}.
boost::json::object to_json(const bench::timing& time, const bench::work& counted,
                            const flash_plan& plan);

}  // namespace tessera::tool
