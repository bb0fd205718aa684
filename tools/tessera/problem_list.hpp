// Problems from wherever they come: model descriptions, a list of problems, a recorded trace.
// Serves `tune` and `select`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "tools/tuner/tune.hpp"

namespace tessera::tool {

struct problem_flags {
  std::vector<std::string> models;
  std::vector<std::string> phases{"prefill", "decode"};
  std::vector<std::string> parts;  ///< of models; empty: all
  std::int64_t tokens = 0;  ///< 0: 2048 for a prompt, 8192 for a context, the model's limit at most
  std::int64_t batch = 1;
  std::string problems;
  std::string trace;
};

/// Adds --model, --phase, --tokens, --batch and --problems.
void add_model_and_list_flags(CLI::App& command, problem_flags& flags);

/// Adds --trace.
CLI::Option* add_trace_flag(CLI::App& command, problem_flags& flags);

/// Everything the flags name, with counts: those of a trace, the layers of a model. Fails with
/// file, line and fact if a line is not a problem, and if there is no problem at all. A problem
/// that no row of this build runs on the device is the answer "no".
std::vector<tuner::weighted_problem> read_problems(const problem_flags& flags,
                                                   const tuner::conditions& where);

}  // namespace tessera::tool
