// What a flash attention forward kernel is, at compile time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/mask_mode.hpp>

namespace tessera {

/// The loop a kernel is built around.
enum class attention_phase : std::uint8_t {
  prefill,  ///< a block of query rows against all key blocks
  decode,   ///< few query rows; the keys are split over threads and merged
};

/// How keys and values lie in memory.
enum class key_storage : std::uint8_t {
  contiguous,  ///< tensors, dense or packed: tokens of a sequence at one distance
  paged,       ///< a pool of pages, of which each sequence has a list
  coded,       ///< such a pool whose elements have 8 bits
};

/// Tokens of a page that rows of cuda_sm90 copy at a time: pages hold whole ones.
inline constexpr int box_of_page = 16;

/// True for keys in pages.
constexpr bool are_paged(key_storage keys) noexcept {
  return keys != key_storage::contiguous;
}

/// Behaviour that is compiled in or out of a row.
enum class attention_feature : std::uint16_t {
  varlen = 1 << 0,        ///< packed sequences: cu_seqlens_q, cu_seqlens_k
  lengths = 1 << 1,       ///< padded sequences: seqlens_q, seqlens_k
  sinks = 1 << 2,         ///< extra logits in the denominator
  unnormalized = 1 << 3,  ///< normalize = false, row_max
  soft_cap = 1 << 4,      ///< logits_soft_cap
  bias = 1 << 5,          ///< bias_pre, bias_post; keys in pages: alibi_slopes, qq_bias
  mask = 1 << 6,          ///< boolean mask tensor
  segments = 1 << 7,      ///< q_segment_ids, kv_segment_ids
  dropout = 1 << 8,       ///< dropout_probability > 0
  weights = 1 << 9,       ///< writes the attention weights
};

inline constexpr std::array all_attention_features{
    attention_feature::varlen,       attention_feature::lengths,  attention_feature::sinks,
    attention_feature::unnormalized, attention_feature::soft_cap, attention_feature::bias,
    attention_feature::mask,         attention_feature::segments, attention_feature::dropout,
    attention_feature::weights};

/// A set of features, usable as part of a structural config.
struct attention_features {
  std::uint16_t bits = 0;

  constexpr bool has(attention_feature one) const noexcept {
    return (bits & static_cast<std::uint16_t>(one)) != 0;
  }
  constexpr bool contains(attention_features other) const noexcept {
    return (bits & other.bits) == other.bits;
  }
  constexpr attention_features without(attention_features other) const noexcept {
    return {static_cast<std::uint16_t>(bits & ~other.bits)};
  }
  constexpr bool empty() const noexcept { return bits == 0; }
  friend constexpr attention_features operator|(attention_features a,
                                                attention_features b) noexcept {
    return {static_cast<std::uint16_t>(a.bits | b.bits)};
  }
  friend constexpr bool operator==(attention_features, attention_features) = default;
};

constexpr attention_features operator|(attention_feature a, attention_feature b) noexcept {
  return {
      static_cast<std::uint16_t>(static_cast<std::uint16_t>(a) | static_cast<std::uint16_t>(b))};
}
constexpr attention_features operator|(attention_features a, attention_feature b) noexcept {
  return a | attention_features{static_cast<std::uint16_t>(b)};
}

/// Features that cost a CPU kernel nothing; every CPU row has them.
inline constexpr attention_features base_features =
    attention_feature::varlen | attention_feature::lengths | attention_feature::sinks |
    attention_feature::unnormalized;

/// Every feature there is.
inline constexpr attention_features every_feature =
    base_features | attention_feature::soft_cap | attention_feature::bias |
    attention_feature::mask | attention_feature::segments | attention_feature::dropout |
    attention_feature::weights;

inline constexpr int max_head_dim = 256;

/// How the threads of a CUDA block share a tile. Zero everywhere on the CPU; zero warps on CUDA:
/// the default for the head dims (see `resolved`).
struct cuda_tiling {
  int warps = 0;                ///< each has block_q / warps query rows, a multiple of 16
  int blocks_per_sm = 0;        ///< that registers must leave room for
  bool q_in_registers = false;  ///< read Q from shared memory once, not once per tile of keys
  friend constexpr bool operator==(const cuda_tiling&, const cuda_tiling&) = default;
};

/// One row of the table. A zero tile extent means the backend's default (see `resolved`).
struct attention_config {
  backend target = backend::cpu_generic;
  dtype type = dtype::f32;  ///< of q, k, v and out
  int head_dim = 0;         ///< of q and k; 0: any from 1 to 256, known at run time
  int v_head_dim = 0;       ///< of v and out; 0: the same as head_dim (any if that is 0)
  mask_mode mask = mask_mode::window;
  attention_phase phase = attention_phase::prefill;
  key_storage keys = key_storage::contiguous;
  attention_features features = base_features;
  int block_q = 0;   ///< most query rows of a work item; the heads of a group are rows of the same
                     ///< item
  int block_kv = 0;  ///< keys that are packed and attended to together
  cuda_tiling tiling{};
  friend constexpr bool operator==(const attention_config&, const attention_config&) = default;
};

/// Query rows of one register tile: with two vectors of keys it fills the register file
/// (14 x 2 accumulators of 32 zmm, 6 x 2 of 16 ymm). For CUDA the rows of a
/// tile of the matrix unit: 16 of a warp, 64 of a warpgroup.
constexpr int register_rows(backend target) noexcept {
  switch (target) {
    case backend::cpu_generic:
      return 4;
    case backend::cpu_avx2:
      return 6;
    case backend::cpu_avx512:
    case backend::cpu_avx512_vnni:
    case backend::cpu_avx512_bf16:
    case backend::cpu_amx_bf16:
      return 14;
    case backend::cuda_sm80:
      return 16;
    case backend::cuda_sm90:
      return 64;
  }
  return 0;
}

/// Query rows that prefill takes at once: a register tile, or two of AMX.
constexpr int prefill_rows(backend target) noexcept {
  return has_tile_products(target) ? 32 : register_rows(target);
}

/// Keys (or value columns) of one register tile.
constexpr int register_columns(backend target) noexcept {
  return 2 * vector_floats(target);
}

/// Most query rows (group heads times query positions) that a decode tile takes at once.
inline constexpr int max_decode_rows = 16;
/// The same of tiles of AMX, which make as much of sixteen rows as of one: four tiles of rows read
/// the keys together.
constexpr int most_decode_rows(backend target) noexcept {
  return has_tile_products(target) ? 4 * max_decode_rows : max_decode_rows;
}

/// Shared memory of one block of compute capability 9.0, at most.
inline constexpr int most_shared_memory_bytes_sm90 = 227 * 1024;

/// Columns that products of a cuda_sm90 row make of a head dim: they are 16 deep.
constexpr int sm90_columns(int head_dim) noexcept {
  return (head_dim + 15) / 16 * 16;
}

/// How many tiles of queries, and of keys and of values, lie in the shared memory of a block of a
/// cuda_sm90 row, and its bytes: head dims in whole lines of 128 bytes (values of 8 bits lie
/// across, and fill their lines), and 5 KB, of 256 rows 7, for barriers and for what is known of
/// two work tiles.
struct sm90_stages {
  int q = 1;
  int kv = 2;
  bool biases = false;  ///< keys have a tile of biases beside them, of as many rows as queries

  static constexpr int bytes_with(const attention_config& config, sm90_stages stages) noexcept {
    const int bytes = static_cast<int>(size_of(config.type));
    const auto line_bytes = [&](int head_dim) { return (head_dim * bytes + 127) / 128 * 128; };
    const int v_head_dim = config.v_head_dim != 0 ? config.v_head_dim : config.head_dim;
    const int qk = line_bytes(config.head_dim);
    const int v = bytes == 1 ? v_head_dim : line_bytes(v_head_dim);
    const int others = config.block_q > 192 ? 7168 : 5120;
    const int biases = stages.biases ? config.block_q * config.block_kv * bytes : 0;
    return stages.q * config.block_q * qk + stages.kv * (config.block_kv * (qk + v) + biases) +
           others;
  }
  /// A second tile of queries, then a third of keys and values, where there is room; of 256 rows
  /// six, whose four warpgroups come to the tiles of a diagonal one after the other.
  static constexpr sm90_stages of(const attention_config& config) noexcept {
    const auto fits = [&](sm90_stages stages) {
      return bytes_with(config, stages) <= most_shared_memory_bytes_sm90;
    };
    sm90_stages stages;
    if (fits({2, 2})) stages.q = 2;
    if (fits({stages.q, 3})) stages.kv = 3;
    if (config.block_q > 192 && fits({stages.q, 6})) stages.kv = 6;
    // Lines of a tile of biases are those of 64 keys. Three warpgroups are 3 to 8 % slower by it
    // where there is no bias.
    stages.biases = config.features.has(attention_feature::bias) && config.block_kv == 64 &&
                    config.block_q == 128 && size_of(config.type) == 2 &&
                    fits({stages.q, stages.kv, true});
    return stages;
  }
};

/// Bytes of a place for the finished rows of a block of a cuda_sm90 row of 8 bits, twice as wide as
/// their queries; 0: there is none. Narrow heads would spill 4 bytes.
constexpr int sm90_out_place_bytes(const attention_config& config) noexcept {
  const int v_head_dim = config.v_head_dim != 0 ? config.v_head_dim : config.head_dim;
  if (size_of(config.type) != 1 || v_head_dim <= 64) return 0;
  const int bytes = config.block_q * ((2 * v_head_dim + 127) / 128 * 128);
  const int others = sm90_stages::bytes_with(config, sm90_stages::of(config));
  return others + bytes <= most_shared_memory_bytes_sm90 ? bytes : 0;
}

/// Bytes of shared memory of one block of a CUDA row, with user functors at most; of cuda_sm80: Q
/// where out is gathered at the end, and two tiles (f32: one) of keys and values, each token in
/// whole lines of 128 bytes. Rows that take any head dim: for the largest.
constexpr int shared_memory_bytes(const attention_config& config) noexcept {
  if (config.target == backend::cuda_sm90) {
    return sm90_stages::bytes_with(config, sm90_stages::of(config)) + sm90_out_place_bytes(config);
  }
  const auto line_bytes = [](int head_dim, std::size_t element_bytes) {
    const int width = head_dim != 0 ? head_dim : max_head_dim;
    return (width * static_cast<int>(element_bytes) + 127) / 128 * 128;
  };
  const int v_head_dim = config.v_head_dim != 0 ? config.v_head_dim : config.head_dim;
  const std::size_t of_row = size_of(config.type);
  const std::size_t of_key = config.keys == key_storage::coded ? 1 : of_row;
  const int q = line_bytes(config.head_dim, of_row);
  const int out = line_bytes(v_head_dim, of_row);
  const int kv = line_bytes(config.head_dim, of_key) + line_bytes(v_head_dim, of_key);
  const int stages = config.type == dtype::f32 ? 1 : 2;
  return config.block_q * (q > out ? q : out) + stages * config.block_kv * kv;
}

/// Tiles that suit any CUDA row of these head dims; the table's rows were measured.
constexpr void resolve_cuda_tiles(attention_config& config) noexcept {
  const bool decode = config.phase == attention_phase::decode;
  const int width = config.head_dim > config.v_head_dim ? config.head_dim : config.v_head_dim;
  const bool wide = width == 0 || width > 128;
  if (config.block_q == 0) config.block_q = decode ? 16 : wide ? 64 : 128;
  if (config.block_kv == 0) {
    const int of_16_bits = wide ? 32 : 64;
    config.block_kv = config.type == dtype::f32 ? of_16_bits / 2 : of_16_bits;
  }
  if (config.tiling.warps == 0) config.tiling.warps = decode ? 1 : 4;
  if (config.tiling.blocks_per_sm == 0) config.tiling.blocks_per_sm = decode ? 3 : wide ? 1 : 2;
}

/// Features that look at every score in the loop of a cuda_sm90 row, and take registers there.
inline constexpr attention_features features_of_scores =
    attention_feature::bias | attention_feature::mask | attention_feature::segments |
    attention_feature::dropout;

/// The same of cuda_sm90: three warpgroups of 64 rows and a fourth that brings tiles, two where
/// registers of three would not hold the sums.
constexpr void resolve_sm90_tiles(attention_config& config) noexcept {
  if (config.type == dtype::f8_e4m3 && config.block_kv == 0) {
    config.block_kv = config.v_head_dim <= 64 ? 160 : 96;
  }
  if (config.block_q == 0) config.block_q = config.v_head_dim > 128 ? 128 : 192;
  const bool looks = config.features.without(features_of_scores) != config.features;
  if (config.block_kv == 0 && looks) config.block_kv = 64;
  if (config.block_kv == 0) {
    config.block_kv = config.v_head_dim > 192   ? 64
                      : config.v_head_dim > 128 ? 96
                      : config.v_head_dim > 96  ? 80
                      : config.v_head_dim > 64  ? 96
                                                : 128;
  }
  if (config.tiling.warps == 0) config.tiling.warps = config.block_q / 16 + 4;
  if (config.tiling.blocks_per_sm == 0) config.tiling.blocks_per_sm = 1;
}

/// Rows that read pools of 8 bits; those for any head dim besides pools of their own type.
constexpr bool takes_codes(const attention_config& config) noexcept {
  return config.keys == key_storage::coded ||
         (config.keys == key_storage::paged && config.head_dim == 0);
}

/// The config with every default filled in.
constexpr attention_config resolved(attention_config config) noexcept {
  if (config.v_head_dim == 0) config.v_head_dim = config.head_dim;
  if (config.target == backend::cuda_sm90) {
    resolve_sm90_tiles(config);
    return config;
  }
  if (is_cuda(config.target)) {
    resolve_cuda_tiles(config);
    return config;
  }
  const bool decode = config.phase == attention_phase::decode;
  if (config.block_q == 0) {
    const int tiles = has_tile_products(config.target) ? 28 : 64;
    config.block_q = decode ? most_decode_rows(config.target) : tiles * prefill_rows(config.target);
  }
  if (config.block_kv == 0) config.block_kv = decode ? 128 : 256;
  return config;
}

}  // namespace tessera
