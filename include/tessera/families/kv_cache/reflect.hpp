// Reflection over the family of caches, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(kv_cache_pass, append, copy)

BOOST_DESCRIBE_STRUCT(kv_cache_config, (), (target, pass))

/// `kv_cache.<backend>.<pass>`.
template <>
inline constexpr auto spelling_of<kv_cache_config> = row_names<kv_cache_config>(
    "kv_cache", spelling::word{&kv_cache_config::target}, spelling::word{&kv_cache_config::pass});

}  // namespace tessera
