// Reflection over the family of grouped matrix products, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_STRUCT(grouped_matmul_config, (), (target, type, block_m, block_n, block_k))

/// `grouped_matmul.<backend>.<block_m>x<block_n>x<block_k>`, of rows that multiply one type with
/// `.<dtype>` behind the backend.
template <>
inline constexpr auto spelling_of<grouped_matmul_config> = row_names<grouped_matmul_config>(
    "grouped_matmul", spelling::word{&grouped_matmul_config::target},
    spelling::where{[](const grouped_matmul_config& row) {
                      return is_cuda(row.target) || has_tile_products(row.target);
                    },
                    spelling::word{&grouped_matmul_config::type}},
    spelling::number{".", &grouped_matmul_config::block_m},
    spelling::number{"x", &grouped_matmul_config::block_n},
    spelling::number{"x", &grouped_matmul_config::block_k});

}  // namespace tessera
