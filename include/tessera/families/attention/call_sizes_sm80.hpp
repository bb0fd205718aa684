// The sizes that a call of the mma.sync kernels (sm_80 on) is cut by (schedule_sm80.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/ceil_div.hpp>

namespace tessera::schedule_sm80 {

/// Sizes and products above it count as it: problems that no device holds are estimated too.
inline constexpr std::int64_t most_of_anything = std::int64_t{1} << 48;

/// Product of two sizes.
constexpr std::int64_t product(std::int64_t a, std::int64_t b) noexcept {
  return a != 0 && b > most_of_anything / a ? most_of_anything : a * b;
}

/// Of so many blocks, those of a multiprocessor that has the most.
constexpr std::int64_t blocks_of_fullest(std::int64_t blocks,
                                         std::int64_t multiprocessors) noexcept {
  return prim::ceil_div(blocks, multiprocessors);
}

/// What a schedule depends on besides the config and the device.
struct call_sizes {
  bool packed = false;
  std::int64_t batch = 0;     ///< batch entries, or sequences
  std::int64_t q_tokens = 0;  ///< of all entries
  std::int64_t q_len = 0;     ///< of an entry; packed: the mean, rounded up
  std::int64_t kv_len = 0;    ///< likewise, but room for keys where they lie in pages
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
  /// Keys that a row sees before and behind its own position.
  std::int64_t keys_left = unbounded;
  std::int64_t keys_right = unbounded;
  std::int64_t bytes_of_key = 0;  ///< of keys in pages: of a key and its value; else 0
  std::int64_t prefixes = 0;      ///< groups of sequences that share pages
  bool batch_invariant = false;
  /// Keys lie in pages, every sequence has one query, its last token, and logits are products times
  /// the scale, of pools of 8 bits (`pool_codes`) that of the keys' head.
  bool plain_tokens = false;
  bool pool_codes = false;

  /// Query heads of a key/value head: rows of the same work tile.
  constexpr std::int64_t group() const noexcept {
    return q_heads / std::max<std::int64_t>(1, kv_heads);
  }
};

/// Query heads that products with keys as rows have room for
/// (kernels/attention/sm80/group_tile.hpp).
inline constexpr int most_grouped_heads = 8;
/// Warps of a block of such a kernel, at most.
inline constexpr int most_group_warps = 4;

/// Rows of mma.sync with kernels in which the heads of single tokens are the columns of products:
/// of 16 bits, whose block is a warp with one tile. Their pools may be of 8 bits.
constexpr bool has_group_tokens(const attention_config& row) noexcept {
  const attention_config config = resolved(row);
  return config.target == backend::cuda_sm80 && config.phase == attention_phase::decode &&
         are_paged(config.keys) && config.type != dtype::f32 &&
         (config.head_dim == 64 || config.head_dim == 128) &&
         config.v_head_dim == config.head_dim &&
         config.features.without(base_features | attention_feature::soft_cap).empty() &&
         config.tiling.warps == 1 && config.block_q == 16;
}
/// Warps of a block of such a row's kernel: as many as blocks of a warp find room side by side.
constexpr int group_warps_of(const attention_config& row) noexcept {
  return std::clamp(resolved(row).tiling.blocks_per_sm, 1, most_group_warps);
}
/// Whether such a kernel takes the keys that sequences have of their own.
constexpr bool are_grouped(const attention_config& row, const call_sizes& sizes) noexcept {
  const bool codes = resolved(row).keys == key_storage::coded;
  return has_group_tokens(row) && sizes.plain_tokens && codes == sizes.pool_codes &&
         sizes.group() <= most_grouped_heads;
}
/// And whether there are no others.
constexpr bool are_all_grouped(const attention_config& row, const call_sizes& sizes) noexcept {
  return are_grouped(row, sizes) && sizes.prefixes == 0;
}

/// Sequences of single tokens whose lengths every block looks at instead of at a list.
inline constexpr std::int64_t most_planned_sequences = 1024;
/// Whether the blocks of a batch that is long to read find their items by themselves.
constexpr bool finds_items(const attention_config& row, const call_sizes& sizes) noexcept {
  return are_all_grouped(row, sizes) && !sizes.batch_invariant &&
         sizes.batch <= most_planned_sequences;
}

/// Warps of a multiprocessor that have room for their tiles where blocks find items of single
/// tokens.
inline constexpr int planned_warps = 4;
/// Of pools of 8 bits tiles are half as large.
constexpr int planned_warps_of(const attention_config& row) noexcept {
  return row.keys == key_storage::coded ? 2 * planned_warps : planned_warps;
}
constexpr bool is_of_codes(dtype pool) noexcept {
  return pool != dtype::none && size_of(pool) == 1;
}
constexpr std::int64_t bytes_of_key(int head_dim, int v_head_dim, dtype pool) noexcept {
  return product(head_dim + v_head_dim, static_cast<std::int64_t>(size_of(pool)));
}

constexpr call_sizes sizes_of(const attention_kernel_args& args) noexcept {
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t entries = packed ? std::max<std::int64_t>(1, args.batch) : 1;
  return {
      .packed = packed,
      .batch = args.batch,
      .q_tokens = packed ? args.q_len : product(args.batch, args.q_len),
      .q_len = (args.q_len + entries - 1) / entries,
      .kv_len = args.cu_seqlens_k != nullptr ? (args.kv_len + entries - 1) / entries : args.kv_len,
      .q_heads = args.q_heads,
      .kv_heads = args.kv_heads,
      .head_dim = args.head_dim,
      .v_head_dim = args.v_head_dim,
      .keys_left = args.window_left,
      .keys_right = args.causal ? 0 : args.window_right,
      .bytes_of_key = args.pages.page_size > 0
                          ? bytes_of_key(args.head_dim, args.v_head_dim, args.pool_type)
                          : 0,
      .prefixes = reads_prefixes_once(args) ? args.prefixes.count : 0,
      .batch_invariant = args.batch_invariant,
      .plain_tokens = args.pages.page_size > 0 && has_last_tokens(args) && args.soft_cap <= 0.0f &&
                      (args.k_scales == nullptr || is_of_codes(args.pool_type)) &&
                      args.k_token_scales.data == nullptr && args.v_token_scales.data == nullptr,
      .pool_codes = is_of_codes(args.pool_type)};
}

constexpr call_sizes sizes_of(const attention_demand& demand) noexcept {
  attention_sizes sizes = demand.sizes;
  for (std::int64_t* const size :
       {&sizes.batch, &sizes.q_len, &sizes.kv_len, &sizes.q_heads, &sizes.kv_heads}) {
    *size = std::clamp<std::int64_t>(*size, 0, most_of_anything);
  }
  const auto window = [](std::int64_t keys) { return keys < 0 ? unbounded : keys; };
  return {.packed = demand.features.has(attention_feature::varlen),
          .batch = sizes.batch,
          .q_tokens = product(sizes.batch, sizes.q_len),
          .q_len = sizes.q_len,
          .kv_len = sizes.kv_len,
          .q_heads = sizes.q_heads,
          .kv_heads = sizes.kv_heads,
          .head_dim = sizes.head_dim,
          .v_head_dim = sizes.v_head_dim,
          .keys_left = window(demand.window_left),
          .keys_right = demand.causal ? 0 : window(demand.window_right),
          .bytes_of_key =
              demand.page_size == 0
                  ? 0
                  : bytes_of_key(sizes.head_dim, sizes.v_head_dim,
                                 demand.pool_type != dtype::none ? demand.pool_type : demand.type),
          .prefixes = std::max<std::int64_t>(0, demand.prefix_groups),
          .batch_invariant = demand.prefix_groups == attention_demand::alone,
          .plain_tokens = demand.page_size > 0 && sizes.q_len == 1 && !demand.top_left &&
                          demand.features.without(base_features).empty() &&
                          !demand.features.has(attention_feature::varlen),
          .pool_codes = is_of_codes(demand.pool_type)};
}

}  // namespace tessera::schedule_sm80
