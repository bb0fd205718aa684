// What a row fixes at compile time for the mma.sync kernels, and what one launch passes to the
// device.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/spec/flash_attention/config.hpp>
#include <tessera/spec/flash_attention/kernel_args.hpp>

namespace tessera::flash::sm80 {

/// How the threads of a block share a tile; next to `config` in a row.
struct tiling {
  int warps = 4;                ///< each has block_q / warps query rows, a multiple of 16
  int blocks_per_sm = 1;        ///< that registers must leave room for
  bool q_in_registers = false;  ///< read Q from shared memory once, not once per tile of keys
};

/// A row's tiles for one pair of head dimensions, both rounded up to 16.
struct tile_shape {
  int head_dim = 0;
  int v_head_dim = 0;
  int block_q = 0;
  int block_kv = 0;
  tiling threads{};
};

/// How tokens are copied: the rows of q, k and v start at multiples of 16 bytes, or anywhere.
struct aligned_tokens {};
struct any_tokens {};

constexpr int round_up_to(int value, int step) {
  return (value + step - 1) / step * step;
}

/// The widths that a row for any head dimension is compiled for.
inline constexpr int any_widths[] = {64, 128, 256};

/// The smallest of `any_widths` that holds both.
constexpr int any_width(int head_dim, int v_head_dim) {
  const int larger = head_dim > v_head_dim ? head_dim : v_head_dim;
  for (const int width : any_widths) {
    if (larger <= width) return width;
  }
  return 0;
}

/// The shape of a row; `width` is one of `any_widths` if the row takes any head dimension.
template <class Row>
constexpr tile_shape shape_of(int width) {
  constexpr flash_config config = resolved(Row::config);
  return {.head_dim = config.head_dim != 0 ? round_up_to(config.head_dim, 16) : width,
          .v_head_dim = config.head_dim != 0 ? round_up_to(config.v_head_dim, 16) : width,
          .block_q = config.block_q,
          .block_kv = config.block_kv,
          .threads = Row::tiling};
}

/// Compile-time numbers of one kernel; `Width` as in shape_of. (A shape as template argument would
/// be shorter, but nvcc 13.0 cannot name such kernels on the host side.)
template <class Row, int Width, class Tokens>
struct kernel_traits {
  static constexpr flash_config config = resolved(Row::config);
  static constexpr tile_shape shape = shape_of<Row>(Width);
  using element = element_t<config.type>;
  using words = prim::cuda::half_words<element>;

  static constexpr int warps = shape.threads.warps;
  static constexpr int threads = warps * 32;
  static constexpr int block_q = shape.block_q;
  static constexpr int block_kv = shape.block_kv;
  static constexpr int rows_of_warp = block_q / warps;
  static constexpr int row_tiles = rows_of_warp / 16;
  static constexpr int key_tiles = block_kv / 8;
  static constexpr int key_groups = block_kv / 16;
  static constexpr int dim_groups = shape.head_dim / 16;
  static constexpr int v_tiles = shape.v_head_dim / 8;
  static constexpr int v_groups = shape.v_head_dim / 16;

  using q_tile = prim::cuda::shared_tile<block_q, shape.head_dim>;
  using k_tile = prim::cuda::shared_tile<block_kv, shape.head_dim>;
  using v_tile = prim::cuda::shared_tile<block_kv, shape.v_head_dim>;
  using out_tile = prim::cuda::shared_tile<block_q, shape.v_head_dim>;

  static constexpr int stages = 2;
  /// Q lies where out is gathered at the end.
  static constexpr int q_bytes = q_tile::bytes > out_tile::bytes ? q_tile::bytes : out_tile::bytes;
  static constexpr int shared_bytes = q_bytes + stages * (k_tile::bytes + v_tile::bytes);

  static constexpr bool aligned = std::is_same_v<Tokens, aligned_tokens>;
  /// No token ends inside the width of its tile.
  static constexpr bool whole_chunks =
      config.head_dim != 0 && config.head_dim % 16 == 0 && config.v_head_dim % 16 == 0;

  static constexpr bool has(flash_feature one) { return config.features.has(one); }

  static_assert(config.type == dtype::f16 || config.type == dtype::bf16,
                "mma.sync rows have 16-bit elements");
  static_assert(block_q % (16 * warps) == 0, "every warp has whole tiles of 16 query rows");
  static_assert(block_kv % 16 == 0, "keys come in groups of 16");
};

/// Division of numbers below 2^31 by one that the host knows: a product instead of a hundred
/// cycles.
struct divisor {
  std::uint32_t value = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  static constexpr divisor of(std::uint32_t value) {
    std::uint32_t shift = 0;
    while (shift < 31 && (std::uint32_t{1} << shift) < value) ++shift;
    const std::uint64_t excess = (std::uint64_t{1} << shift) - value;
    return {value, static_cast<std::uint32_t>((excess << 32) / value + 1), shift};
  }
  __device__ __forceinline__ int quotient(int number) const {
    const auto n = static_cast<std::uint32_t>(number);
    return static_cast<int>((__umulhi(n, multiplier) + n) >> shift);
  }
};

/// What the kernels get. Lengths and positions inside a sequence are below 2^30 (`launch` refuses
/// others).
struct launch_args {
  flash_kernel_args call{};
  divisor group{};  ///< query heads of a key/value head: rows of the same tile
  divisor kv_heads{};
  divisor section{};        ///< heads whose keys and values are worked on at the same time
  divisor section_items{};  ///< blocks of a whole section
  divisor last_section{};   ///< heads of the last section
  int row_blocks = 0;       ///< of a dense entry
  int splits = 1;           ///< parts of the keys, of which each is a block's work
  float log2_scale = 1;  ///< logits (q k, or what modifiers made of it) times this are powers of 2
  float headroom = 0;    ///< weights are 2^headroom larger than relative to the row's maximum
  float rescale_above =
      0;  ///< how far a logit may be above maximum less headroom before sums are rescaled
  bool negative_scale = false;
  bool aligned_out = false;  ///< out can be written 16 bytes at a time
  float* sums = nullptr;     ///< [row][split][v_stride], splits > 1
  float* states = nullptr;   ///< [row][split][2]: maximum, denominator
  int v_stride = 0;
};

inline constexpr std::int64_t longest_length = std::int64_t{1} << 30;

}  // namespace tessera::flash::sm80
