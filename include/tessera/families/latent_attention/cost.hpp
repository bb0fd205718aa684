// What a row of latent attention would have to do for a demand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/demand.hpp>
#include <tessera/families/latent_attention/schedule_cpu.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct latent_attention_facts {
  latent_attention_demand demand{};
  double pairs = 0;       ///< of query and key that see each other, over all heads
  double expansions = 0;  ///< multiply-adds from latents to keys and values
  double scores = 0;      ///< multiply-adds of an indexer
};

inline latent_attention_facts facts_of(const latent_attention_demand& demand) noexcept {
  latent_attention_facts facts{.demand = demand};
  const auto tokens = static_cast<double>(demand.tokens);
  // The rows of a batch over pages are the last tokens of their sequences.
  const bool expanded = demand.form != latent_form::absorbed;
  const double seen = static_cast<double>(demand.keys) * (demand.causal && expanded ? 0.5 : 1.0);
  facts.pairs = tokens * static_cast<double>(demand.heads) * seen;
  facts.scores = tokens * seen * static_cast<double>(demand.index);
  if (expanded) {
    facts.expansions = tokens * static_cast<double>(demand.kv_heads) *
                       static_cast<double>(demand.latent) *
                       static_cast<double>(demand.width + demand.value);
  }
  return facts;
}

/// Whether the dense kernels attend to keys and values that a CUDA row makes.
constexpr bool is_dense(const latent_attention_config& config) noexcept {
  return config.type != dtype::none && config.form != latent_form::absorbed;
}

/// What a CUDA row does: a block for each 64 query rows, of the dense kernels 128 or 192, of
/// gradients one for each 64 keys besides. Shares are those measured on an H200 and an H100.
inline work_estimate estimate_on_gpu(const latent_attention_config& config,
                                     const latent_attention_facts& facts, int workers) noexcept {
  const latent_attention_demand& demand = facts.demand;
  const std::int64_t block = !is_dense(config)                     ? 64
                             : config.target == backend::cuda_sm90 ? 192
                                                                   : 128;
  const auto width = static_cast<double>(demand.width), value = static_cast<double>(demand.value);
  const bool backward = config.pass == latent_pass::backward;
  const std::int64_t sequences = std::max<std::int64_t>(demand.sequences, 1);
  const std::int64_t kv_heads = std::max<std::int64_t>(demand.kv_heads, 1);
  const std::int64_t rows =
      std::max<std::int64_t>(demand.tokens / sequences * demand.heads / kv_heads, 1);
  const std::int64_t blocks = (rows + block - 1) / block;
  const double filled = static_cast<double>(blocks * block) / static_cast<double>(rows);
  const double pairs = filled * facts.pairs;
  // Scores of gradients are computed twice.
  const double products = 2 * pairs * (backward ? 4 * width + 3 * value : width + value) +
                          2 * facts.expansions * (backward ? 3 : 1) + 2 * facts.scores;
  const auto size = static_cast<double>(size_of(demand.type));
  const auto latents = static_cast<double>(demand.sequences) * static_cast<double>(demand.keys);
  const auto heads = static_cast<double>(demand.tokens) * static_cast<double>(demand.heads);
  work_estimate work;
  work.items = std::max<std::int64_t>(1, sequences * kv_heads * blocks);
  if (config.type == dtype::none) {
    work.vector_operations = products / 2 / 0.2;  // a multiply-add is one
    work.items_per_core = 2;
  } else if (!is_dense(config)) {
    work.flops = products;
    work.product_share = config.target == backend::cuda_sm90 ? 0.5 : 0.46;
  } else {
    // Keys are as wide as the row reads them, and there is one block on a multiprocessor.
    work.flops = 2 * pairs * (widest_key + value) + 2 * facts.expansions + 2 * facts.scores;
    const bool wide = config.target == backend::cuda_sm90;
    work.product_share = config.form != latent_form::selected ? 0.7 : wide ? 0.4 : 0.35;
  }
  work.bytes = size * (latents * width + heads * (width + value)) + 8 * heads * value;
  if (config.form == latent_form::absorbed) {
    work.splits = std::clamp<std::int64_t>(work.items_per_core * workers / work.items, 1, 64);
  }
  if (is_dense(config)) {
    // Keys and values of all heads are written and read again.
    const double expanded = static_cast<double>(demand.tokens * kv_heads);
    work.bytes =
        size * (latents * width + heads * (width + value) + 2 * expanded * (widest_key + value));
  }
  work.footprint_bytes = work.bytes;
  work.launches = backward ? 9 : config.form == latent_form::absorbed ? 2 : 5;
  return work;
}

inline work_estimate estimate_of(const latent_attention_config& config,
                                 const latent_attention_facts& facts, int workers) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts, workers);
  const latent_attention_demand& demand = facts.demand;
  const auto width = static_cast<double>(demand.width), value = static_cast<double>(demand.value);
  const bool backward = config.pass == latent_pass::backward;
  work_estimate work;
  work.flops = 2 * facts.pairs * (backward ? 3 * width + 2 * value : width + value) +
               2 * facts.expansions * (backward ? 3 : 1) + 2 * facts.scores;
  // An exponential, and what makes a logit of a score.
  work.vector_operations = (backward ? 40.0 : 20.0) * facts.pairs;
  work.product_share = 0.5;  // loop bounds are not constants
  const auto latents = static_cast<double>(demand.sequences) * static_cast<double>(demand.keys);
  const auto heads = static_cast<double>(demand.tokens) * static_cast<double>(demand.heads);
  work.bytes = static_cast<double>(size_of(demand.type)) *
               (latents * static_cast<double>(demand.latent) + heads * (width + value));
  work.footprint_bytes = work.bytes;
  const std::int64_t group =
      std::max<std::int64_t>(demand.heads, 1) / std::max<std::int64_t>(demand.kv_heads, 1);
  const std::int64_t rows = latent_schedule::block_rows(config.target);
  const std::int64_t length = demand.tokens / std::max<std::int64_t>(demand.sequences, 1) *
                              std::max<std::int64_t>(group, 1);
  const std::int64_t blocks = backward ? 1 : (length + rows - 1) / rows;
  work.items = std::max<std::int64_t>(1, demand.sequences * demand.kv_heads * blocks);
  if (config.form == latent_form::absorbed) {
    work.items *= std::max<std::int64_t>(1, latent_schedule::parts_of(demand.keys));
    // Queries are columns of scores, in whole registers; on tiles they are rows of values as well.
    const auto rows_of_item = static_cast<double>(std::max<std::int64_t>(length, 1));
    const auto lanes = static_cast<double>(vector_floats(config.target));
    const double filled = std::ceil(rows_of_item / lanes) * lanes / rows_of_item;
    const bool tiles = has_tile_products(config.target);
    work.flops = 2 * facts.pairs * (filled * width + (tiles ? filled : 1.0) * value);
    if (tiles) work.product_share = 0.3;
    // Latents are copied for each block of rows, and values of bf16 interleaved.
    work.vector_operations += 4.0 * latents * static_cast<double>(blocks) * (width + value);
  }
  work.tile_bytes = 4 * static_cast<double>(rows + latent_schedule::block_keys) * (width + value);
  return work;
}

}  // namespace tessera
