// What a mean pooling row would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/schedule_sm80.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct mean_pooling_facts {
  mean_pooling_demand demand{};
  double elements = 0;  ///< of the tokens
  double bytes = 0;     ///< of tokens and means
};

inline mean_pooling_facts facts_of(const mean_pooling_demand& demand) noexcept {
  const double columns = static_cast<double>(demand.columns);
  const double elements = static_cast<double>(demand.tokens) * columns;
  const double chunks = demand.chunk > 0
                            ? static_cast<double>(demand.tokens) / static_cast<double>(demand.chunk)
                            : 0.0;
  const double means = (static_cast<double>(demand.sequences) + chunks) * columns;
  return {.demand = demand,
          .elements = elements,
          .bytes = (elements + means) * static_cast<double>(size_of(demand.type))};
}

/// What a CUDA row does: thread blocks with a window of tokens and a slab of columns each.
inline work_estimate estimate_on_gpu(const mean_pooling_config& config,
                                     const mean_pooling_facts& facts) noexcept {
  const mean_pooling_demand& sizes = facts.demand;
  // As one sequence of all tokens: what is cut follows from their number.
  mean_pooling_kernel_args args;
  args.sequences = 1;
  args.tokens = sizes.tokens;
  args.chunk = sizes.chunk;
  args.heads = 1;
  args.columns = sizes.columns;
  const auto element_bytes = static_cast<int>(size_of(facts.demand.type));
  const pooling_schedule_sm80 cut = pooling_schedule_of(args, {element_bytes});
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  work.items = cut.items();
  work.items_per_core = 3;
  // Conversion and addition. Long runs keep memory busier the more tokens are in flight; a sequence
  // or chunk shorter than that reads no further.
  work.vector_operations = 2.0 * facts.elements;
  if (config.pass == pooling_pass::forward) {
    const std::int64_t sequences = std::max<std::int64_t>(sizes.sequences, 1);
    std::int64_t run = sizes.tokens / sequences;
    if (sizes.chunk > 0) run = std::min(run, sizes.chunk);
    work.bytes *= config.streams <= run ? 1.0 + 0.2 / config.streams : 1.1;
  } else {
    // What fits in the L2 cache is best left there; what does not need not push others out of it.
    const bool streaming = config.stores == pooling_stores::streaming;
    const bool fits = facts.bytes < (24 << 20);
    work.bytes *= streaming == fits ? 1.05 : 1.0;
  }
  return work;
}

inline work_estimate estimate_of(const mean_pooling_config& config, const mean_pooling_facts& facts,
                                 int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.bytes / (256 << 10)));
  if (config.pass == pooling_pass::forward) {
    // Loads, conversion, addition; the running sum is loaded and stored once for all streams, and
    // streams compete for the ways of the first-level cache. Measured on Zen 4, one core, from
    // memory: 4 streams read 82 to 85 % of what a bare loop reads, 1 and 8 streams 70 to 75 %.
    const double streams = config.streams;
    work.vector_operations = facts.elements * (3.0 + 3.0 / streams + 0.2 * streams);
    work.bytes = facts.bytes;
  } else {
    work.vector_operations = 2.0 * facts.elements;
    // An ordinary store reads what it overwrites; one past the caches goes to memory in any case.
    const bool streaming = config.stores == pooling_stores::streaming;
    (streaming ? work.streamed_bytes : work.bytes) = facts.bytes * (streaming ? 1.0 : 1.6);
  }
  return work;
}

}  // namespace tessera
