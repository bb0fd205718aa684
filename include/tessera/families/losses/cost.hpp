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

inline work_estimate estimate_of(const losses_config& config, const losses_facts& facts,
                                 int /*workers*/) noexcept {
  const losses_demand& demand = facts.demand;
  const bool backward = config.pass == loss_pass::backward;
  work_estimate work;
  // An exponential is some twenty operations; backward computes it twice, and the gradient.
  work.vector_operations = facts.logits * (backward ? 52.0 : 24.0);
  // Backward, a token's logits are read again from a cache, and their gradients are written.
  const double tensors = (demand.soft ? 2.0 : 1.0) * (backward ? 2.0 : 1.0);
  work.bytes = facts.logits * tensors * static_cast<double>(size_of(demand.type));
  work.footprint_bytes = work.bytes;
  const std::int64_t rows = losses_schedule::rows_of_item(demand.classes);
  work.items = std::max<std::int64_t>(1, (demand.rows + rows - 1) / rows);
  return work;
}

}  // namespace tessera
