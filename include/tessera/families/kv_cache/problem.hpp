// What is asked of a cache of keys and values at run time: dtypes, sizes and options, no pointers.
// Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations of the family.
enum class kv_cache_op : std::uint8_t { kv_cache_append, kv_cache_copy };

/// A call of one of them without its memory.
using kv_cache_problem = basic_problem<kv_cache_op, kv_cache_args, kv_cache_options>;

constexpr kv_cache_pass pass_of(kv_cache_op op) noexcept {
  return op == kv_cache_op::kv_cache_copy ? kv_cache_pass::copy : kv_cache_pass::append;
}

/// See spec/problem_of.hpp.
kv_cache_problem problem_type(const kv_cache_args&);

}  // namespace tessera
