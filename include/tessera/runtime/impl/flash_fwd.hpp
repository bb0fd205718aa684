// Words of the flash attention forward family: needs reflection, hence compiled once.
#pragma once

#include <algorithm>
#include <string>

#include <tessera/runtime/flash_fwd.hpp>
#include <tessera/spec/flash_attention/problem_text.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/rules.hpp>

namespace tessera {

std::string flash_fwd_family::reason_of(const flash_config& config, const facts_type& facts,
                                        int threads) {
  const auto plural = [](std::int64_t count, const char* one) {
    return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
  };
  return std::string(enumerator_name(config.phase)) + ", " +
         plural(estimate(config, facts).items, "work item") + " for " + plural(threads, "thread");
}

std::string flash_fwd_family::text_of(const flash_problem& problem) {
  return to_text(problem);
}

std::string flash_fwd_family::wanted_row(const flash_demand& demand, const device_facts& device,
                                         const flash_config& chosen) {
  flash_config wanted;
  wanted.target = device.highest;
  wanted.type = demand.type;
  wanted.head_dim = demand.sizes.head_dim;
  wanted.v_head_dim = demand.sizes.v_head_dim;
  wanted.mask = mask_mode::window;
  wanted.phase = chosen.phase;
  wanted.features = base_features | demand.features;
  if (broken_table_rule(wanted) == flash_rule::bf16_dot_takes_bf16) {
    wanted.target = backend::cpu_avx512;
  }
  if (broken_table_rule(wanted) == flash_rule::decode_has_no_weights) {
    wanted.phase = flash_phase::prefill;
  }
  return std::string(name_of(resolved(wanted)).view());
}

}  // namespace tessera
