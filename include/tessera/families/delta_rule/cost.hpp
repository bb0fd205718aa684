// What a delta rule row would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/demand.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct delta_rule_facts {
  delta_rule_demand demand{};
  double steps = 0;  ///< tokens of all value heads
  double bytes = 0;  ///< of operands, results and states
};

inline delta_rule_facts facts_of(const delta_rule_demand& demand) noexcept {
  const delta_rule_sizes& sizes = demand.sizes;
  const double heads = static_cast<double>(sizes.heads);
  const double steps = static_cast<double>(sizes.tokens) * heads;
  const double row = 2.0 * static_cast<double>(sizes.key_dim + sizes.value_dim);
  const double states = 2.0 * static_cast<double>(sizes.sequences) * heads *
                        static_cast<double>(sizes.key_dim) * static_cast<double>(sizes.value_dim);
  return {.demand = demand,
          .steps = steps,
          .bytes = steps * row * static_cast<double>(size_of(demand.type)) +
                   states * static_cast<double>(sizeof(float))};
}

/// Of a CUDA row, whose blocks own columns of a state, on the way back all of them.
inline work_estimate estimate_on_gpu(const delta_rule_config& config,
                                     const delta_rule_facts& facts) noexcept {
  const delta_rule_sizes& sizes = facts.demand.sizes;
  const bool forward = config.pass == delta_rule_pass::forward;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes * (forward ? 1.0 : 2.0);
  // The way back steps forward three times and keeps every state. Channels behind the keys are
  // computed too, and tiles of long keys are narrow.
  const double state = static_cast<double>(config.key_dim) * static_cast<double>(sizes.value_dim);
  // Forward a step has six operations an element and waits for two sums.
  work.vector_operations = facts.steps * state * (forward ? 24.0 : 40.0);
  const std::int64_t columns = std::max(8192 / config.key_dim, 2);
  const std::int64_t tiles = forward ? (sizes.value_dim + columns - 1) / columns : 1;
  work.items = sizes.sequences * sizes.heads * tiles;
  return work;
}

/// Of a CUDA row whose blocks go through chunks of tokens on the matrix unit.
inline work_estimate estimate_of_chunks(const delta_rule_config& config,
                                        const delta_rule_facts& facts,
                                        int multiprocessors) noexcept {
  const delta_rule_sizes& sizes = facts.demand.sizes;
  const std::int64_t states = sizes.sequences * sizes.heads;
  const bool hopper = config.target == backend::cuda_sm90;
  const chunk_blocks blocks =
      hopper ? chunk_blocks{.columns = 128, .count = (sizes.value_dim + 127) / 128}
             : chunk_blocks_of(sizes.value_dim, states, multiprocessors);
  work_estimate work = estimate_of_chunk_blocks(blocks, states, facts.bytes);
  // Of each chunk, whole or not: keys with keys and queries, the state that is read twice and added
  // to, the inverse and the weights with values.
  const double chunk = static_cast<double>(tokens_of_chunk), keys = config.key_dim;
  const auto chunks = static_cast<double>(chunks_of_sequences(sizes.sequences, sizes.tokens) *
                                          sizes.heads * blocks.count);
  work.flops = chunks * chunk * (4 * chunk * keys + blocks.columns * (6 * keys + 4 * chunk));
  // On Hopper decays of channels have a kernel of their own, which scales rows, and low-rank
  // updates one whose rows take most of a block's memory.
  const bool channels = facts.demand.decay == delta_rule_decay::channel;
  work.product_share = !hopper ? 0.15 : facts.demand.low_rank ? 0.07 : channels ? 0.11 : 0.19;
  return work;
}

/// Of gradients by chunks: M and P of each chunk, a scan of the states there and one back, and the
/// gradients of each chunk, each of whose kernels leaves what the next ones take.
inline work_estimate estimate_of_chunks_back(const delta_rule_config& config,
                                             const delta_rule_facts& facts) noexcept {
  const delta_rule_sizes& sizes = facts.demand.sizes;
  const chunk_blocks blocks{.columns = 64, .count = (sizes.value_dim + 63) / 64};
  const std::int64_t states = sizes.sequences * sizes.heads;
  const double chunk = static_cast<double>(tokens_of_chunk), keys = config.key_dim;
  const double values = 64.0 * static_cast<double>(blocks.count);
  const auto chunks =
      static_cast<double>(chunks_of_sequences(sizes.sequences, sizes.tokens) * sizes.heads);
  // Operands are read by three kernels; states, what is written and its gradient are stored and
  // read, 16 bits each.
  // With decays of channels three rows of keys and their sums, too.
  const bool channels = facts.demand.decay == delta_rule_decay::channel;
  const double left = chunks * (8.0 * keys * values + 8.0 * chunk * values + 8.0 * chunk * chunk +
                                (channels ? 24.0 * chunk * keys : 0.0));
  work_estimate work = estimate_of_chunk_blocks(blocks, states, 3.0 * facts.bytes + left);
  work.flops = chunks * chunk *
               (4 * chunk * keys + values * (10 * keys + 6 * chunk) +  // the scans
                4 * chunk * (keys + values) + 6 * keys * values + 8 * chunk * keys);
  work.product_share = channels ? 0.08 : 0.12;
  work.launches = 4;
  return work;
}

inline work_estimate estimate_of(const delta_rule_config& config, const delta_rule_facts& facts,
                                 int workers) noexcept {
  if (goes_by_chunks(config)) {
    return config.pass == delta_rule_pass::forward ? estimate_of_chunks(config, facts, workers)
                                                   : estimate_of_chunks_back(config, facts);
  }
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const delta_rule_sizes& sizes = facts.demand.sizes;
  const double key_dim = static_cast<double>(sizes.key_dim);
  // Tiles are whole: columns behind the values are computed too.
  const std::int64_t tiles = (sizes.value_dim + config.columns - 1) / config.columns;
  const double width = vector_floats(config.target);
  const double columns =
      static_cast<double>(tiles - 1) * config.columns +
      std::min<double>(config.columns,
                       static_cast<double>(sizes.value_dim - (tiles - 1) * config.columns) + width);
  const bool forward = config.pass == delta_rule_pass::forward;
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes * (forward ? 1.0 : 2.0);
  // A step reads what a state holds for a key, and then decays, writes and reads it again; what
  // comes before a step is done once for each tile. The gradient takes tokens 16 at a time: nine
  // products with a tile, of low-rank updates twelve, and what pairs of tokens have of each other.
  const double of_element = forward ? 4.0 : 8.0;
  const double of_channel = forward ? 24.0 : 48.0;
  work.vector_operations =
      facts.steps * key_dim * (columns * of_element + static_cast<double>(tiles) * of_channel);
  work.tile_bytes = key_dim * config.columns * static_cast<double>(sizeof(float)) *
                    (forward ? 1.0 : config.chunk / 16.0 + 3.0);
  const double items = static_cast<double>(sizes.sequences) * static_cast<double>(sizes.heads) *
                       static_cast<double>(forward ? tiles : 1);
  work.items = static_cast<std::int64_t>(std::clamp(items, 1.0, 1e15));
  return work;
}

}  // namespace tessera
