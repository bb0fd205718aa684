// What a kernel of grouped matrix products is, at compile time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// One row of the table. Kernels take every size and option, forward and backward. CPU rows take
/// every element type, but those of cpu_avx512_bf16 bf16 only, those of cpu_avx512_vnni i8 with
/// scales and those of cpu_amx_bf16 one of the two; CUDA rows of f32 take every one but
/// those of 8 bits too, others use the matrix unit and take what it multiplies. A zero extent means
/// the backend's default (see `resolved`).
struct grouped_matmul_config {
  backend target = backend::cpu_generic;
  /// CUDA rows: what is multiplied, f32, f16 or bf16, of cuda_sm90 also f8_e4m3, f8_e5m2 (one
  /// operand may be f8_e4m3) or i8; of cpu_amx_bf16 bf16 or i8, which every processor with tiles
  /// of bf16 multiplies too; other CPU rows: none.
  dtype type = dtype::none;
  // Of rows that split sums (`splits_sums`) block_k is what has sums of its own.
  int block_m = 0;  ///< rows of a tile of the result, at most
  /// Its columns, at most; of CPU rows those of rhs that are packed together.
  int block_n = 0;
  int block_k = 0;  ///< of the summed axis: what is packed and multiplied together
  friend constexpr bool operator==(const grouped_matmul_config&,
                                   const grouped_matmul_config&) = default;
};

/// What rows of sm90 multiply besides, with scales.
constexpr bool is_8_bits(dtype type) noexcept {
  return type == dtype::f8_e4m3 || type == dtype::f8_e5m2 || type == dtype::i8;
}
/// CPU rows that multiply whole numbers: i8 with scales, forward.
constexpr bool multiplies_bytes(const grouped_matmul_config& config) noexcept {
  return config.target == backend::cpu_avx512_vnni ||
         (has_tile_products(config.target) && config.type == dtype::i8);
}
/// Rows and columns of a result that a CPU row multiplies together: sums in registers.
constexpr int rows_together(const grouped_matmul_config& config) noexcept {
  return prefill_rows(config.target);
}
/// Elements of the summed axis in a tile of a CUDA row: 128 bytes, of f32 64.
constexpr int depth_of_cuda_tile(dtype type) noexcept {
  return type == dtype::f32 ? 16 : is_8_bits(type) ? 128 : 64;
}

/// Whether the summed axis of a CUDA row is cut into parts of about block_k, multiplied side by
/// side: for results of few rows.
constexpr bool splits_sums(const grouped_matmul_config& config) noexcept {
  return is_cuda(config.target) && config.block_k == 512;
}
/// Rows that such a row takes, at most.
inline constexpr std::int64_t most_split_rows = 64;

/// Equal parts, of whole tiles 64 deep, that the summed axis of such a row is cut into: of about
/// block_k elements each at least, and no more than fill a large GPU with tiles of 64 columns of
/// the result. They follow from the matrix alone, and so do the bits of a sum.
constexpr std::int64_t split_parts(const grouped_matmul_config& config, std::int64_t depth,
                                   std::int64_t columns) noexcept {
  constexpr std::int64_t tile = 64, blocks = 512;
  if (!splits_sums(config) || depth % tile != 0) return 1;
  const std::int64_t wide = std::max<std::int64_t>((columns + tile - 1) / tile, 1);
  const std::int64_t most =
      std::max<std::int64_t>(std::min(depth / config.block_k, blocks / wide), 1);
  std::int64_t parts = most;
  while (parts > 1 && depth / tile % parts != 0) --parts;
  // Axes with few divisors are cut more finely than wanted rather than not.
  for (std::int64_t more = most + 1; 2 * parts <= most && more <= 2 * most; ++more) {
    if (depth / tile % more == 0) return more;
  }
  return parts;
}

/// Bytes of an element of operands as CPU rows multiply them.
constexpr int bytes_of_operand(const grouped_matmul_config& config) noexcept {
  return multiplies_bytes(config) ? 1 : has_bf16_products(config.target) ? 2 : 4;
}

/// The config with every default filled in. Of CPU rows whole register tiles of at least 256 rows,
/// so that weights are packed rarely, 512 where second-level caches have a MiB: operands, sums and
/// the columns that are asked for meanwhile fill about 800 KB of it, else half.
constexpr grouped_matmul_config resolved(grouped_matmul_config config) noexcept {
  if (is_cuda(config.target)) {
    if (config.block_m == 0) config.block_m = 128;
    if (config.block_n == 0) config.block_n = is_8_bits(config.type) ? 192 : 128;
    if (config.block_k == 0) config.block_k = depth_of_cuda_tile(config.type);
    return config;
  }
  const int rows = rows_together(config);
  const int tall = vector_floats(config.target) == 16 ? 512 : 256;
  if (config.block_m == 0) config.block_m = (tall + rows - 1) / rows * rows;
  // Columns that are packed together. Of tall tiles 64 are up to 2 % faster than 128
  // (bench/results/2026-11-28.zen4-2-cores.scales_sums.md, M 512). Small tiles, which groups and
  // many cores are for, were measured with 128 only and keep them. On tiles 128 are faster (4 %).
  const bool narrow = config.block_m > 64 && !has_tile_products(config.target);
  if (config.block_n == 0) config.block_n = narrow ? 64 : 128;
  if (config.block_k == 0) config.block_k = 1024 / bytes_of_operand(config);
  return config;
}

/// Columns of a result that a work item of a CPU row has at most: its rows are packed once for all
/// of them.
constexpr std::int64_t most_item_columns(const grouped_matmul_config& config) noexcept {
  return std::max(config.block_n, 1024);
}
/// Columns of a work item where there are so many blocks of rows: whole register tiles, as many as
/// leave each thread a few items or all of them the same number.
constexpr std::int64_t item_columns(const grouped_matmul_config& config, std::int64_t columns,
                                    std::int64_t row_blocks, int threads) noexcept {
  const std::int64_t nr = register_columns(config.target), most = most_item_columns(config);
  const std::int64_t panels = std::max<std::int64_t>((columns + nr - 1) / nr, 1);
  std::int64_t parts = std::max<std::int64_t>((columns + most - 1) / most, 1);
  while (parts < panels && row_blocks * parts < std::int64_t{4} * threads &&
         row_blocks * parts % threads != 0) {
    ++parts;
  }
  return (panels + parts - 1) / parts * nr;
}

/// Operands of a tile, and of the next one what is asked for meanwhile, in bytes.
constexpr double tile_bytes(const grouped_matmul_config& config) noexcept {
  const double m = config.block_m, n = config.block_n, k = config.block_k;
  return bytes_of_operand(config) * k * (m + 2 * n);
}

}  // namespace tessera
