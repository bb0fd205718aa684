// What the functions of every operation share behind the C interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_context.hpp>
#include <tessera/interop/impl/c_plan.hpp>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/runtime/device_facts.hpp>
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

/// The device that all tensors of a call lie on.
template <class Given, class Args, std::size_t Count>
status read_device(const std::array<tensor_pair<Given, Args>, Count>& pairs, const Args& args,
                   device_id& device) {
  std::string_view first;
  for (const auto& one : pairs) {
    const tensor_view& view = args.*one.to;
    if (!view.present()) continue;
    if (first.empty()) {
      first = one.name;
      device = view.device;
    }
    if (view.device == device) continue;
    return refuse(std::string(one.name) + ": device is " + std::string(text_of(view.device)) +
                  ", " + std::string(first) + " has " + std::string(text_of(device)));
  }
  return {};
}

/// Chooses for a problem on a device and hands the plan out.
template <class Problem>
status make_plan(const Problem& problem, const call_context& where, device_id device,
                 tessera_plan** to) {
  auto made = tessera::plan(problem, where.values_on(device));
  if (!made) return made.failure();
  *to = new tessera_plan(*std::move(made));
  return {};
}

/// Runs a plan of the family `Plan` belongs to.
template <class Plan>
status run_plan(const tessera_plan* plan, std::string_view op, const typename Plan::args_type& args,
                void* workspace, std::size_t workspace_bytes, void* stream) {
  const Plan* planned = plan_of<Plan>(plan);
  if (planned == nullptr) return not_a_plan(plan, op);
  if (workspace == nullptr) return planned->run(args, stream);
  return planned->run(args, {static_cast<std::byte*>(workspace), workspace_bytes}, stream);
}

}  // namespace tessera::c
