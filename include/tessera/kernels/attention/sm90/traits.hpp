// What a config fixes at compile time: tiles, roles of warps, shared memory; what a launch passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm90/bias_tiles.hpp>
#include <tessera/kernels/attention/sm90/key_tiles.hpp>
#include <tessera/kernels/row_is_legal.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention::sm90 {

using prim::divisor;

/// A warpgroup multiplies 64 rows at a time.
inline constexpr int rows_of_warpgroup = 64;

/// Rows of a work tile, in the order of their folding: row r is query first_query + r /
/// heads_of_tile of head first_head + r % heads_of_tile.
struct work_tile {
  int sequence = 0;  ///< batch entry or packed sequence; -1: there is no further tile
  int q_begin = 0, k_begin = 0, q_len = 0, k_len = 0;  ///< of the sequence (prim::sequence)
  int first_head = 0, kv_head = 0;
  int first_query = 0;
  int block = 0;  ///< of rows, counted over all sequences; those of other heads have the same
  int rows = 0;   ///< to write
  int used = 0;   ///< of these, inside the sequence's used length
};

/// Compile-time numbers of one kernel, with the user's functors.
template <class Kernel, class Hooks = flash_hooks<>>
struct kernel_traits {
  static constexpr attention_config config = resolved(Kernel::config);
  using kernel = Kernel;
  using hooks = Hooks;
  using element = element_t<config.type>;
  /// q, k and v are f8_e4m3, with scales of heads; out is of 16 bits.
  static constexpr bool codes_of_heads = config.type == dtype::f8_e4m3;
  using words =
      std::conditional_t<codes_of_heads, prim::cuda::e4m3_words, prim::cuda::half_words<element>>;

  /// What score modification (common/score_mod_row.hpp) asks of a target.
  using stored = std::conditional_t<codes_of_heads, std::uint8_t, std::uint16_t>;
  static constexpr bool has(attention_feature feature) { return config.features.has(feature); }
  static constexpr bool has_biases = has(attention_feature::bias);
  static constexpr bool has_position_biases = false;
  static constexpr bool mends_rows = true;  ///< careful_row.hpp
  static constexpr bool codes = false;
  /// Keys and values lie in pages (pages.hpp).
  static constexpr bool paged = are_paged(config.keys);
  static constexpr bool use_3xtf32 = false;
  static constexpr int key_tiles = config.block_kv / 8;

  /// A cap that nothing follows but what hides is done to products, whose unit stays what it was.
  static constexpr bool caps_products =
      has(attention_feature::soft_cap) && !has_biases && !Hooks::has_logits;
  /// Such a cap is taken into the exponents where products are far below it (`cap_products`).
  /// Beside segments that is slower.
  static constexpr bool caps_exponents =
      caps_products && config.features.without(base_features) ==
                           (attention_features{} | attention_feature::soft_cap);
  static constexpr bool drops = has(attention_feature::dropout);
  /// Something is done to scores but what intervals of keys say.
  static constexpr bool modifies =
      has(attention_feature::soft_cap) || has_biases || has(attention_feature::mask) ||
      has(attention_feature::segments) || Hooks::has_logits || Hooks::has_mask;
  /// Tiles of keys may be hidden, or shown, as a whole (tile_classes.hpp).
  static constexpr bool whole_tiles = shows_whole_tiles<decltype(Hooks::mask)>;
  static constexpr bool classifies =
      has(attention_feature::mask) || has(attention_feature::segments) ||
      (prim::classifies_tiles<decltype(Hooks::mask)> && !whole_tiles);
  static constexpr bool walks_tiles = walks_shown_tiles<decltype(Hooks::mask)> && !whole_tiles;
  /// Logits are products and what a functor says of a key's distance (functor_rows.hpp), no more.
  static constexpr bool adds_distances = prim::adds_distances<decltype(Hooks::logits)> &&
                                         !Hooks::has_mask && !codes_of_heads &&
                                         config.features.without(base_features).empty();
  /// The two rows of a lane are relative to one reference where they can, so that what distances
  /// add to keys is made once for both. Products of wider heads take longer.
  static constexpr bool pairs_rows = adds_distances && config.head_dim <= 64;
  static constexpr bool calls_functors =
      (Hooks::has_logits || Hooks::has_mask) && !adds_distances && !whole_tiles;
  /// The last work tiles may be shared by their keys (key_parts.hpp).
  static constexpr bool shares_keys = schedule_sm90::shares_keys(config) && !Hooks::has_mask &&
                                      (!Hooks::has_logits || adds_distances);
  /// The work of a call may be a list that the device writes (launch_listed.hpp).
  static constexpr bool lists =
      schedule_sm90::takes_lists(config) && !Hooks::has_logits && !Hooks::has_mask;
  /// Rows see intervals of keys that a kernel has found (segment_runs.hpp).
  static constexpr bool reads_runs = requires { Kernel::reads_runs; };
  /// Tiles of keys are gone through from the first to the last, so that the warpgroups of a
  /// diagonal end one after the other; of rows with features, pages, runs of segments or a tail of
  /// columns they are gone through from the last.
  static constexpr bool from_first =
      !modifies && !drops && !whole_tiles && !adds_distances && !paged && !reads_runs && !requires {
    Kernel::tail_columns;
  };
  /// Maxima of scores are not looked for where the whole tile is seen (trusted_weights.hpp). Runs
  /// of segments at head dim 64 would spill 8 bytes; wide heads do where they are plain.
  static constexpr bool trusts_reference =
      (!modifies || (whole_tiles && !drops) || adds_distances) &&
      (codes_of_heads || config.head_dim <= 128 || (from_first && config.block_q == 128)) &&
      !(reads_runs && config.head_dim <= 64);
  /// Nor are they where a tile hides keys at the far edge alone, from where rows begin: those that
  /// see some of it have seen the tile before it. Wider heads would spill 4 bytes.
  static constexpr bool trusts_far_edge =
      trusts_reference && !codes_of_heads && !whole_tiles && !drops && config.head_dim <= 64;
  /// Weights that are too large are divided. Other rows make their scores again, for which functors
  /// that add distances, and draws, have no registers; wide heads have given keys back by then.
  static constexpr bool divides_weights =
      codes_of_heads || adds_distances || drops || config.head_dim > 128;
  /// So many of the last columns of keys lie apart from the others (`key_tail`).
  static constexpr int tail_columns = [] {
    if constexpr (requires { Kernel::tail_columns; }) return Kernel::tail_columns;
    return 0;
  }();
  static constexpr int head_dim = config.head_dim;
  static constexpr int v_head_dim = config.v_head_dim;
  /// What products make of head dims: the columns behind are zeros, which the copy unit brings.
  static constexpr int step_columns = codes_of_heads ? 32 : 16;
  static constexpr int qk_steps = sm90_columns(head_dim) / step_columns;
  static constexpr int v_columns = sm90_columns(v_head_dim);
  static constexpr int block_q = config.block_q;
  static constexpr int block_kv = config.block_kv;
  static constexpr bool draws_late = drops && trusts_reference;  ///< beside exponentials
  /// What rounds of draws make of a row stays in registers, where there are such.
  static constexpr bool begins_draws =
      drops && (block_q == 2 * rows_of_warpgroup ||
                config.features.without(base_features | attention_feature::dropout).empty());

  /// Warpgroup 0 plans, brings tiles and has rows written; each of the others has 64 rows.
  static constexpr int consumers = block_q / rows_of_warpgroup;
  static constexpr int consumer_warps = 4 * consumers;
  static constexpr int threads = 32 * config.tiling.warps;
  static_assert(threads == prim::cuda::warpgroup_size * (consumers + 1));
  static_assert(consumers <= 3 || !(modifies || whole_tiles || adds_distances),
                "rows with block_q 256 take no functors");

  /// Registers of a thread: what a block is launched with, shared out anew. Of what a consumer has,
  /// about 28 are taken by all but sums, scores and weights; planners that ask of tiles take more.
  static constexpr int producer_registers = consumers >= 3 ? 32 : walks_tiles ? 88 : 40;
  static constexpr int consumer_registers = consumers == 4   ? 112
                                            : consumers == 3 ? 160
                                            : walks_tiles    ? 208
                                                             : 232;
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static_assert(walks_tiles || consumer_registers - 28 == sm90_registers_for_tiles(consumers));

  /// Elements of a line of a panel.
  static constexpr int line_elements =
      prim::cuda::panel_row_bytes / static_cast<int>(size_of(config.type));
  static constexpr int panels_of(int width) { return (width + line_elements - 1) / line_elements; }
  static constexpr int qk_panels = panels_of(head_dim);
  static constexpr int tail_panels = panels_of(tail_columns);
  static_assert(tail_columns % line_elements == 0 && head_dim % line_elements * tail_columns == 0);
  static constexpr int v_panels = panels_of(v_head_dim);
  /// Heads that fill all lines of their panels are copied a box a tile.
  static constexpr bool joins_panels_of(int width) {
    return width % line_elements == 0 && panels_of(width) > 1;
  }
  static constexpr int q_panel_bytes = block_q * prim::cuda::panel_row_bytes;
  static constexpr int kv_panel_bytes = block_kv * prim::cuda::panel_row_bytes;
  static constexpr int q_bytes = qk_panels * q_panel_bytes;
  static constexpr int k_bytes = qk_panels * kv_panel_bytes;
  static constexpr int v_bytes = codes_of_heads ? v_head_dim * block_kv : v_panels * kv_panel_bytes;
  /// Words of weights that one product takes of a lane are four.
  static constexpr int weight_words = block_kv / step_columns * 4;

  /// Places of queries, and of keys and of values.
  static constexpr int q_stages = sm90_stages::of(config).q;
  static constexpr int kv_stages = sm90_stages::of(config).kv;
  /// Biases may come with keys (bias_tiles.hpp).
  static constexpr bool brings_biases =
      sm90_stages::of(config).biases && tail_columns == 0 && !Hooks::has_logits && !Hooks::has_mask;

  /// Values of a tile are waited for as late as they are wanted, behind the products with the next
  /// keys, where it is known which these are. Products of narrow heads are too short for it.
  static constexpr bool waits_late = !classifies && !walks_tiles && head_dim > 64;

  /// f8_e4m3: a place for finished rows.
  static constexpr int out_panels =
      (v_head_dim + prim::cuda::panel_columns - 1) / prim::cuda::panel_columns;
  static constexpr int out_bytes = sm90_out_place_bytes(config);
  static constexpr bool has_out_place = !modifies && !drops && out_bytes > 0;
  static constexpr int shared_bytes = shared_memory_bytes(config) - (has_out_place ? 0 : out_bytes);
  /// Finished rows leave by the copy unit, from there or from the place of their queries, as there
  /// is a second one (row_store.hpp). Rows that classify tiles have no registers left for it.
  static constexpr bool stores_boxes =
      has_out_place ||
      (!codes_of_heads && (!classifies || walks_tiles) && v_panels <= qk_panels && q_stages == 2);
  /// The only place of queries is given back behind the last products with keys: nobody makes them
  /// again, and it is known which tile is the last.
  static constexpr bool frees_queries_early =
      q_stages == 1 && !classifies && !walks_tiles &&
      (!trusts_reference || (from_first && !codes_of_heads && divides_weights));
};

/// The same for tiles of half as many keys, of which registers of a lane are those that a whole
/// tile has first. A diagonal may end with such a one.
template <class Traits>
struct half_tile : Traits {
  static constexpr int block_kv = Traits::block_kv / 2;
  static constexpr int weight_words = Traits::weight_words / 2;
};
/// Products of narrow heads are short beside the exponentials of as many keys, and their tiles
/// wide. Blocks of three warpgroups keep no queries in registers: such a tile looks at none.
template <class Traits>
inline constexpr bool ends_with_half =
    Traits::from_first&& Traits::consumers == 3 && !Traits::codes_of_heads &&
    Traits::block_kv == 128 && Traits::head_dim <= 64;

/// Rows of a warp of a consumer.
inline constexpr int rows_of_warp = 16;
inline constexpr int warps_of_warpgroup = rows_of_warpgroup / rows_of_warp;

/// The same for score modification, which is not to cap again what has been capped.
template <class Traits>
struct modified_traits : Traits {
  static constexpr bool has(attention_feature feature) {
    return Traits::has(feature) &&
           !(Traits::caps_products && feature == attention_feature::soft_cap);
  }
};

/// A work tile with what follows from it for consumers.
template <class Traits>
struct planned_tile
    : std::conditional_t<Traits::whole_tiles, listed_tiles,
                         std::conditional_t<Traits::walks_tiles, walked_tiles, no_walk>> {
  work_tile work;
  int query_offset = 0;  ///< from a query to the key position that it stands at
  int piece = -1;  ///< number among the parts of all tiles that blocks share; < 0: a whole tile
  const class_words* classes = nullptr;  ///< of tiles of keys; null: all are looked at
  float log2_scale = 1;                  ///< f8_e4m3: launch_args::log2_scale of the tile's heads
  bool turns_scores = false;             ///< their scale is below 0
  int first_key = 0, last_key = 0;       ///< of a listed item: it has keys between these
  std::int64_t first_partial = -1;       ///< place of what row 0 leaves; -1: rows are finished
  int partials_of_row = 1;               ///< how far that of the next row is from it
  tile_range tiles[Traits::consumers + 1];  ///< of warpgroups, then of the block
  std::conditional_t<Traits::whole_tiles, keys_from_first<Traits::block_q>,
                     row_keys[Traits::block_q]>
      keys;
};

/// The tile of keys that has number `tile` in the ranges of a work tile.
template <class Traits>
__device__ __forceinline__ int keys_of_tile(const planned_tile<Traits>& planned, int tile) {
  if constexpr (Traits::whole_tiles) return planned.listed[tile];
  return tile;
}

/// By how much weights are larger than relative to the maximum, in powers of 2: those of f16 below
/// 2^-14 lose bits; f8_e4m3 has 2^-9 to 448, where a chain of additions of `exponentiate` stays
/// below if all of its weights are the largest where rows trust their reference.
constexpr float headroom_of(const attention_config& config, bool trusts_reference = true) {
  if (config.type == dtype::f8_e4m3) {
    return !trusts_reference ? 6.0f : resolved(config).block_kv > 112 ? 4.0f : 5.0f;
  }
  return config.type == dtype::f16 ? 7.0f : 0.0f;
}
/// By how much logits may pass the maximum that weights are relative to, in powers of 2, before the
/// sums are rescaled: bf16 has the range of f32, weights of f16 stay below 2^16.
constexpr float growth_of(const attention_config& config) {
  if (config.type == dtype::f8_e4m3) return 8.75f - headroom_of(config);
  return config.type == dtype::f16 ? 8.0f : 16.0f;
}
/// Sums of a lane's weights of a tile (f8_e4m3: of a chain) up to here hold none that is too large
/// to be rounded, and leave room for those of all tiles, and for sums of values.
constexpr float most_of_tile(dtype type, bool divides) {
  return type == dtype::f8_e4m3 ? 448.0f
         : type == dtype::f16   ? 65504.0f
         : divides              ? 0x1p64f
                                : 0x1p100f;
}

/// A soft cap in units of products x: cap * tanh(x * scale / cap) / scale.
struct product_cap {
  float rate = 0;          ///< scale / cap; 0: no cap
  float inverse_rate = 0;  ///< 1 / rate
  float near = 0;          ///< up to here (1 + x^2 (first + x^2 second)) x will do
  float first = 0, second = 0;
};

/// What the kernels get. Lengths and positions inside a sequence are below 2^30 (`launch` refuses
/// others).
struct launch_args {
  attention_kernel_args call{};
  int tiles = 0;                    ///< work tiles, and parts of those that are shared
  int whole_tiles = 0;              ///< those before them
  divisor shared_tiles{}, parts{};  ///< the others; of each of these
  divisor units{};                  ///< that the keys of such a tile have
  int units_of_part = 1;            ///< the last part has what the others leave
  float4* sums_of_parts = nullptr;  ///< [shared tile][part][warpgroup][v_columns / 8 + 1][thread]
  int tokens_of_tile = 0;           ///< query positions of a work tile
  /// -n: the first tile of a sequence may lack multiples of n tokens; 0: the last one lacks some.
  int lacking_tokens = 0;
  int row_blocks = 0;  ///< work tiles of a dense entry and `heads_of_tile` heads
  divisor heads_of_tile{};
  divisor group{};          ///< query heads of a key/value head
  divisor head_blocks{};    ///< q_heads / heads_of_tile
  divisor section{};        ///< of these, whose keys and values are worked on at the same time
  divisor section_tiles{};  ///< work tiles of a whole section
  divisor last_section{};   ///< head blocks of the last section
  divisor page{};           ///< tokens of a page
  float log2_scale = 1;     ///< scores, or what a cap made of them, times this are powers of 2
  float inverse_scale = 1;  ///< 1 / log2_scale
  float rescale_above = 0;  ///< by how much a score passes the maximum before sums are rescaled
  bool follows_maximum = false;  ///< maxima are looked for in every tile
  float inverse_cap = 0;         ///< 1 / soft_cap
  product_cap cap{};             ///< of products
  bool plain = false;  ///< logits are products times the scale, whatever the kernel could do
  bool wide = false;   ///< biases, mask and segment ids can be read several at a time
  boxed_bias bias{};
  dropout_keys dropout{};
  std::uint32_t last_dropped = 0;  ///< words above it keep a weight; all ones: none does
  class_words* classes = nullptr;  ///< [class rows][words_of_row]; null: nobody has classified
  int words_of_row = 0;            ///< of 32 tiles of keys each
  int class_blocks = 0;            ///< blocks of rows of a head
  bool classes_by_head = false;    ///< heads do not see the same
  bool negative_scale = false;
  bool aligned_out = false;                             ///< out can be written 16 bytes at a time
  bool boxed_out = false;                               ///< the copy unit can write a warp's rows
  bool boxed_q = true, boxed_k = true, boxed_v = true;  ///< the copy unit can address it
  bool clears_values = false;                           ///< sequences may end before their tensors
  bool knows_lengths = false;                           ///< planning reads none from memory
  std::byte* values = nullptr;  ///< f8_e4m3: tiles of values, as products take them
  int value_tiles = 0;          ///< of a head
  /// Where blocks count tiles: a place in the module's memory, or else a word of the workspace.
  int counter_place = -1;
  unsigned* counter_word = nullptr;
  sm80::work_list list{};        ///< lists: its items are the work tiles, and
  float* partial_out = nullptr;  ///< where they leave rows that are not finished, as sm80 rows do
  float* partial_stats = nullptr;
  int partial_stride = 0;
  row_keys* run_keys = nullptr;  ///< segment_runs.hpp: [entry][row]; and 1 of each entry whose
  int* scattered = nullptr;      ///< segments are not one run of keys each; null: nobody looks
  bool planner_asks = false;     ///< walks_tiles: words are made by planners
};

/// The maps of a launch: of q with boxes of a work tile, of k, v and what comes with k (its last
/// columns, or biases) with boxes of a tile of keys or a part of a page, of out of a warp's rows.
struct tensor_maps {
  CUtensorMap q, k, beside_k, v, out;
};

/// What products are multiplied by where they become logits.
template <class Traits>
__device__ __forceinline__ float scale_of_head(const launch_args& args, int head) {
  float scale = args.call.softmax_scale;
  if constexpr (Traits::codes_of_heads) {
    const attention_kernel_args& call = args.call;
    const int kv_head = args.group.quotient(head);
    if (call.q_scales != nullptr) scale *= call.q_scales[kv_head];
    if (call.k_scales != nullptr) scale *= call.k_scales[kv_head];
  }
  return scale;
}

/// What sums of values are multiplied by, besides what the row's weights ask for.
template <class Traits>
__device__ __forceinline__ float value_scale_of_head(const launch_args& args, int head) {
  if constexpr (Traits::codes_of_heads) {
    if (args.call.v_scales != nullptr) return args.call.v_scales[args.group.quotient(head)];
    return 1.0f;
  }
  return Traits::drops || Traits::paged ? args.call.out_factor : 1.0f;
}

/// Two elements of out.
template <class Traits>
__device__ __forceinline__ std::uint32_t pack_out(const launch_args& args, float low, float high) {
  if constexpr (Traits::codes_of_heads) {
    return args.call.out_type == dtype::f16 ? prim::cuda::half_words<f16>::pack(low, high)
                                            : prim::cuda::half_words<bf16>::pack(low, high);
  } else {
    return Traits::words::pack(low, high);
  }
}

inline constexpr std::int64_t longest_length = std::int64_t{1} << 30;
/// Behind every key.
inline constexpr int longest_key = 1 << 30;

}  // namespace tessera::kernels::attention::sm90
