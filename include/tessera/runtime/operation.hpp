// Calls, plans and explanations of any operation: what the typed functions of api/ come down to.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Carries out an operation: `tensors` is a view per tensor of its signature, `options` its options
/// struct.
status call_operation(const family& kind, const operation& op, const tensor_view* tensors,
                      const void* options, const context& where = {});

/// The problem of a call whose tensors lie on that device.
problem_view problem_of(const operation& op, const tensor_view* tensors, const void* options,
                        device_id device) noexcept;

/// Checks the problem, chooses a row and reserves its scratch memory.
result<operation_plan> plan_operation(const family& kind, const problem_view& problem,
                                      const context& where = {});

/// The whole choice as data, for the device of the context or (not null) one that need not be
/// there.
result<explanation> explain_operation(const family& kind, const problem_view& problem,
                                      const context& where = {},
                                      const device_facts* device = nullptr);

/// A problem whose operation is a number, which may be none; the problem outlives it.
struct numbered_problem {
  std::span<const operation> operations;
  std::size_t number = 0;
  problem_view problem;  ///< without the operation
};
result<operation_plan> plan_operation(const family& kind, numbered_problem asked,
                                      const context& where);
result<explanation> explain_operation(const family& kind, numbered_problem asked,
                                      const context& where, const device_facts* device);

/// Reads a problem of any operation of this build; `kind` becomes its family.
result<owned_problem> parse_problem(std::string_view line, const family*& kind);

}  // namespace tessera
