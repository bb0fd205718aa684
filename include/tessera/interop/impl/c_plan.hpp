// Plans behind the C interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <tessera/api/plan.hpp>
#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_context.hpp>
#include <tessera/interop/impl/c_operation.hpp>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/runtime/operation.hpp>

/// What `tessera_plan*` points to.
struct tessera_plan {
  tessera_plan(tessera::operation_plan settled, std::int32_t number)
      : plan(std::move(settled)),
        operation(number),
        row(plan.choice().row()),
        tier(name_of(plan.choice().tier)),
        reason(name_of(plan.choice().reason)) {}

  tessera::operation_plan plan;
  std::int32_t operation;
  std::string row;
  std::string tier;
  std::string reason;
};

namespace tessera::c {

/// Chooses for a call and hands the plan out.
inline status make_plan(const call_values& call, std::int32_t operation, const call_context& where,
                        tessera_plan** to) {
  const auto& [kind, op] = call.asked;
  device_id device;
  if (status done = read_device(*op, call.tensors.data(), device); !done) return done;
  auto plan =
      plan_operation(*kind, problem_of(*op, call.tensors.data(), call.options.data(), device),
                     where.values_on(device));
  if (!plan) return plan.failure();
  *to = new tessera_plan(*std::move(plan), operation);
  return {};
}

inline status run_plan(const tessera_plan& to, const void* args, std::span<std::byte> workspace,
                       void* stream) {
  view_list tensors;
  const operation_plan& plan = to.plan;
  if (status done = read_args(args, *plan.problem().op, tensors.data()); !done) return done;
  if (workspace.data() == nullptr) return plan.run(tensors.data(), stream);
  return plan.run(tensors.data(), workspace, stream);
}

/// A number per tensor of the args.
inline status read_faults(const tessera_plan& of, void* stream, std::span<std::uint64_t> entries) {
  const std::size_t tensors = of.plan.problem().op->form->tensors.size();
  if (entries.size() < tensors) {
    return refuse("entries: count is " + std::to_string(entries.size()) + ", the args have " +
                  std::to_string(tensors) + " tensors");
  }
  const auto faults = of.plan.faults(stream);
  if (!faults) return faults.failure();
  std::fill(entries.begin(), entries.end(), std::uint64_t{0});
  for (const tensor_faults& fault : *faults) entries[fault.place] = fault.entries;
  return {};
}

}  // namespace tessera::c
