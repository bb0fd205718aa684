// Reflection over the sparse attention family, and the names of its rows.
#pragma once

#include <string_view>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(sparse_pattern, blocksparse, native_sparse)

BOOST_DESCRIBE_STRUCT(sparse_attention_config, (), (target, pattern, pass, type, head_dim))

/// ".bf16.d128": operands of rows with a type, on the CPU or for the matrix unit; `dany` stands for
/// head dims known at run time.
struct spelled_sparse_operands {
  static constexpr spelling::word type{&sparse_attention_config::type};
  static constexpr spelling::number head_dim{".d", &sparse_attention_config::head_dim, "any"};

  constexpr void write(row_name& name, const sparse_attention_config& row) const {
    if (row.type == dtype::none && row.head_dim == 0) return;
    type.write(name, row);
    head_dim.write(name, row);
  }
  constexpr bool read(std::string_view& rest, sparse_attention_config& row) const {
    return rest.empty() || (type.read(rest, row) && head_dim.read(rest, row));
  }
};

/// `sparse_attention.<backend>.<pattern>.<pass>`, of rows with a type with `.<dtype>.d<head_dim>`
/// behind it.
template <>
inline constexpr auto spelling_of<sparse_attention_config> = row_names<sparse_attention_config>(
    "sparse_attention", spelling::word{&sparse_attention_config::target},
    spelling::word{&sparse_attention_config::pattern},
    spelling::word{&sparse_attention_config::pass}, spelled_sparse_operands{});

}  // namespace tessera
