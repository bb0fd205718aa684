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
  // Matrices of groups without rows are not read.
  const std::int64_t matrices =
      demand.matrices == 0 ? 1 : std::min(demand.matrices, std::max<std::int64_t>(demand.batch, 1));
  const double of_matrix = static_cast<double>(demand.rows) * static_cast<double>(demand.columns);
  const double weights = of_matrix * static_cast<double>(matrices);
  const double of_scales = has_float_scales(demand.mode) ? 8.0 : 1.0;
  const double group = std::max<double>(demand.group_size, 1);
  // Those that lie k-major are read, written row by row, and read again.
  const double times = demand.axis == weight_axis::k_major ? 3.0 : 1.0;
  const double packed = times * weights * (demand.bits / 8.0 + of_scales / group);
  const auto batch = static_cast<double>(demand.batch);
  const bool converts =
      demand.pass == quantized_pass::quantize || demand.pass == quantized_pass::dequantize;
  const double floats =
      converts ? weights
               : batch * (static_cast<double>(demand.rows) + static_cast<double>(demand.columns));
  return {.demand = demand,
          .weights = weights,
          .bytes = packed + floats * static_cast<double>(size_of(demand.type)),
          .terms = of_matrix * batch};
}

/// Whether rows of cuda_sm90 take weights through registers (kernels/quantized/sm90).
inline bool goes_through_registers(const quantized_demand& demand) noexcept {
  const bool grouped = demand.matrices != 0;
  const register_shape shape{.mode = demand.mode,
                             .bits = demand.bits,
                             .group_size = demand.group_size,
                             .batch = demand.batch,
                             .rows = demand.rows,
                             .columns = demand.columns,
                             .matrices = std::max<std::int64_t>(demand.matrices, 1)};
  return has_groups_of_inputs(demand.axis) && shape.is_taken() &&
         !is_exact(demand.batch, demand.matrices, grouped) &&
         !is_decoded(demand.batch, demand.matrices, grouped);
}

/// Whether a CUDA row multiplies a few rows of x with codes as they come (kernels/quantized/sm80).
inline bool multiplies_few(const quantized_config& config,
                           const quantized_demand& demand) noexcept {
  const std::int64_t least_group = has_float_scales(demand.mode) ? 32 : 16;
  return config.pass == quantized_pass::forward && config.type != dtype::f32 &&
         has_groups_of_inputs(demand.axis) && (demand.bits == 4 || demand.bits == 8) &&
         demand.group_size >= least_group &&
         is_thin(demand.batch, demand.matrices, demand.matrices != 0);
}

/// Whether a row brings all weights into memory as floats, and multiplies these.
inline bool decodes_first(const quantized_config& config, const quantized_demand& demand) noexcept {
  if (!is_cuda(config.target) || !is_product(config.pass)) return false;
  const bool in_registers = config.target == backend::cuda_sm90 && goes_through_registers(demand);
  return !in_registers && !multiplies_few(config, demand);
}

/// Of a CUDA row: weights go through registers, are decoded into the operands of wgmma, or are
/// decoded for a product with tiles of 128 x 128.
inline work_estimate estimate_on_gpu(const quantized_config& config,
                                     const quantized_facts& facts) noexcept {
  const quantized_demand& demand = facts.demand;
  work_estimate work;
  work.bytes = facts.bytes;
  work.footprint_bytes = facts.bytes;
  work.vector_operations = facts.weights * (config.pass == quantized_pass::quantize ? 60.0 : 12.0);
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.weights / 2048));
  work.launches = demand.axis == weight_axis::k_major ? 2 : 1;
  if (!is_product(config.pass)) return work;
  const bool floats = config.type == dtype::f32;
  const bool in_registers = config.target == backend::cuda_sm90 && goes_through_registers(demand);
  if (!in_registers && multiplies_few(config, demand)) {
    work.items = std::max<std::int64_t>(1, demand.rows / 32);
    return work;
  }
  if (!in_registers) work.bytes += 2.0 * facts.weights * (floats ? 4.0 : 2.0);
  const std::int64_t outputs = demand.columns == 0 ? 0 : std::max(demand.rows, demand.columns);
  const std::int64_t matrices = std::max<std::int64_t>(demand.matrices, 1);
  const std::int64_t high = (demand.batch + 127) / 128 + matrices - 1;
  const double of_matrix = static_cast<double>(demand.rows) * static_cast<double>(demand.columns);
  const double products = static_cast<double>(high * 128) * of_matrix;
  if (floats) {
    work.vector_operations += products / 0.66;
  } else {
    work.flops = 2.0 * products;
    work.product_share = config.target == backend::cuda_sm90 ? 0.7 : 0.9;
  }
  work.items = std::max<std::int64_t>(1, high * ((outputs + 127) / 128));
  work.items_per_core = in_registers ? 1 : 2;
  if (!in_registers) ++work.launches;
  return work;
}

inline work_estimate estimate_of(const quantized_config& config, const quantized_facts& facts,
                                 int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  work_estimate work;
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  // A weight is compared with up to 15 thresholds on its way in; a code is cut out of two words,
  // looked up and scaled on its way out, once for a block of the batch.
  const bool packs = config.pass == quantized_pass::quantize;
  const std::int64_t matrices = std::max<std::int64_t>(facts.demand.matrices, 1);
  const std::int64_t blocks =
      std::max<std::int64_t>(1, (facts.demand.batch / matrices + 255) / 256);
  work.vector_operations = facts.weights * (packs ? 40.0 : 10.0) * static_cast<double>(blocks);
  if (config.target == backend::cpu_avx512 && is_product(config.pass)) {
    work.flops = 2.0 * facts.terms;
    work.product_share = 0.6;
  } else {
    work.vector_operations += facts.terms;
  }
  if (multiplies_codes(config) || multiplies_pairs(config)) {
    // Codes are unpacked for four rows of x at a time; each element of fixed point has three bytes.
    const std::int64_t fours = std::max<std::int64_t>(1, (facts.demand.batch / matrices + 3) / 4);
    work.vector_operations = 0.6 * facts.weights * static_cast<double>(fours);
    work.flops = (multiplies_codes(config) ? 6.0 : 2.0) * facts.terms;
    work.product_share = multiplies_codes(config) ? 0.5 : 0.65;
  }
  if (multiplies_tiles(config)) {
    // Words once for 256 rows of x; 16 columns of it, one to three of a row, whether rows or none.
    const int parts = facts.demand.type == dtype::bf16  ? 1
                      : facts.demand.type == dtype::f16 ? 2
                                                        : 3;
    const std::int64_t of_tile = 16 / parts;
    const std::int64_t rows = std::max<std::int64_t>(1, facts.demand.batch / matrices);
    const std::int64_t whole_tiles = (rows + of_tile - 1) / of_tile;
    const auto tiles = static_cast<double>(whole_tiles);
    work.vector_operations = facts.weights * (3.0 * static_cast<double>(blocks) + 0.5 * tiles);
    work.flops = facts.weights * 32.0 * tiles;
    work.product_share = 0.5;
  }
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(facts.weights / (16 << 10)));
  return work;
}

}  // namespace tessera
