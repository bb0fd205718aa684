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
inline grouped_tiles tiles_of(const grouped_matmul_config& config,
                              const grouped_matmul_facts& facts, int workers) noexcept {
  const auto up = [](std::int64_t count, std::int64_t step) {
    return std::max<std::int64_t>((count + step - 1) / step, 1);
  };
  const double groups = std::max(facts.groups, 1.0);
  const double rows = static_cast<double>(facts.demand.m) / groups;
  const std::int64_t columns = facts.demand.n;
  const std::int64_t high = up(static_cast<std::int64_t>(rows), config.block_m);
  const std::int64_t wide =
      item_columns(config, columns, static_cast<std::int64_t>(groups) * high, workers);
  const int width = vector_floats(config.target);
  // Registers of tiles are multiplied whole.
  const bool on_tiles = has_tile_products(config.target);
  return {.rows = on_tiles ? static_cast<double>(up(static_cast<std::int64_t>(rows), 16) * 16)
                           : std::max(rows, 1.0),
          .columns = static_cast<double>(up(columns, width) * width),
          .row_blocks = static_cast<double>(high),
          .column_blocks = static_cast<double>(up(columns, wide))};
}

/// What a CUDA row does: a thread block for each tile of a result. Shares and costs are those
/// measured on an H200.
inline work_estimate estimate_on_gpu(const grouped_matmul_config& config,
                                     const grouped_matmul_facts& facts) noexcept {
  const grouped_matmul_demand& demand = facts.demand;
  const bool small = config.block_m <= 64, wide = config.block_n > 128;
  const bool panels = config.target == backend::cuda_sm90;
  const double groups = std::max(facts.groups, 1.0);
  const double rows = static_cast<double>(demand.m) / groups, n = static_cast<double>(demand.n);
  const auto up = [](double count, double step) {
    return static_cast<double>(static_cast<std::int64_t>((count + step - 1) / step));
  };
  // Groups end anywhere in a tile. Warps of the matrix unit whose part of it, a side long, is empty
  // multiply nothing.
  const double side = config.type == dtype::f32 ? config.block_m : small ? 32 : 64;
  const double high = demand.grouped ? std::max(1.0, rows / config.block_m + 0.5)
                                     : std::max(1.0, up(rows, config.block_m));
  const double filled = demand.grouped ? rows + side / 2 : up(rows, side) * side;
  // Beginning and end of a tile cost as much as so many more elements of the summed axis.
  const double depth = static_cast<double>(demand.k) + (panels ? 150 : wide ? 400 : 250);
  const double passes = demand.backward ? 2 : 1;
  // wgmma multiplies all columns of a tile.
  const double step = panels ? config.block_n : side;
  const double products = 2 * passes * groups * filled * up(n, step) * step * depth;
  work_estimate work;
  work.items = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(groups * high * std::max(1.0, up(n, config.block_n))));
  // Parts of a sum are multiplied side by side, and added up.
  work.splits = split_parts(config, demand.k, demand.n);
  work.items_per_core = wide || panels ? 1 : small ? 4 : 2;
  if (config.type == dtype::f32) {
    work.vector_operations = products / 2 / (small ? 0.61 : 0.66);  // a multiply-add is one
  } else {
    work.flops = products;
    work.product_share = wide ? 1.03 : small ? 0.66 : 0.98;
    // Groups of about as many rows are a tile of the narrow kernel each, and read weights once.
    const bool once = demand.grouped && !is_8_bits(config.type) && rows > 192 && rows <= 320;
    if (panels) work.product_share = wide ? 0.75 : once ? 0.78 : 0.69;
    if (is_8_bits(config.type)) work.product_share *= 1.6;
  }
  work.footprint_bytes = facts.bytes;
  // A multiprocessor has room for two pairs of wide tiles only: their copies hide less.
  work.bytes = wide && !panels ? 1.15 * facts.bytes : facts.bytes;
  // One block of a multiprocessor waits longer for weights that few rows are multiplied by.
  if (panels && rows <= 32) work.bytes *= 1.4;
  const bool splits = work.splits > 1;
  if (splits) work.bytes += 8 * static_cast<double>(work.splits * demand.m) * n;
  work.launches = (demand.backward ? 2 : 1) + (demand.grouped || splits ? 1 : 0);
  return work;
}

inline work_estimate estimate_of(const grouped_matmul_config& config,
                                 const grouped_matmul_facts& facts, int workers) noexcept {
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts);
  const grouped_matmul_demand& demand = facts.demand;
  const double groups = std::max(facts.groups, 1.0);
  const auto k = static_cast<double>(demand.k);
  const grouped_tiles tiles = tiles_of(config, facts, std::max(workers, 1));
  const double products = groups * tiles.rows * tiles.columns * k;
  const double passes = demand.backward ? 2 : 1;
  work_estimate work;
  work.flops = 2 * passes * products;
  // Fewer rows than a register tile has leave latencies uncovered. Tiles wait for operands
  // (bench/results/2026-11-28.xeon-amx-16-cores.products.md), and multiply bytes twice as fast as
  // bf16.
  work.product_share = 0.9 * std::min(1.0, 0.25 + tiles.rows / register_rows(config.target));
  if (has_tile_products(config.target)) work.product_share = multiplies_bytes(config) ? 0.8 : 0.4;
  // Weights are packed for each block of rows, rows for the columns of each work item; sums are
  // stored once for each block of the summed axis. Bytes are packed four at a time.
  const double packed = (multiplies_bytes(config) ? 0.25 : 1) * groups * k *
                        (tiles.row_blocks * tiles.columns + tiles.column_blocks * tiles.rows);
  work.vector_operations = passes * (3 * packed + 3 * products / config.block_k);
  work.footprint_bytes = facts.bytes;
  work.bytes = facts.bytes;
  work.tile_bytes = tile_bytes(config);
  work.items = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(groups * tiles.row_blocks * tiles.column_blocks));
  return work;
}

}  // namespace tessera
