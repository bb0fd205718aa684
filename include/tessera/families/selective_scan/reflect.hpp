// Reflection over the family of elementwise recurrences, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/families/selective_scan/rwkv4_args.hpp>
#include <tessera/families/selective_scan/rwkv4_options.hpp>
#include <tessera/families/selective_scan/state_space_args.hpp>
#include <tessera/families/selective_scan/state_space_options.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(scan_recurrence, state_space_v1, state_space_v2, rwkv4)
BOOST_DESCRIBE_ENUM(scan_pass, forward, backward)
BOOST_DESCRIBE_ENUM(selective_scan_rule, none, cuda_rows_are_sm80, bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(state_space_op, state_space_v1, state_space_v2, state_space_v1_backward,
                    state_space_v2_backward)

BOOST_DESCRIBE_ENUM(rwkv4_op, rwkv4, rwkv4_backward)

BOOST_DESCRIBE_STRUCT(selective_scan_config, (), (target, recurrence, pass))
BOOST_DESCRIBE_STRUCT(state_space_options, (),
                      (dt_softplus, dt_min, dt_max, norm, norm_before_gate, norm_group_size,
                       norm_eps))
BOOST_DESCRIBE_STRUCT(state_space_args, (),
                      (x, dt, A, B, C, D, z, dt_bias, initial_state, cu_seqlens, out, final_state,
                       norm_weight, d_out, d_final_state, d_x, d_dt, d_A, d_B, d_C, d_D, d_z,
                       d_dt_bias, d_initial_state, d_norm_weight))

BOOST_DESCRIBE_STRUCT(rwkv4_options, (), ())
BOOST_DESCRIBE_STRUCT(rwkv4_args, (),
                      (k, v, w, u, initial_state, cu_seqlens, out, final_state, d_out,
                       d_final_state, d_k, d_v, d_w, d_u, d_initial_state))

/// `selective_scan.<backend>.<recurrence>.<pass>`.
inline constexpr auto selective_scan_names = row_names<selective_scan_config>(
    "selective_scan", spelling::word{&selective_scan_config::target},
    spelling::word{&selective_scan_config::recurrence},
    spelling::word{&selective_scan_config::pass});

/// The stable name of a row.
constexpr row_name name_of(const selective_scan_config& config) {
  return selective_scan_names.name_of(config);
}

}  // namespace tessera
