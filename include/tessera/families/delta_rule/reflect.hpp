// Reflection over the delta rule family, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/families/delta_rule/ragged_problem.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/families/delta_rule/rwkv7_problem.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_STRUCT(delta_rule_config, (), (target, type, pass, chunk, columns, key_dim))

/// `delta_rule.<backend>.<dtype>.<pass>.c<chunk>.v<columns>`; of CUDA rows `.k<key_dim>` behind the
/// pass, of those of chunks `.c64.k<key_dim>`.
template <>
inline constexpr auto spelling_of<delta_rule_config> = row_names<delta_rule_config>(
    "delta_rule", spelling::word{&delta_rule_config::target},
    spelling::word{&delta_rule_config::type}, spelling::word{&delta_rule_config::pass},
    spelling::where{[](const delta_rule_config& row) { return !is_cuda(row.target); },
                    spelling::number{".c", &delta_rule_config::chunk},
                    spelling::number{".v", &delta_rule_config::columns}},
    spelling::where{
        [](const delta_rule_config& row) { return is_cuda(row.target); },
        spelling::mark{".c64", &delta_rule_config::chunk, static_cast<int>(tokens_of_chunk)},
        spelling::number{".k", &delta_rule_config::key_dim}});

}  // namespace tessera
