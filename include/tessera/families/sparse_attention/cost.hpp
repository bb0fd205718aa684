// What a sparse attention row would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/demand.hpp>
#include <tessera/families/sparse_attention/dense_config.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct sparse_attention_facts {
  sparse_attention_demand demand{};
  double pairs = 0;  ///< of queries and keys over all heads; how many are hidden nobody knows
  double bytes = 0;  ///< of queries, keys, values and outputs
};

/// Tokens of a block of which a selection sees the mean: the usual number, which a demand does not
/// have.
inline constexpr double usual_block = 64;

inline sparse_attention_facts facts_of(const sparse_attention_demand& demand) noexcept {
  const auto of = [](std::int64_t count) { return static_cast<double>(count); };
  const double rows = of(demand.batch) * of(demand.q_heads) * of(demand.q_len);
  const double keys = of(demand.batch) * of(demand.kv_heads) * of(demand.kv_len);
  const double bytes = (rows + keys) * of(demand.head_dim + demand.v_head_dim) *
                       of(static_cast<std::int64_t>(size_of(demand.type)));
  // A selection multiplies with the keys of means twice instead of with keys and values.
  return {.demand = demand,
          .pairs = rows * of(demand.kv_len) / (demand.attends ? 1.0 : usual_block),
          .bytes = demand.attends ? bytes : bytes / 2};
}

/// Of a CUDA row, whose work items are tiles of 16 rows, or of 128 for the matrix unit.
inline work_estimate estimate_on_gpu(const sparse_attention_config& config,
                                     const sparse_attention_facts& facts) noexcept {
  const sparse_attention_demand& demand = facts.demand;
  const bool backward = config.pass == sparse_pass::backward;
  const bool on_matrix_unit = config.type != dtype::none;
  const auto head_dims = static_cast<double>(demand.head_dim + demand.v_head_dim);
  work_estimate work;
  work.footprint_bytes = facts.bytes * (backward ? 2.0 : 1.0);
  work.bytes = work.footprint_bytes;
  if (on_matrix_unit) {
    // Gradients are seven products of scores' size instead of two.
    work.flops = (backward ? 7.0 : 2.0) * facts.pairs * head_dims;
    work.product_share = backward ? 0.3 : 0.55;
    const bool stays = config.target == backend::cuda_sm90;  // a block, for the whole launch
    work.items_per_core = backward || stays ? 1 : 2;
  } else {
    // An operand comes from shared memory for each multiply-add.
    work.vector_operations = facts.pairs * head_dims * (backward ? 16.0 : 4.0);
    work.items_per_core = 4;
  }
  const std::int64_t rows = on_matrix_unit ? 128 : 16;
  const std::int64_t blocks = (demand.q_len + rows - 1) / rows;
  const double items = static_cast<double>(demand.batch) * static_cast<double>(demand.q_heads) *
                       static_cast<double>(blocks);
  work.items = static_cast<std::int64_t>(std::clamp(items, 1.0, 1e15));
  work.launches = backward ? on_matrix_unit ? 4 : 3 : on_matrix_unit ? 1 : 2;
  return work;
}

/// Of a CPU row of gradients: of blocksparse attention what the dense row under it does, with
/// nothing hidden; selected blocks are looked at twice, which is seven products instead of five,
/// and which of the keys they are a demand does not have.
inline work_estimate estimate_of_gradients(const sparse_attention_config& config,
                                           const sparse_attention_facts& facts) noexcept {
  const sparse_attention_demand& demand = facts.demand;
  const bool dense = config.pattern == sparse_pattern::blocksparse;
  const auto qk = static_cast<double>(demand.head_dim), v = static_cast<double>(demand.v_head_dim);
  work_estimate work;
  work.footprint_bytes = 2 * facts.bytes;
  work.bytes = work.footprint_bytes;
  work.flops = 2 * facts.pairs * (dense ? 3 * qk + 2 * v : 4 * qk + 3 * v);
  work.vector_operations = (dense ? 30 : 60) * facts.pairs;
  work.product_share = vector_floats(config.target) >= 16 ? 0.65 : 0.5;
  if (config.type == dtype::none && demand.type != dtype::f32) {
    work.vector_operations += 2 * facts.bytes;  // copies as floats
  }
  const std::int64_t tiles = (demand.kv_len + 127) / 128;
  const double items = static_cast<double>(demand.batch) * static_cast<double>(demand.kv_heads) *
                       static_cast<double>(tiles);
  work.items = static_cast<std::int64_t>(std::clamp(items, 1.0, 1e15));
  return work;
}

/// Of a CPU row with a type: what the dense row under it does, with nothing hidden (causal calls
/// have up to a fifth fewer items). Means, selection and window of native sparse attention, whose
/// sizes a demand does not have, it leaves out.
inline work_estimate estimate_on_dense(const sparse_attention_config& config,
                                       const sparse_attention_facts& facts, int workers) noexcept {
  const sparse_attention_demand& demand = facts.demand;
  const attention_config dense = dense_config(config);
  const auto cut = schedule_cpu::prefill_schedule::of(
      dense,
      schedule_cpu::sizes_of(
          {demand.batch, demand.q_len, demand.kv_len, demand.q_heads, demand.kv_heads,
           static_cast<int>(demand.head_dim), static_cast<int>(demand.v_head_dim)},
          false),
      workers);
  const std::int64_t blocks = std::max<std::int64_t>(1, cut.blocks(demand.q_len));
  const auto head_dims = static_cast<double>(demand.head_dim + demand.v_head_dim);
  const double keys = static_cast<double>(cut.heads) * static_cast<double>(demand.kv_len);
  const double packed = keys * static_cast<double>(cut.shared.any() ? 1 : blocks);
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes + 4.0 * head_dims * packed;
  work.flops = 2 * facts.pairs * head_dims;
  work.product_share = vector_floats(config.target) >= 16 ? 0.7 : 0.5;
  work.vector_operations = 14 * facts.pairs + 2 * packed * head_dims;
  work.items = std::max<std::int64_t>(1, cut.heads * blocks);
  return work;
}

inline work_estimate estimate_of(const sparse_attention_config& config,
                                 const sparse_attention_facts& facts, int workers) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  if (config.pass == sparse_pass::backward) return estimate_of_gradients(config, facts);
  if (config.type != dtype::none) return estimate_on_dense(config, facts, workers);
  const sparse_attention_demand& demand = facts.demand;
  const auto head_dims = static_cast<double>(demand.head_dim + demand.v_head_dim);
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = work.footprint_bytes;
  // Some twenty operations of the softmax for a pair. Every block of rows converts and transposes
  // the keys it sees: two thirds of the rate of rows with a type, Xeon and Zen 4.
  work.flops = facts.pairs * head_dims * 2;
  work.product_share = vector_floats(config.target) >= 16 ? 0.5 : 0.36;
  work.vector_operations = facts.pairs * 20;
  const std::int64_t blocks = (demand.q_len + 63) / 64;
  const double items = static_cast<double>(demand.batch) * static_cast<double>(demand.q_heads) *
                       static_cast<double>(blocks);
  work.items = static_cast<std::int64_t>(std::clamp(items, 1.0, 1e15));
  return work;
}

}  // namespace tessera
