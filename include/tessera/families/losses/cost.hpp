// What a row of fused losses would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/demand.hpp>
#include <tessera/families/losses/schedule_cpu.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct losses_facts {
  losses_demand demand{};
  double logits = 0;  ///< their number
};

inline losses_facts facts_of(const losses_demand& demand) noexcept {
  return {.demand = demand,
          .logits = static_cast<double>(demand.rows) * static_cast<double>(demand.classes)};
}

/// Products of hidden rows and the weight, or of gradients of logits and either, which gradients
/// that have no sums need `backward` of: one of them is for the sums.
inline double products_of(const losses_demand& demand, double backward) noexcept {
  if (demand.pass == loss_pass::forward) return 1.0;
  return demand.has_sums ? backward - 1.0 : backward;
}

/// Of a CUDA row: a block has a row of logits, or a tile of a product.
inline work_estimate estimate_on_gpu(const losses_config& config,
                                     const losses_facts& facts) noexcept {
  const losses_demand& demand = facts.demand;
  const bool backward = config.pass == loss_pass::backward;
  const auto size = static_cast<double>(size_of(demand.type));
  work_estimate work;
  work.vector_operations = facts.logits * (backward ? 16.0 : 8.0);
  if (config.loss != loss_kind::linear_cross_entropy) {
    const bool both = demand.soft || config.loss == loss_kind::kl_divergence;
    if (both) work.vector_operations *= 2.0;
    work.bytes = facts.logits * ((both ? 2.0 : 1.0) + (backward ? 1.0 : 0.0)) * size;
    work.footprint_bytes = work.bytes;
    work.items = std::max<std::int64_t>(1, demand.rows);
    work.launches = 2;
    return work;
  }
  const auto columns = static_cast<double>(demand.columns);
  const double products = 2.0 * facts.logits * columns * products_of(demand, 4.0);
  if (config.type == dtype::f32) {
    work.vector_operations += products / 2 / 0.6;
  } else {
    work.flops = products;
    work.product_share = 0.8;
  }
  const double operands =
      size * columns * static_cast<double>(demand.rows + demand.classes) * (backward ? 3.0 : 1.0);
  if (config.target == backend::cuda_sm90) {
    // Tiles of logits become sums, or gradients that come and go. Shares as those of its products;
    // pairs of blocks have 256 rows.
    constexpr std::int64_t side = 256;
    const auto whole = [](std::int64_t count) { return (count + side - 1) / side * side; };
    work.flops *= static_cast<double>(whole(demand.rows)) /
                  static_cast<double>(std::max<std::int64_t>(demand.rows, 1));
    work.product_share = 0.72;
    work.bytes = operands + (backward ? 6.0 * facts.logits : 0.0);
    work.items = std::max<std::int64_t>(1, whole(demand.rows) * whole(demand.classes) / side / 128);
    work.launches = backward ? 10 : 6;
    return work;
  }
  // Logits of a part of the classes come and go as floats.
  work.bytes = operands + facts.logits * (backward ? 20.0 : 8.0);
  work.items =
      std::max<std::int64_t>(1, ((demand.rows + 127) / 128) * ((demand.classes + 127) / 128));
  work.launches = backward ? 8 : 4;
  return work;
}

inline work_estimate estimate_of(const losses_config& config, const losses_facts& facts,
                                 int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const losses_demand& demand = facts.demand;
  const bool backward = config.pass == loss_pass::backward;
  const auto size = static_cast<double>(size_of(demand.type));
  work_estimate work;
  // An exponential is some twenty operations; backward computes it twice, and the gradient.
  work.vector_operations = facts.logits * (backward ? 52.0 : 24.0);
  if (config.loss == loss_kind::linear_cross_entropy) {
    // Backward, logits are computed three times, for sums and for the gradients of either operand.
    work.flops =
        2.0 * facts.logits * static_cast<double>(demand.columns) * products_of(demand, 5.0);
    work.product_share = 0.7;
    const std::int64_t tiles =
        (demand.rows + losses_schedule::tile_tokens - 1) / losses_schedule::tile_tokens;
    work.items = std::max<std::int64_t>(1, tiles);
    const auto columns = static_cast<double>(demand.columns);
    work.footprint_bytes =
        size * columns * static_cast<double>(demand.rows + demand.classes) * (backward ? 2.0 : 1.0);
    // Each tile of tokens reads the weight.
    work.bytes = size * columns * static_cast<double>(demand.classes) *
                 static_cast<double>(work.items) * (backward ? 3.0 : 1.0);
    return work;
  }
  if (config.loss == loss_kind::kl_divergence) work.vector_operations *= 2.0;
  // Backward, a token's logits are read again from a cache, and their gradients are written.
  const bool both = demand.soft || config.loss == loss_kind::kl_divergence;
  work.bytes = facts.logits * (both ? 2.0 : 1.0) * (backward ? 2.0 : 1.0) * size;
  work.footprint_bytes = work.bytes;
  const std::int64_t rows = losses_schedule::rows_of_item(demand.classes);
  work.items = std::max<std::int64_t>(1, (demand.rows + rows - 1) / rows);
  return work;
}

}  // namespace tessera
