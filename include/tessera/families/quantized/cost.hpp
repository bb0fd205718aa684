// What a row of quantised weights would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/demand.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct quantized_facts {
  quantized_demand demand{};
  double weights = 0;
  double bytes = 0;  ///< of codes, scales and floats
  double terms = 0;  ///< of all sums of a product
};

inline quantized_facts facts_of(const quantized_demand& demand) noexcept {
  const double weights = static_cast<double>(demand.rows) * static_cast<double>(demand.columns);
  const double of_scales = has_float_scales(demand.mode) ? 8.0 : 1.0;
  const double group = std::max<double>(demand.group_size, 1);
  const double packed = weights * (demand.bits / 8.0 + of_scales / group);
  const auto batch = static_cast<double>(demand.batch);
  const bool converts =
      demand.pass == quantized_pass::quantize || demand.pass == quantized_pass::dequantize;
  const double floats =
      converts ? weights
               : batch * (static_cast<double>(demand.rows) + static_cast<double>(demand.columns));
  return {.demand = demand,
          .weights = weights,
          .bytes = packed + floats * static_cast<double>(size_of(demand.type)),
          .terms = weights * batch};
}

inline work_estimate estimate_of(const quantized_config& config, const quantized_facts& facts,
                                 int /*workers*/) noexcept {
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  // A weight is compared with up to 15 thresholds on its way in; a code is cut out of two words,
  // looked up and scaled on its way out, once for a block of the batch.
  const bool packs = config.pass == quantized_pass::quantize;
  const std::int64_t blocks = std::max<std::int64_t>(1, (facts.demand.batch + 255) / 256);
  work.vector_operations =
      facts.weights * (packs ? 40.0 : 10.0) * static_cast<double>(blocks) + facts.terms;
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.weights / (16 << 10)));
  return work;
}

}  // namespace tessera
