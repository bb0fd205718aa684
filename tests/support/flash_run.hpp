// Runs a call where the program's calls run, and says which rows of the build can take it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/registry.hpp>

#include "flash_cases.hpp"
#include "place.hpp"
#include "test_name.hpp"

namespace tessera::support {

inline status run(flash_op op, const flash_attention_args& args,
                  const flash_attention_options& options, const context& context = {}) {
  const found_operation known = operation_named(name_of(op));
  return call_here(*known.kind, {known.op, tensors_of(args), &options}, context);
}

/// The problem of a call whose tensors lie here.
inline flash_problem problem_here(const flash_attention_args& args,
                                  const flash_attention_options& options, flash_op op) {
  flash_problem problem = problem_of(args, options, op);
  problem.unaligned = problem_here(view_of(problem)).unaligned;
  return problem;
}

/// Whether a row can take a problem, decided from its config alone: what the library's own answer
/// is compared with.
inline bool takes(const attention_config& row, const flash_problem& problem) {
  const attention_sizes sizes = sizes_of(problem);
  const bool dims =
      row.head_dim == 0 || (row.head_dim == sizes.head_dim && row.v_head_dim == sizes.v_head_dim);
  const bool placed = !(wants_alignment(row) && problem.unaligned);
  return runs_here(row.target) && row.type == problem.tensors.q.type && dims && placed &&
         row.keys == key_storage::contiguous && row.mask >= mask_needed(problem.options) &&
         row.features.contains(features_needed(problem.tensors, problem.options));
}

inline bool takes(const instance& row, const flash_problem& problem) {
  return takes(row.config_as<attention_config>(), problem);
}

/// Rows of the build that take the call, on this machine.
inline std::vector<instance> rows_for(const flash_attention_args& args,
                                      const flash_attention_options& options,
                                      flash_op op = flash_op::flash_attention) {
  std::vector<instance> rows;
  const flash_problem problem = problem_here(args, options, op);
  for (const instance& row : attention_registry()) {
    if (takes(row, problem)) rows.push_back(row);
  }
  return rows;
}

}  // namespace tessera::support
