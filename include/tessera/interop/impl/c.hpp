// The C interface, compiled once: one unit of a program includes this file (the libraries
// tessera::c and tessera::c_shared are that unit).
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/interop/c.h>
#include <tessera/interop/impl/c_context.hpp>
#include <tessera/interop/impl/c_operation.hpp>
#include <tessera/interop/impl/c_plan.hpp>
#include <tessera/interop/impl/c_structs.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/version.hpp>

extern "C" {

TESSERA_API std::int32_t tessera_call(std::int32_t operation, const void* args, const void* options,
                                      const tessera_context* context, tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    tessera::c::call_context where;
    tessera::c::call_values call;
    if (auto done = where.read(context); !done) return done;
    if (auto done = call.read(operation, args, options); !done) return done;
    return call_operation(*call.asked.kind, *call.asked.op, call.tensors.data(),
                          call.options.data(), where.values());
  });
}

TESSERA_API std::int32_t tessera_plan_make(std::int32_t operation, const void* args,
                                           const void* options, const tessera_context* context,
                                           tessera_plan** plan, tessera_status* status) {
  if (plan != nullptr) *plan = nullptr;
  return tessera::c::guarded(status, [&] {
    tessera::c::call_context where;
    tessera::c::call_values call;
    if (plan == nullptr) return tessera::c::refuse("plan: is NULL");
    if (auto done = where.read(context); !done) return done;
    if (auto done = call.read(operation, args, options); !done) return done;
    return tessera::c::make_plan(call, operation, where, plan);
  });
}

TESSERA_API std::int32_t tessera_plan_run(const tessera_plan* plan, const void* args,
                                          void* workspace, std::size_t workspace_bytes,
                                          void* stream, tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    if (plan == nullptr) return tessera::c::refuse("plan: is NULL");
    return tessera::c::run_plan(*plan, args, {static_cast<std::byte*>(workspace), workspace_bytes},
                                stream);
  });
}

TESSERA_API std::int32_t tessera_plan_faults(const tessera_plan* plan, void* stream,
                                             std::uint64_t* entries, std::size_t count,
                                             tessera_status* status) {
  return tessera::c::guarded(status, [&] {
    if (plan == nullptr) return tessera::c::refuse("plan: is NULL");
    if (entries == nullptr) return tessera::c::refuse("entries: is NULL");
    return tessera::c::read_faults(*plan, stream, {entries, count});
  });
}

TESSERA_API void tessera_plan_free(tessera_plan* plan) {
  delete plan;
}

TESSERA_API std::int32_t tessera_plan_operation(const tessera_plan* plan) {
  return plan == nullptr ? 0 : plan->operation;
}

TESSERA_API std::size_t tessera_plan_workspace_bytes(const tessera_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

TESSERA_API const char* tessera_plan_row(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->row.c_str();
}

TESSERA_API const char* tessera_plan_tier(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->tier.c_str();
}

TESSERA_API const char* tessera_plan_reason(const tessera_plan* plan) {
  return plan == nullptr ? "" : plan->reason.c_str();
}

TESSERA_API std::uint32_t tessera_c_version() {
  return TESSERA_C_VERSION;
}

TESSERA_API const char* tessera_version() {
  return tessera::version.data();
}

TESSERA_API const char* tessera_code_name(std::int32_t code) {
  if (code == TESSERA_OUT_OF_MEMORY) return "out_of_memory";
  if (code == TESSERA_INTERNAL) return "internal";
  if (code < TESSERA_OK || code > TESSERA_IO) return "unknown";
  return name_of(static_cast<tessera::status_code>(code)).data();
}
}
