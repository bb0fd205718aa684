// The family of caches of a build: its record and its operations. Included by exactly one generated
// unit, behind the registry.
#pragma once

#include <tessera/api/kv_cache.hpp>
#include <tessera/families/kv_cache/family.hpp>
#include <tessera/families/kv_cache/lower.hpp>
#include <tessera/families/kv_cache/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family kv_cache_record =
    family_of<kv_cache_family, &kv_cache_registry, &kv_cache_code_version>();

status kv_cache_append(const kv_cache_args& args, const kv_cache_options& options,
                       const context& where) {
  return call_of(kv_cache_record, kv_cache_op::kv_cache_append, args, options, where);
}
status kv_cache_copy(const kv_cache_args& args, const kv_cache_options& options,
                     const context& where) {
  return call_of(kv_cache_record, kv_cache_op::kv_cache_copy, args, options, where);
}

result<kv_cache_plan> plan(const kv_cache_problem& problem, const context& where) {
  return plan_of(kv_cache_record, problem, where);
}
result<explanation> explain(const kv_cache_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(kv_cache_record, numbered(problem), where, device);
}

}  // namespace tessera
