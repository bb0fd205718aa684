// What the functions of every operation share behind the C interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_context.hpp>
#include <tessera/interop/impl/c_plan.hpp>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::c {

/// A tensor of a call on both sides.
template <class Given, class Args>
struct tensor_pair {
  std::string_view name;
  const tessera_tensor* Given::*given;
  tensor_view Args::*to;
};

/// The views of a call. `pairs` lists every tensor.
template <class Given, class Args, std::size_t Count>
status read_tensors(const Given* given, const std::array<tensor_pair<Given, Args>, Count>& pairs,
                    Args& to) {
  if (given == nullptr) return refuse("args: is NULL");
  Given known;
  if (status done = read_struct(given, "args", known); !done) return done;
  if (status done = check_flags("args: reserved", known.reserved, 0); !done) return done;
  for (const auto& one : pairs) {
    if (status done = read_tensor(known.*one.given, one.name, to.*one.to); !done) return done;
  }
  return {};
}

/// Chooses for a problem and hands the plan out.
template <class Problem>
status make_plan(const Problem& problem, const call_context& where, tessera_plan** to) {
  auto made = tessera::plan(problem, where.values());
  if (!made) return made.failure();
  *to = new tessera_plan(*std::move(made));
  return {};
}

/// Runs a plan of the family `Plan` belongs to.
template <class Plan>
status run_plan(const tessera_plan* plan, std::string_view op, const typename Plan::args_type& args,
                void* workspace, std::size_t workspace_bytes, const void* stream) {
  const Plan* planned = plan_of<Plan>(plan);
  if (planned == nullptr) return not_a_plan(plan, op);
  if (status done = check_stream(stream); !done) return done;
  if (workspace == nullptr) return planned->run(args);
  return planned->run(args, {static_cast<std::byte*>(workspace), workspace_bytes});
}

}  // namespace tessera::c
