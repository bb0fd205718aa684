// Reflection over the family of the gradients of attention, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_STRUCT(attention_backward_config, (),
                      (target, type, head_dim, v_head_dim, d_q_atomics, block_q, block_kv,
                       in_turns))

/// "v128": the head dim of v where it is another one.
struct spelled_backward_v_head_dim {
  static constexpr spelling::number number{"v", &attention_backward_config::v_head_dim};

  constexpr void write(row_name& name, const attention_backward_config& row) const {
    if (row.v_head_dim != row.head_dim) number.write(name, row);
  }
  constexpr bool read(std::string_view& rest, attention_backward_config& row) const {
    row.v_head_dim = row.head_dim;
    return !rest.starts_with('v') || number.read(rest, row);
  }
};

/// `attention_backward.<backend>.<dtype>.d<D>[v<Dv>][.atomics][.turns].<block_q>x<block_kv>`;
/// `dany` stands for head dims known at run time.
template <>
inline constexpr auto spelling_of<attention_backward_config> = row_names<attention_backward_config>(
    "attention_backward", spelling::word{&attention_backward_config::target},
    spelling::word{&attention_backward_config::type},
    spelling::number{".d", &attention_backward_config::head_dim, "any"},
    spelled_backward_v_head_dim{},
    spelling::mark{".atomics", &attention_backward_config::d_q_atomics, true},
    spelling::mark{".turns", &attention_backward_config::in_turns, true},
    spelling::number{".", &attention_backward_config::block_q},
    spelling::number{"x", &attention_backward_config::block_kv});

}  // namespace tessera
