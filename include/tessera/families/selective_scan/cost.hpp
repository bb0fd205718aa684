// What a row of elementwise recurrences would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct selective_scan_facts {
  selective_scan_demand demand{};
  double elements = 0;  ///< of the tokens
  double bytes = 0;     ///< of tokens and states
};

inline selective_scan_facts facts_of(const selective_scan_demand& demand) noexcept {
  const auto tokens = static_cast<double>(demand.tokens);
  const auto channels = static_cast<double>(demand.channels);
  const double states = static_cast<double>(demand.states) * channels;
  const auto size = static_cast<double>(size_of(demand.type));
  // Tokens, steps and results; a state is read and written once a sequence.
  return {
      .demand = demand,
      .elements = tokens * channels,
      .bytes = 3 * tokens * channels * size + 8 * states * static_cast<double>(demand.sequences)};
}

/// Of a CUDA row, whose work items are chunks of 128 tokens of 64 channels and 16 states, or of
/// what a thread of rwkv4 goes through.
inline work_estimate estimate_on_gpu(const selective_scan_config& config,
                                     const selective_scan_facts& facts) noexcept {
  const selective_scan_demand& demand = facts.demand;
  const bool backward = config.pass == scan_pass::backward;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = (backward ? 3.0 : 1.0) * facts.bytes;
  const auto states = static_cast<double>(std::max<std::int64_t>(demand.states, 1));
  work.vector_operations = facts.elements * states * (backward ? 120.0 : 30.0);
  const std::int64_t sequences = std::max<std::int64_t>(demand.sequences, 1);
  const std::int64_t chunks = sequences * ((demand.tokens / sequences + 127) / 128);
  const std::int64_t blocks =
      (demand.channels * std::max<std::int64_t>(demand.states, 16) + 1023) / 1024;
  work.items = std::max<std::int64_t>(1, chunks * blocks);
  return work;
}

inline work_estimate estimate_of(const selective_scan_config& config,
                                 const selective_scan_facts& facts, int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const selective_scan_demand& demand = facts.demand;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  // An update of a state is two loads, a store and three multiplications or so; where each has a
  // decay of its own, its exponential is some twenty operations more.
  const double update = config.recurrence == scan_recurrence::state_space_v2 ? 6.0 : 28.0;
  const double of_states = facts.elements * static_cast<double>(demand.states) * update;
  // Backward, states are computed twice more and their gradients take as long again.
  const double passes = config.pass == scan_pass::forward ? 1.0 : 4.0;
  work.vector_operations = passes * (of_states + facts.elements * 40.0);
  const std::int64_t blocks = demand.heads > 0 ? demand.heads : (demand.channels + 63) / 64;
  work.items = std::max<std::int64_t>(1, demand.sequences * blocks);
  return work;
}

}  // namespace tessera
