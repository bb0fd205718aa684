// What a row of grouped matrix products would have to do for a demand.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/demand.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct grouped_matmul_facts {
  grouped_matmul_demand demand{};
  double groups = 0;  ///< that have rows, if rows are spread evenly
  double bytes = 0;   ///< of operands and results
};

inline grouped_matmul_facts facts_of(const grouped_matmul_demand& demand) noexcept {
  const auto m = static_cast<double>(demand.m), n = static_cast<double>(demand.n);
  const auto k = static_cast<double>(demand.k);
  const double groups = static_cast<double>(std::min(demand.groups, demand.m));
  const auto size = static_cast<double>(size_of(demand.type));
  const double passes = demand.backward ? 2 : 1;
  const double weights = groups * k * n * static_cast<double>(size_of(demand.rhs_type));
  return {.demand = demand, .groups = groups, .bytes = passes * (size * (m * k + m * n) + weights)};
}

/// The tiles of a result of `rows` x `columns`, as many times as there are.
struct grouped_tiles {
  double rows = 0, columns = 0;  ///< whole register tiles
  double row_blocks = 0, column_blocks = 0;
};
inline grouped_tiles tiles_of(const grouped_matmul_config& config, double rows,
                              double columns) noexcept {
  const auto up = [](double count, int step) {
    const std::int64_t steps = (static_cast<std::int64_t>(count) + step - 1) / step;
    return static_cast<double>(steps);
  };
  const int width = vector_floats(config.target);
  return {.rows = std::max(rows, 1.0),
          .columns = up(columns, width) * width,
          .row_blocks = std::max(1.0, up(rows, config.block_m)),
          .column_blocks = std::max(1.0, up(columns, config.block_n))};
}

/// What a CUDA row does: a thread block for each tile of a result, of groups one more where they
/// end.
inline work_estimate estimate_on_gpu(const grouped_matmul_config& config,
                                     const grouped_matmul_facts& facts) noexcept {
  const grouped_matmul_demand& demand = facts.demand;
  const double groups = std::max(facts.groups, 1.0);
  const auto up = [](double count, int step) {
    return std::max<std::int64_t>(1, (static_cast<std::int64_t>(count) + step - 1) / step);
  };
  const std::int64_t high = up(static_cast<double>(demand.m) / groups, config.block_m);
  const std::int64_t wide = up(static_cast<double>(demand.n), config.block_n);
  const double tile = static_cast<double>(config.block_m) * config.block_n;
  const auto tiles = static_cast<double>(high * wide) * groups;
  const double passes = demand.backward ? 2 : 1;
  work_estimate work;
  work.items = std::max<std::int64_t>(1, static_cast<std::int64_t>(tiles));
  const double products = 2 * passes * tiles * tile * static_cast<double>(demand.k);
  if (config.type == dtype::f32) {
    // A multiply-add is one operation of a lane. Shares are those measured on an H200.
    const double share = config.block_m > 64 ? 0.66 : 0.61;
    work.vector_operations = products / 2 / share;
    work.items_per_core = config.block_m > 64 ? 2 : 4;
  } else {
    // Small tiles load more for each product.
    work.flops = products;
    work.product_share = config.block_n > 128 ? 1.03 : config.block_m > 64 ? 0.98 : 0.66;
    work.items_per_core = config.block_n > 128 ? 1 : config.block_m > 64 ? 2 : 4;
  }
  work.footprint_bytes = facts.bytes;
  // A multiprocessor has room for two pairs of wide tiles only: their copies hide less.
  work.bytes = config.block_n > 128 ? 1.15 * facts.bytes : facts.bytes;
  work.launches = (demand.backward ? 2 : 1) + (demand.grouped ? 1 : 0);
  return work;
}

inline work_estimate estimate_of(const grouped_matmul_config& config,
                                 const grouped_matmul_facts& facts, int /*workers*/) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const grouped_matmul_demand& demand = facts.demand;
  const double groups = std::max(facts.groups, 1.0);
  const auto k = static_cast<double>(demand.k);
  const grouped_tiles tiles =
      tiles_of(config, static_cast<double>(demand.m) / groups, static_cast<double>(demand.n));
  const double products = groups * tiles.rows * tiles.columns * k;
  const double passes = demand.backward ? 2 : 1;
  work_estimate work;
  work.flops = 2 * passes * products;
  // Fewer rows than a register tile has leave latencies uncovered.
  work.product_share = 0.9 * std::min(1.0, 0.25 + tiles.rows / register_rows(config.target));
  // Weights are packed for each block of rows, rows for each block of columns; sums are stored once
  // for each block of the summed axis.
  const double packed =
      groups * k * (tiles.row_blocks * tiles.columns + tiles.column_blocks * tiles.rows);
  work.vector_operations = passes * (3 * packed + 3 * products / config.block_k);
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  work.tile_bytes = tile_bytes(config);
  work.items = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(groups * tiles.row_blocks * tiles.column_blocks));
  return work;
}

}  // namespace tessera
