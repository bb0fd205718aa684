// Reflection over the family of linear attention with decay, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(chunked_scan_form, step, chunk)

BOOST_DESCRIBE_STRUCT(chunked_scan_config, (), (target, type, pass, form, key_dim))

/// `chunked_scan.<backend>.<dtype>.<pass>.<form>`, of CUDA rows with `.k<key_dim>` behind it.
template <>
inline constexpr auto spelling_of<chunked_scan_config> = row_names<chunked_scan_config>(
    "chunked_scan", spelling::word{&chunked_scan_config::target},
    spelling::word{&chunked_scan_config::type}, spelling::word{&chunked_scan_config::pass},
    spelling::word{&chunked_scan_config::form},
    spelling::where{[](const chunked_scan_config& row) { return is_cuda(row.target); },
                    spelling::number{".k", &chunked_scan_config::key_dim}});

}  // namespace tessera
