// What a row of caches would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/demand.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct kv_cache_facts {
  kv_cache_demand demand{};
  double elements = 0;  ///< that move
  double bytes = 0;     ///< read and written
};

inline kv_cache_facts facts_of(const kv_cache_demand& demand) noexcept {
  const double elements = static_cast<double>(demand.moves) * static_cast<double>(demand.elements);
  const dtype from = demand.pass == kv_cache_pass::copy ? demand.pool_type : demand.new_type;
  return {.demand = demand,
          .elements = elements,
          .bytes = elements * static_cast<double>(size_of(from) + size_of(demand.pool_type))};
}

inline work_estimate estimate_of(const kv_cache_config& config, const kv_cache_facts& facts,
                                 int /*workers*/) noexcept {
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  const bool converts =
      facts.demand.pass == kv_cache_pass::append && facts.demand.new_type != facts.demand.pool_type;
  // A conversion to 8 bits is some twelve operations; the others are loads and stores.
  const bool narrow = converts && size_of(facts.demand.pool_type) == 1;
  work.vector_operations = facts.elements * (narrow ? 14.0 : converts ? 4.0 : 1.0);
  const double piece = is_cuda(config.target) ? 16 << 10 : 128 << 10;
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.bytes / piece));
  work.items_per_core = 8;
  return work;
}

}  // namespace tessera
