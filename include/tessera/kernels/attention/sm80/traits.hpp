// What a config fixes at compile time for the mma.sync kernels, and what one launch passes to the
// device. `Kernel` is the type that carries the config.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/row_is_legal.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>

namespace tessera::kernels::attention::sm80 {

using prim::divisor;

/// A kernel's tiles for one pair of head dimensions, both rounded up to 16.
struct tile_shape {
  int head_dim = 0;
  int v_head_dim = 0;
  int block_q = 0;
  int block_kv = 0;
  cuda_tiling threads{};
};

/// Elements as they lie in memory, and as f32.
template <class Element>
struct stored_element {
  using type = std::uint16_t;
  using words = prim::cuda::half_words<Element>;
  static __device__ __forceinline__ float load(std::uint16_t bits) { return words::unpack(bits); }
  static __device__ __forceinline__ std::uint16_t rounded(float value) {
    return static_cast<std::uint16_t>(words::pack(value, 0.0f) & 0xffffu);
  }
};
template <>
struct stored_element<float> {
  using type = float;
  static __device__ __forceinline__ float load(float value) { return value; }
  static __device__ __forceinline__ float rounded(float value) { return value; }
};

/// How tokens are copied: rows of q, k and v start, and end, at multiples of 16 bytes; or anywhere;
/// or at such multiples where elements of k and v have 8 bits and are widened in registers, on
/// their way from shared memory to the products.
struct aligned_tokens {};
struct any_tokens {};
/// Aligned, and every sequence has one query: the tile of rows is a group of heads.
struct single_tokens {};
/// Aligned, and every sequence has one query, all of whose logits are products: the heads of a
/// group, eight at most, are columns of products (group_tile.hpp). Of a list or not.
template <bool Listed>
struct group_tokens {};
/// The same where elements of k and v have 8 bits.
template <class Code, bool Listed>
struct group_codes {};
template <class Code>
struct aligned_codes {};

template <class Tokens>
struct code_of_tokens {
  static constexpr bool present = false;
  using type = void;
};
template <class Code>
struct code_of_tokens<aligned_codes<Code>> {
  static constexpr bool present = true;
  using type = Code;
};
template <class Code, bool Listed>
struct code_of_tokens<group_codes<Code, Listed>> : code_of_tokens<aligned_codes<Code>> {};

template <class Tokens>
inline constexpr bool are_groups = false;
template <bool Listed>
inline constexpr bool are_groups<group_tokens<Listed>> = true;
template <class Code, bool Listed>
inline constexpr bool are_groups<group_codes<Code, Listed>> = true;
/// Groups of a list, or that blocks find.
template <class Tokens>
inline constexpr bool are_listed_groups = false;
template <>
inline constexpr bool are_listed_groups<group_tokens<true>> = true;
template <class Code>
inline constexpr bool are_listed_groups<group_codes<Code, true>> = true;
using schedule_sm80::most_grouped_heads;
/// Shared memory that such kernels have for the state of each warp's block.
inline constexpr int grouped_state_bytes = 1024;

constexpr int round_up_to(int value, int step) {
  return (value + step - 1) / step * step;
}

/// The widths that a config for any head dimension is compiled for.
inline constexpr int any_widths[] = {64, 128, 256};

/// The smallest of `any_widths` that holds both.
constexpr int any_width(int head_dim, int v_head_dim) {
  const int larger = head_dim > v_head_dim ? head_dim : v_head_dim;
  for (const int width : any_widths) {
    if (larger <= width) return width;
  }
  return 0;
}

/// The shape of a kernel; `width` is one of `any_widths` if it takes any head dimension.
template <class Kernel>
constexpr tile_shape shape_of(int width) {
  constexpr attention_config config = resolved(Kernel::config);
  return {.head_dim = config.head_dim != 0 ? round_up_to(config.head_dim, 16) : width,
          .v_head_dim = config.head_dim != 0 ? round_up_to(config.v_head_dim, 16) : width,
          .block_q = config.block_q,
          .block_kv = config.block_kv,
          .threads = config.tiling};
}

/// Shared memory of a block that lies before its tiles: a block's state, and 1 KB of the system's.
inline constexpr int most_static_bytes = 4096;

/// What a block may have on every device from sm_80 on: sm_86, sm_89 and sm_120 have as little.
inline constexpr int least_shared_bytes = 99 * 1024;

/// Compile-time numbers of one kernel; `Width` as in shape_of. (A shape as template argument would
/// be shorter, but nvcc 13.0 cannot name such kernels on the host side.)
template <class Kernel, int Width, class Tokens>
struct kernel_traits {
  static constexpr attention_config config = resolved(Kernel::config);
  static constexpr tile_shape shape = shape_of<Kernel>(Width);
  using element = element_t<config.type>;
  /// f32 elements are split in two for the products (prim/cuda/split_products.hpp).
  static constexpr bool use_3xtf32 = config.type == dtype::f32;
  using access = stored_element<element>;
  using stored = typename access::type;
  /// Units of 16 bits, in which shared memory and copies of tokens are counted, of an element.
  static constexpr int units = sizeof(stored) / 2;

  static constexpr int warps = shape.threads.warps;
  static constexpr int threads = warps * 32;
  static constexpr int block_q = shape.block_q;
  static constexpr int block_kv = shape.block_kv;
  static constexpr int rows_of_warp = block_q / warps;
  static constexpr int row_tiles = rows_of_warp / 16;
  static constexpr int key_tiles = block_kv / 8;
  static constexpr int key_groups = block_kv / 16;
  static constexpr int dim_groups = units * shape.head_dim / 16;  ///< of 32 bytes
  static constexpr int v_tiles = shape.v_head_dim / 8;
  static constexpr int v_groups = shape.v_head_dim / 16;

  /// Keys and values lie in shared memory as `code`.
  static constexpr bool codes = code_of_tokens<Tokens>::present;
  using code = typename code_of_tokens<Tokens>::type;
  /// Elements of products. f16 holds all numbers of 8 bits, of which one instruction widens two;
  /// queries become f16 too (`halve_queries`).
  using operand = std::conditional_t<codes, f16, element>;
  static constexpr int units_of_row(int head_dim) {
    return codes ? head_dim / 2 : units * head_dim;
  }

  /// Rows of queries that lie in shared memory.
  static constexpr int q_rows = are_groups<Tokens> ? most_grouped_heads : block_q;
  using q_tile = prim::cuda::shared_tile<q_rows, units * shape.head_dim>;
  using k_tile = prim::cuda::shared_tile<block_kv, units_of_row(shape.head_dim)>;
  using v_tile = prim::cuda::shared_tile<block_kv, units_of_row(shape.v_head_dim)>;
  using out_tile = prim::cuda::shared_tile<q_rows, units * shape.v_head_dim>;

  /// Q lies where out is gathered at the end, of grouped kernels before the block's state.
  static constexpr int state_at = q_tile::bytes > out_tile::bytes ? q_tile::bytes : out_tile::bytes;
  static constexpr int q_bytes = state_at + (are_groups<Tokens> ? grouped_state_bytes : 0);
  static constexpr int bytes_with(int stages_of_keys) {
    return q_bytes + stages_of_keys * (k_tile::bytes + v_tile::bytes);
  }

  /// Tiles of keys and of values: one of 16-bit elements arrives while another is worked on, two of
  /// groups that have items, where any device has room; f32 keys arrive while values are worked on.
  static constexpr bool has_third_stage =
      are_listed_groups<Tokens> && bytes_with(3) + most_static_bytes <= least_shared_bytes;
  static constexpr int stages = use_3xtf32 ? 1 : has_third_stage ? 3 : 2;
  static constexpr int shared_bytes = bytes_with(stages);

  /// Of the largest block, and how many such blocks a multiprocessor has at least.
  static constexpr int most_threads =
      are_groups<Tokens> ? schedule_sm80::most_group_warps * threads : threads;
  static constexpr int blocks_per_sm = are_groups<Tokens> ? 1 : shape.threads.blocks_per_sm;

  /// The blocks that end last combine the splits. Larger blocks, where every register counts, leave
  /// that to a kernel of its own.
  static constexpr bool combines_splits = config.phase == attention_phase::decode;

  static constexpr bool aligned = !std::is_same_v<Tokens, any_tokens>;
  /// What a block works on follows from its number and one length: little to compute before the
  /// first copies, which is much of the time of a small call.
  static constexpr bool single =
      std::is_same_v<Tokens, single_tokens> || (are_groups<Tokens> && !are_listed_groups<Tokens>);
  /// Keys are the rows of products. Each warp of a block, whose number is threadIdx.y, has some of
  /// the block's keys, and tiles of its own.
  static constexpr bool grouped = are_groups<Tokens>;
  /// What a block does is an item that it looks up once, or finds by itself (planned_items.hpp).
  static constexpr bool keeps_items = grouped && !single;
  /// Tokens of 8 bits may have scales of their own; not where heads are columns of products.
  static constexpr bool has_token_scales = codes && !grouped;

  /// Kernels with Q in registers have others left to keep where the next keys and values come from
  /// and go to, so that less is computed for each tile; those of narrow heads also where a lane
  /// reads. One bit of an address tells the two stages apart: nothing that is added to the first
  /// one's reaches it.
  static constexpr bool keeps_sources =
      aligned && stages == 2 && config.keys == key_storage::contiguous &&
      shape.threads.q_in_registers && std::is_same_v<k_tile, v_tile> &&
      std::has_single_bit(static_cast<unsigned>(k_tile::bytes)) &&
      k_tile::bytes >= most_static_bytes + threads / 8 * k_tile::row_bytes &&
      q_bytes % (2 * k_tile::bytes) == 0;
  static constexpr bool keeps_addresses = keeps_sources && shape.head_dim <= 64;
  /// Sums of wide heads are rescaled among the products of their tile: the small tiles of such
  /// kernels find a new maximum often.
  static constexpr bool rescales_among_products = keeps_sources && shape.v_head_dim > 128;

  /// The copies of wide heads, many of each thread, are spread over the products with the keys.
  static constexpr bool spreads_copies = keeps_sources && shape.head_dim > 128;

  /// Units of a row of q, of k and of v.
  static __device__ __forceinline__ int q_units(const attention_kernel_args& call) {
    return units * (config.head_dim != 0 ? config.head_dim : call.head_dim);
  }
  static __device__ __forceinline__ int k_units(const attention_kernel_args& call) {
    return units_of_row(config.head_dim != 0 ? config.head_dim : call.head_dim);
  }
  static __device__ __forceinline__ int v_units(const attention_kernel_args& call) {
    return units_of_row(config.head_dim != 0 ? config.v_head_dim : call.v_head_dim);
  }

  static constexpr bool has(attention_feature feature) { return config.features.has(feature); }
  /// Biases are tensors, or of keys in pages, follow from positions.
  static constexpr bool paged = are_paged(config.keys);
  static constexpr bool has_biases = has(attention_feature::bias) && !paged;
  static constexpr bool has_position_biases = has(attention_feature::bias) && paged;
  static constexpr bool mends_rows = false;
  /// Warps none of whose rows is used only copy: a few tokens of a sequence do not fill a tile of
  /// rows.
  static constexpr bool skips_warps = paged && warps > 1;

  static_assert(codes == (config.keys == key_storage::coded));
  /// Keys and values may be of 8 bits, known at run time, and are widened on their way to shared
  /// memory.
  static constexpr bool widens_codes = takes_codes(config) && !aligned;
  /// What rows of keys and values are counted in where they lie: units of 16 bits, or bytes.
  using place = std::conditional_t<widens_codes, unsigned char, std::uint16_t>;
  static __device__ __forceinline__ bool has_codes(const attention_kernel_args& call) {
    return widens_codes && prim::cuda::is_code_type(call.pool_type);
  }
  /// `elements` of keys or values, in places.
  static __device__ __forceinline__ std::int64_t places_of(const attention_kernel_args& call,
                                                           std::int64_t elements) {
    if constexpr (widens_codes) {
      return elements * (has_codes(call) ? 1 : static_cast<int>(sizeof(stored)));
    } else {
      return codes ? elements / 2 : units * elements;
    }
  }

  static_assert(config.target == backend::cuda_sm80, "the config has target cuda_sm80");
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static_assert(shared_bytes <= shared_memory_bytes(config) || has_third_stage);
};

/// By how many powers of 2 a logit may pass the maximum of its row before the row's sums are
/// rescaled. Weights of 16 bits are rounded relative to that maximum, and an older one costs
/// accuracy (NOTES.md): with these the error is not above that of FlashAttention-2, but for wide
/// heads and few keys, where nearly every tile would find a new maximum.
constexpr float growth_of(const attention_config& config, int head_dim, std::int64_t keys) {
  if (config.type == dtype::f32 || config.phase == attention_phase::decode) return 8.0f;
  return head_dim > 128 && keys >= 1024 ? 0.0f : 1.0f;
}

/// Which of the block's keys a warp has, where warps have parts of them.
template <class Traits>
__device__ __forceinline__ int part_of_block() {
  return Traits::grouped ? static_cast<int>(threadIdx.y) : 0;
}

/// Waits for the threads that work on the same tiles: those of the block, or of its warp where each
/// warp has tiles of its own.
template <class Traits>
__device__ __forceinline__ void sync_tiles() {
  if constexpr (Traits::grouped) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

struct work_item;
struct planned_tile;

/// Which items of a list a launch has.
enum class work_part : std::uint8_t { all, groups, sequences };

/// What stands for a row in the kernel that has the keys of sequences where the row's has those of
/// groups alone (schedule_sm80::own_config). It is launched with a list only.
template <class Kernel>
struct own_row {
  static constexpr attention_config config = schedule_sm80::own_config(Kernel::config);
};
template <class Kernel>
inline constexpr bool is_own_row = false;
template <class Kernel>
inline constexpr bool is_own_row<own_row<Kernel>> = true;

/// The work of a launch as a list in its workspace (work_list.hpp).
struct work_list {
  work_item* items = nullptr;  ///< null: the number of a block says what it does
  planned_tile* tiles = nullptr;
  int* order = nullptr;         ///< if the list says so: which item a block has
  int* first_items = nullptr;   ///< [tiles + 1]: of the tiles of rows
  int* first_places = nullptr;  ///< [tiles + 1]: where their partial results lie
  int* first_large = nullptr;   ///< [tiles + 1]: of their items those that come first
  int* first_tiles = nullptr;   ///< [entries + 1]: of the entries
  int* tile_count = nullptr;    ///< [4]: tiles of rows, items, items of groups, whether in order
  int most_tiles = 0;
  int most_items = 0;
  work_part part = work_part::all;
  bool apart = false;   ///< groups and sequences are the work of two kernels, with their own tiles
  int group_slots = 1;  ///< apart: thread blocks that the keys of groups become
  int place_rows = 1;   ///< of a place of partial results
  int most_places = 0;
  /// Blocks find items by themselves (planned_items.hpp): the share of a block that runs beside
  /// others, and tiles of keys that an item has at least. 0: there is a list.
  float planned_share = 0.0f;
  int planned_least = 0;
};

/// What the kernels get. Lengths and positions inside a sequence are below 2^30 (`launch` refuses
/// others).
struct launch_args {
  attention_kernel_args call{};
  divisor group{};  ///< query heads of a key/value head: rows of the same tile
  divisor kv_heads{};
  divisor section{};              ///< heads whose keys and values are worked on at the same time
  divisor section_tiles{};        ///< work tiles of a whole section
  divisor last_section{};         ///< heads of the last section
  divisor page{};                 ///< tokens of a page
  int row_blocks = 0;             ///< of a dense entry
  int splits = 1;                 ///< split-KV: parts of the keys, of which each is a block's work
  divisor split_count{};          ///< the same
  divisor parts{divisor::of(1)};  ///< grouped: warps of a block, which share its keys
  float log2_scale = 1;  ///< logits (q k, or what modifiers made of it) times this are powers of 2
  float headroom = 0;    ///< weights are 2^headroom larger than relative to the row's maximum
  float rescale_above =
      0;  ///< how far a logit may be above maximum less headroom before sums are rescaled
  bool negative_scale = false;
  bool plain = false;  ///< logits are products times the scale, whatever the kernel could do
  dropout_keys dropout{};
  std::uint32_t last_dropped = 0;  ///< words above it keep a weight; all ones: none does
  bool wide = false;               ///< biases, mask and segment ids can be read several at a time
  float inverse_cap = 0;           ///< 1 / soft_cap
  bool aligned_out = false;        ///< out can be written 16 bytes at a time
  bool single = false;             ///< every sequence has one query, in one tile of rows; no list
  float* partial_out = nullptr;    ///< [row][split][partial_stride], splits > 1
  float* partial_stats = nullptr;  ///< [row][split][2]: maximum, denominator
  int partial_stride = 0;
  /// Where blocks count themselves (split_kv.hpp); -1: another kernel combines the splits.
  int arrivals = -1;
  int combine_blocks = 1;   ///< thread blocks that combine the splits of the same rows
  int slices_of_block = 1;  ///< slices of rows that each of them combines
  work_list list{};         ///< paged
};

/// What products with the keys of a query head's group are multiplied by.
template <class Traits>
__device__ __forceinline__ float scale_of_head(const launch_args& args, int head) {
  const attention_kernel_args& call = args.call;
  if constexpr (takes_codes(Traits::config)) {
    if (call.k_scales != nullptr) {
      return call.softmax_scale * call.k_scales[args.group.quotient(head)];
    }
  }
  return call.softmax_scale;
}

inline constexpr std::int64_t longest_length = std::int64_t{1} << 30;

}  // namespace tessera::kernels::attention::sm80
