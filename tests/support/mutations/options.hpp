// Illegal options.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "mutation.hpp"

namespace tessera::support {

/// Scale, cap and window out of range.
inline std::vector<flash_mutation> option_value_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"scale NaN",
       {"softmax_scale", "nan"},
       [](call& c) {
         c.options.softmax_scale = std::numeric_limits<double>::quiet_NaN();
         return true;
       }},
      {"scale infinite",
       {"softmax_scale", "inf"},
       [](call& c) {
         c.options.softmax_scale = HUGE_VAL;
         return true;
       }},
      {"scale beyond float",
       {"softmax_scale", "e+300"},
       [](call& c) {
         c.options.softmax_scale = 1e300;
         return true;
       }},
      {"cap 0",
       {"logits_soft_cap", "0"},
       [](call& c) {
         c.options.logits_soft_cap = 0.0;
         return true;
       }},
      {"cap negative",
       {"logits_soft_cap", "-2"},
       [](call& c) {
         c.options.logits_soft_cap = -2.0;
         return true;
       }},
      {"cap NaN",
       {"logits_soft_cap", "nan"},
       [](call& c) {
         c.options.logits_soft_cap = std::numeric_limits<double>::quiet_NaN();
         return true;
       }},
      {"window_left negative",
       {"window_left", "-1"},
       [](call& c) {
         c.options.window_left = -1;
         return true;
       }},
      {"window_right negative",
       {"window_right", "-9223372036854775808"},
       [](call& c) {
         c.options.window_right = std::numeric_limits<std::int64_t>::min();
         return true;
       }},
  };
}

/// Dropout and alignment out of range.
inline std::vector<flash_mutation> dropout_and_alignment_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"dropout negative",
       {"dropout_probability", "-0.5"},
       [](call& c) {
         c.options.dropout_probability = -0.5;
         return true;
       }},
      {"dropout of everything",
       {"dropout_probability", "1"},
       [](call& c) {
         c.options.dropout_probability = 1.0;
         return true;
       }},
      {"dropout NaN",
       {"dropout_probability", "nan"},
       [](call& c) {
         c.options.dropout_probability = std::numeric_limits<double>::quiet_NaN();
         return true;
       }},
      {"an alignment that is none",
       {"causal_alignment", "9"},
       [](call& c) {
         c.options.causal_alignment = static_cast<alignment>(9);
         return true;
       }},
  };
}

/// What scaled_dot_product_attention leaves out.
inline std::vector<flash_mutation> plain_attention_mutations() {
  using namespace mutations;
  using call = flash_call;
  return {
      {"soft cap in plain attention",
       {"logits_soft_cap", "scaled_dot_product_attention"},
       [](call& c) {
         if (c.op != flash_op::scaled_dot_product_attention) return false;
         c.options.logits_soft_cap = 2.0;
         return true;
       }},
      {"dropout in plain attention",
       {"dropout_probability", "scaled_dot_product_attention"},
       [](call& c) {
         if (c.op != flash_op::scaled_dot_product_attention) return false;
         c.options.dropout_probability = 0.5;
         return true;
       }},
      {"unnormalized plain attention",
       {"normalize", "scaled_dot_product_attention"},
       [](call& c) {
         if (c.op != flash_op::scaled_dot_product_attention) return false;
         c.options.normalize = false;
         return true;
       }},
      {"plain attention with another head dim of v",
       {"v:", "head_dim"},
       [](call& c) {
         if (c.op != flash_op::flash_attention || c.args.sinks.present() ||
             c.args.row_max.present() || c.options.logits_soft_cap || !c.options.normalize ||
             c.options.dropout_probability > 0.0 ||
             c.args.q.extent[mutations::head_axis(c) + 1] ==
                 c.args.v.extent[mutations::head_axis(c) + 1]) {
           return false;
         }
         c.op = flash_op::scaled_dot_product_attention;
         return true;
       }},
  };
}

}  // namespace tessera::support
