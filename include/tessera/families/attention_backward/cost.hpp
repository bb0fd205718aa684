// What a row of the gradients of attention would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/cost.hpp>
#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/demand.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/attention_backward/schedule_cpu.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct attention_backward_facts {
  attention_backward_demand demand{};
  attention_facts scores{};
};

inline attention_backward_facts facts_of(const attention_backward_demand& demand) noexcept {
  return {.demand = demand, .scores = facts_of(demand.scores)};
}

/// Operations of a pair that dropout adds to a CUDA row: Hopper's, which have kernels for dropout
/// alone, draw once for four pairs, others call what draws for each, those without sums of d_q in
/// memory twice.
inline double dropout_operations(const attention_backward_config& config,
                                 const attention_features& asked) noexcept {
  using enum attention_feature;
  if (!asked.has(dropout)) return 0.0;
  const bool alone = !asked.has(bias) && !asked.has(mask) && !asked.has(soft_cap);
  if (config.target == backend::cuda_sm90 && alone) return 26.0;
  return config.d_q_atomics ? 700.0 : 1400.0;
}

/// Of a CUDA row: scores twice, for keys and for queries, or d_q once more in memory.
inline work_estimate estimate_on_gpu(const attention_backward_config& config,
                                     const attention_backward_facts& facts) noexcept {
  const attention_sizes& sizes = facts.demand.scores.sizes;
  const double rows = std::max(facts.scores.rows, 1.0);
  const double keys = std::max(facts.scores.visible_keys, 1.0);
  const double pairs = facts.scores.heads * rows * keys;
  const double products = config.d_q_atomics ? 3.0 * sizes.head_dim + 2.0 * sizes.v_head_dim
                                             : 4.0 * sizes.head_dim + 3.0 * sizes.v_head_dim;
  work_estimate work;
  if (is_generic(config)) {
    work.vector_operations = 4.0 * pairs * products;  // operands come from shared memory
  } else {
    work.flops = 2 * pairs * products;
    work.vector_operations = 20.0 * pairs;
    work.product_share = config.target == backend::cuda_sm90 ? 0.5 : 0.4;
    if (config.in_turns) work.product_share *= config.target == backend::cuda_sm90 ? 0.9 : 0.85;
  }
  work.vector_operations += pairs * dropout_operations(config, facts.demand.scores.features);
  const double tokens = facts.scores.rows + static_cast<double>(sizes.kv_len);
  work.bytes = 4.0 * facts.scores.heads * tokens * (sizes.head_dim + sizes.v_head_dim) *
               static_cast<double>(size_of(config.type));
  work.items = sizes.batch * sizes.kv_heads *
               std::max<std::int64_t>(1, (sizes.kv_len + config.block_kv - 1) / config.block_kv);
  return work;
}

inline work_estimate estimate_of(const attention_backward_config& config,
                                 const attention_backward_facts& facts, int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const attention_sizes& sizes = facts.demand.scores.sizes;
  const auto up = [](double size, double step) {
    return static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)) * step;
  };
  const double rows = up(std::max(facts.scores.rows, 1.0), prefill_rows(config.target));
  const double keys = up(std::max(facts.scores.visible_keys, 1.0), register_columns(config.target));
  const double pairs = facts.scores.heads * rows * keys;
  const double head_dims = 3.0 * sizes.head_dim + 2.0 * sizes.v_head_dim;
  work_estimate work;
  work.flops = 2 * pairs * head_dims;
  // An exponential, the product with d_scores, and two transposes.
  work.vector_operations = 30.0 * pairs;
  work.product_share = vector_floats(config.target) >= 16 ? 0.65 : 0.5;
  if (is_generic(config)) work.product_share *= 0.9;  // loop bounds are not constants
  const double element = static_cast<double>(size_of(config.type));
  work.bytes = 4.0 * facts.scores.heads * head_dims * (facts.scores.rows + element * keys);
  work.items = std::max<std::int64_t>(
      1, sizes.batch * sizes.kv_heads * schedule_backward::tiles_of(sizes.kv_len, config.block_kv));
  work.tile_bytes = 4.0 * (config.block_q + config.block_kv) * head_dims;
  return work;
}

}  // namespace tessera
