// Reflection over the mean pooling family, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/spec/reflect.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(pooling_pass, forward, backward)
BOOST_DESCRIBE_ENUM(pooling_stores, cached, streaming)
BOOST_DESCRIBE_ENUM(mean_pooling_rule, none, type_is_floating, streams_is_a_small_power_of_two,
                    cuda_streams_fit_in_registers, forward_stores_are_cached,
                    backward_has_no_streams, generic_stores_are_cached, bf16_instructions_take_bf16,
                    bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(mean_pooling_op, mean_pooling, mean_pooling_chunks, mean_pooling_backward,
                    mean_pooling_chunks_backward)

BOOST_DESCRIBE_STRUCT(mean_pooling_config, (), (target, type, pass, streams, stores))
BOOST_DESCRIBE_STRUCT(mean_pooling_options, (), (chunk_size))
BOOST_DESCRIBE_STRUCT(mean_pooling_args, (), (x, mask, cu_seqlens, out, d_out, d_x))

/// Room for the name of any row, legal or not.
using mean_pooling_row_name = fixed_text<96>;

/// The stable name of a row: `mean_pooling.<backend>.<dtype>.forward.s<streams>` or
/// `mean_pooling.<backend>.<dtype>.backward.<stores>`.
constexpr mean_pooling_row_name name_of(mean_pooling_config config) {
  config = resolved(config);
  mean_pooling_row_name name;
  name += "mean_pooling.";
  name += name_of(config.target);
  name += '.';
  name += name_of(config.type);
  name += '.';
  name += enumerator_name(config.pass);
  name += '.';
  if (config.pass == pooling_pass::backward) {
    name += enumerator_name(config.stores);
  } else {
    name += 's';
    name += config.streams;
  }
  return name;
}

}  // namespace tessera
