// Reflection over the family of fused losses, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(loss_kind, cross_entropy, kl_divergence, linear_cross_entropy)

BOOST_DESCRIBE_STRUCT(losses_config, (), (target, loss, pass, type))

/// `losses.<backend>.<loss>.<pass>`, of products on GPUs with `.<dtype>` behind it.
template <>
inline constexpr auto spelling_of<losses_config> = row_names<losses_config>(
    "losses", spelling::word{&losses_config::target}, spelling::word{&losses_config::loss},
    spelling::word{&losses_config::pass},
    spelling::where{[](const losses_config& row) {
                      return is_cuda(row.target) && row.loss == loss_kind::linear_cross_entropy;
                    },
                    spelling::word{&losses_config::type}});

}  // namespace tessera
