// Reflection over the mean pooling family, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(pooling_stores, cached, streaming)

BOOST_DESCRIBE_STRUCT(mean_pooling_config, (), (target, type, pass, streams, stores))

/// `mean_pooling.<backend>.<dtype>.forward.s<streams>` or
/// `mean_pooling.<backend>.<dtype>.backward.<stores>`.
template <>
inline constexpr auto spelling_of<mean_pooling_config> = row_names<mean_pooling_config>(
    "mean_pooling", spelling::word{&mean_pooling_config::target},
    spelling::word{&mean_pooling_config::type}, spelling::word{&mean_pooling_config::pass},
    spelling::where{
        [](const mean_pooling_config& row) { return row.pass == pooling_pass::forward; },
        spelling::number{".s", &mean_pooling_config::streams}},
    spelling::where{
        [](const mean_pooling_config& row) { return row.pass == pooling_pass::backward; },
        spelling::word{&mean_pooling_config::stores}});

}  // namespace tessera
