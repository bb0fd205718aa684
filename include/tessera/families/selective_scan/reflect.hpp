// Reflection over the family of elementwise recurrences, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(scan_recurrence, state_space_v1, state_space_v2, rwkv4)

BOOST_DESCRIBE_STRUCT(selective_scan_config, (), (target, recurrence, pass))

/// `selective_scan.<backend>.<recurrence>.<pass>`.
template <>
inline constexpr auto spelling_of<selective_scan_config> = row_names<selective_scan_config>(
    "selective_scan", spelling::word{&selective_scan_config::target},
    spelling::word{&selective_scan_config::recurrence},
    spelling::word{&selective_scan_config::pass});

}  // namespace tessera
