// What a row of linear attention with decay would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/demand.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct chunked_scan_facts {
  chunked_scan_demand demand{};
  double updates = 0;  ///< elements of states, over all tokens
  double bytes = 0;    ///< of tokens and states
};

inline chunked_scan_facts facts_of(const chunked_scan_demand& demand) noexcept {
  const double heads = static_cast<double>(demand.heads);
  const double keys = static_cast<double>(demand.keys);
  const double values = static_cast<double>(demand.values);
  const double rows = static_cast<double>(demand.tokens) * heads;
  const double states = static_cast<double>(demand.sequences) * heads * keys * values;
  const bool backward = demand.pass == chunked_scan_pass::backward;
  const double tokens = rows * (2 * keys + 2 * values) * static_cast<double>(size_of(demand.type));
  return {.demand = demand,
          .updates = rows * keys * values,
          .bytes = (backward ? 2.0 : 1.0) * (tokens + 8.0 * states)};
}

/// Of a CUDA row, whose blocks own columns of a state, on the way back all of them.
inline work_estimate estimate_on_gpu(const chunked_scan_config& config,
                                     const chunked_scan_facts& facts) noexcept {
  const chunked_scan_demand& demand = facts.demand;
  const bool backward = config.pass == chunked_scan_pass::backward;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  // The way back steps forward three times and keeps every state. Channels behind the keys are
  // computed too, and tiles of long keys are narrow.
  const double rows = static_cast<double>(demand.tokens) * static_cast<double>(demand.heads);
  const double state = static_cast<double>(config.key_dim) * static_cast<double>(demand.values);
  // Forward a step has four operations an element and waits for its sums three times as long.
  work.vector_operations = rows * state * (backward ? 30.0 : 16.0);
  const std::int64_t columns = std::max(8192 / config.key_dim, 2);
  const std::int64_t tiles = backward ? 1 : (demand.values + columns - 1) / columns;
  work.items = std::max<std::int64_t>(1, demand.sequences * demand.heads * tiles);
  return work;
}

/// Of a CUDA row whose blocks go through chunks of tokens on the matrix unit.
inline work_estimate estimate_of_chunks(const chunked_scan_config& config,
                                        const chunked_scan_facts& facts,
                                        int multiprocessors) noexcept {
  const chunked_scan_demand& demand = facts.demand;
  const std::int64_t states = demand.sequences * demand.heads;
  const bool hopper = config.target == backend::cuda_sm90;
  const bool backward = demand.pass == chunked_scan_pass::backward;
  // Backward, states of two of the scans are transposed.
  const std::int64_t columns = backward ? std::max(demand.values, demand.keys) : demand.values;
  const chunk_blocks blocks = hopper ? chunk_blocks{.columns = 128, .count = (columns + 127) / 128}
                                     : chunk_blocks_of(columns, states, multiprocessors);
  work_estimate work = estimate_of_chunk_blocks(blocks, states, facts.bytes);
  // Of each chunk, whole or not: queries and keys, the state that is read and added to, weights and
  // values.
  const double chunk = static_cast<double>(tokens_of_chunk), keys = config.key_dim;
  auto chunks = static_cast<double>(chunks_of_sequences(demand.sequences, demand.tokens) *
                                    demand.heads * blocks.count);
  // On Hopper a state of short rows begins backward for as long as two of its chunks take.
  const bool short_rows = hopper && backward && config.key_dim <= 64;
  if (short_rows) chunks += 2.0 * static_cast<double>(states * blocks.count);
  work.flops = chunks * chunk * (2 * chunk * keys + blocks.columns * (4 * keys + 2 * chunk));
  // Backward there are three such scans; gradients of decays come on top.
  if (backward) work.flops *= 3.0;
  if (demand.decay_gradients) work.flops *= config.key_dim <= 64 ? 1.3 : 1.55;
  // Decays of channels scale rows of queries and keys, backward values and answers.
  const double of_channels = !hopper ? 0.11 : !backward ? 0.2 : short_rows ? 0.095 : 0.16;
  const double of_heads = !hopper ? 0.2 : short_rows ? 0.25 : 0.37;
  work.product_share = demand.channels ? of_channels : of_heads;
  return work;
}

inline work_estimate estimate_of(const chunked_scan_config& config, const chunked_scan_facts& facts,
                                 int workers) noexcept {
  if (goes_by_chunks(config)) return estimate_of_chunks(config, facts, workers);
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const chunked_scan_demand& demand = facts.demand;
  const bool backward = config.pass == chunked_scan_pass::backward;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  // Forward updates and reads each element of a state. Backward updates it twice on its way
  // forward, and back it has five products and sums for each. Decays come on top.
  const double decays = demand.decay == chunked_scan_decay::none   ? 0.0
                        : demand.decay == chunked_scan_decay::keys ? 1.0
                                                                   : 2.0;
  work.vector_operations = facts.updates * (backward ? 7.0 + 4.0 * decays : 2.0 + decays);
  const std::int64_t blocks = backward ? 1 : std::max<std::int64_t>(1, (demand.values + 63) / 64);
  work.items = std::max<std::int64_t>(1, demand.sequences * demand.heads * blocks);
  return work;
}

}  // namespace tessera
