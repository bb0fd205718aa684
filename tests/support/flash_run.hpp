// Runs a call where the program's calls run, and says which rows of the build can take it.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/runtime/family.hpp>

#include "flash_cases.hpp"
#include "place.hpp"
#include "test_name.hpp"

namespace tessera {

/// How GoogleTest prints a row.
inline void PrintTo(const attention_instance& row, std::ostream* stream) {
  *stream << row.name;
}

}  // namespace tessera

namespace tessera::support {

inline status run(flash_op op, const flash_attention_args& args,
                  const flash_attention_options& options, const context& context = {}) {
  return run_here(op, args, options, context);
}

/// Whether a row can take a problem, decided from its config alone: what the library's own answer
/// is compared with.
inline bool takes(const attention_config& row, const flash_problem& problem) {
  const attention_sizes sizes = sizes_of(problem);
  const bool dims =
      row.head_dim == 0 || (row.head_dim == sizes.head_dim && row.v_head_dim == sizes.v_head_dim);
  const bool placed = !(wants_alignment(row) && problem.unaligned);
  return runs_here(row.target) && row.type == problem.tensors.q.type && dims && placed &&
         row.mask >= mask_needed(problem) && row.features.contains(features_needed(problem));
}

/// Rows of the build that this program tests, whether or not the machine runs them.
inline std::vector<attention_instance> tested_rows() {
  std::vector<attention_instance> rows;
  for (const attention_instance& row : attention_registry()) {
    if (is_cpu(row.config.target) == (kind_here() == device_kind::cpu)) rows.push_back(row);
  }
  return rows;
}

/// Rows of the build that take the call, on this machine.
inline std::vector<attention_instance> rows_for(const flash_attention_args& args,
                                                const flash_attention_options& options,
                                                flash_op op = flash_op::flash_attention) {
  std::vector<attention_instance> rows;
  const flash_problem problem = problem_here(args, options, op);
  for (const attention_instance& row : attention_registry()) {
    if (takes(row.config, problem)) rows.push_back(row);
  }
  return rows;
}

}  // namespace tessera::support
