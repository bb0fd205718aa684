// What the host passes to the wgmma kernels: maps of the tensors, numbers of the launch, and the
// words in which blocks count tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <cuda_runtime.h>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/common/score_mod_tile.hpp>
#include <tessera/kernels/attention/sm90/bias_tiles.hpp>
#include <tessera/kernels/attention/sm90/pages.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::attention::sm90 {

using schedule_sm90::schedule;

/// True if every row of a tensor starts at a multiple of 16 bytes. Strides of axes with one element
/// do not count.
inline bool rows_are_aligned(const void* data, const row_strides& strides, std::int64_t batch,
                             std::int64_t rows, int heads, std::size_t element_bytes) {
  const auto fits = [&](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || stride * static_cast<std::int64_t>(element_bytes) % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && fits(batch, strides.batch) &&
         fits(rows, strides.row) && fits(heads, strides.head);
}

/// Tokens of k and v are those of slots of a page where they lie in pages.
inline bool tokens_are_aligned(const attention_kernel_args& args, std::size_t bytes) {
  if (args.pages.page_size > 0) {
    const page_table& pages = args.pages;
    const auto pool = [&](const void* data, const row_strides& strides) {
      return rows_are_aligned(data, strides, pages.page_count, pages.page_size, args.kv_heads,
                              bytes);
    };
    return rows_are_aligned(args.q, args.q_strides, args.batch, args.q_len, args.q_heads, bytes) &&
           pool(args.k, args.k_strides) && pool(args.v, args.v_strides);
  }
  return rows_are_aligned(args.q, args.q_strides, args.batch, args.q_len, args.q_heads, bytes) &&
         rows_are_aligned(args.k, args.k_strides, args.batch, args.kv_len, args.kv_heads, bytes) &&
         rows_are_aligned(args.v, args.v_strides, args.batch, args.kv_len, args.kv_heads, bytes);
}

/// Hidden, because shared objects that hold the same row have kernels, and so words, of their own.
template <class Kernel>
class __attribute__((visibility("hidden"))) kernel_counters {
 public:
  static inline constinit prim::cuda::arrival_table table{};
};

/// Axes of a token tensor of `heads` and boxes of so many of them: column, head, token, entry. Two
/// columns of 8 bits are taken for one of 16. `joined`: of all columns, not of a panel.
template <class Stored>
prim::cuda::boxed_tensor boxes_of(const void* data, const row_strides& strides, int width,
                                  int heads, std::int64_t tokens, std::int64_t entries,
                                  int box_heads, int box_tokens, bool joined = false) {
  constexpr int pair = 2 / static_cast<int>(sizeof(Stored));
  return {data,
          {width / pair, heads, tokens, entries},
          {1, strides.head / pair, strides.row / pair, strides.batch / pair},
          {joined ? width / pair : prim::cuda::panel_columns, box_heads, box_tokens, 1}};
}

/// Makes the map of the call's bias, if it is one that lanes read in pairs and the copy unit can
/// address. Those of packed sequences have extents that the call does not know.
template <class Traits>
boxed_bias box_bias(CUtensorMap& map, const attention_kernel_args& args, const schedule& cut) {
  const score_tensor& bias = bias_of(args);
  if (bias.data == nullptr || args.cu_seqlens_q != nullptr ||
      !reads_are_wide(args, Traits::config.type)) {
    return {};
  }
  const auto has = [](std::int64_t stride) { return stride != 0 ? 1 : 0; };
  boxed_bias boxed{
      .of_entry = has(bias.batch), .of_head = has(bias.head), .of_token = has(bias.row)};
  boxed.heads = boxed.of_head != 0 ? cut.heads_of_tile : 1;
  const int tokens = boxed.of_token != 0 ? cut.tokens_of_tile : 1;
  const bool made = prim::cuda::make_tensor_map(
      map, {bias.data,
            {args.kv_len, boxed.of_head != 0 ? args.q_heads : 1,
             boxed.of_token != 0 ? args.q_len : 1, boxed.of_entry != 0 ? args.batch : 1},
            {1, bias.head, bias.row, bias.batch},
            {prim::cuda::panel_columns, boxed.heads, tokens, 1}});
  if (made) {
    boxed.bytes = static_cast<std::uint32_t>(boxed.heads * tokens * prim::cuda::panel_row_bytes);
  }
  return boxed;
}

/// Maps of the tensors, and which of them the copy unit can address.
template <class Traits>
tensor_maps maps_of(const attention_kernel_args& args, const schedule& cut, launch_args& launched) {
  using stored = typename Traits::stored;
  const std::int64_t entries = args.cu_seqlens_q != nullptr ? 1 : args.batch;
  tensor_maps maps{};
  launched.boxed_q = prim::cuda::make_tensor_map(
      maps.q, boxes_of<stored>(args.q, args.q_strides, args.head_dim, args.q_heads, args.q_len,
                               entries, cut.heads_of_tile, cut.tokens_of_tile,
                               Traits::joins_panels_of(Traits::head_dim) &&
                                   cut.heads_of_tile * cut.tokens_of_tile == Traits::block_q));
  if constexpr (Traits::stores_boxes) {
    // The rows of a warp are those of whole tokens, or some heads of one.
    const int heads = std::min(cut.heads_of_tile, rows_of_warp);
    launched.boxed_out =
        rows_of_warp % heads == 0 && cut.heads_of_tile % heads == 0 &&
        prim::cuda::make_tensor_map(
            maps.out,
            boxes_of<std::uint16_t>(args.out, args.out_strides, args.v_head_dim, args.q_heads,
                                    args.q_len, entries, heads, rows_of_warp / heads));
  }
  if constexpr (Traits::paged) {
    const page_table& pages = args.pages;
    const auto pool = [&](CUtensorMap& map, const void* data, const row_strides& strides,
                          int columns) {
      return pages.page_size % box_of_page == 0 &&
             prim::cuda::make_tensor_map(
                 map, boxes_of<stored>(data, strides, columns, args.kv_heads, pages.page_size,
                                       pages.page_count, 1, box_of_page));
    };
    launched.boxed_k = pool(maps.k, args.k, args.k_strides, args.head_dim);
    launched.boxed_v = pool(maps.v, args.v, args.v_strides, args.v_head_dim);
    return maps;
  }
  launched.boxed_k = prim::cuda::make_tensor_map(
      maps.k, boxes_of<stored>(args.k, args.k_strides, args.head_dim - Traits::tail_columns,
                               args.kv_heads, args.kv_len, entries, 1, Traits::block_kv,
                               Traits::joins_panels_of(Traits::head_dim - Traits::tail_columns)));
  if constexpr (Traits::tail_columns > 0) {
    const key_tail& tail = args.k_tail;
    const int heads = tail.strides.head == 0 ? 1 : args.kv_heads;
    launched.boxed_k =
        prim::cuda::make_tensor_map(
            maps.beside_k,
            boxes_of<stored>(tail.data, tail.strides, tail.columns, heads, args.kv_len, entries, 1,
                             Traits::block_kv, Traits::joins_panels_of(Traits::tail_columns))) &&
        launched.boxed_k;
  }
  if constexpr (Traits::brings_biases) launched.bias = box_bias<Traits>(maps.beside_k, args, cut);
  if constexpr (Traits::codes_of_heads) return maps;
  launched.boxed_v = prim::cuda::make_tensor_map(
      maps.v,
      boxes_of<stored>(args.v, args.v_strides, args.v_head_dim, args.kv_heads, args.kv_len, entries,
                       1, Traits::block_kv, Traits::joins_panels_of(Traits::v_head_dim)));
  return maps;
}

/// Of products that are logits times `scale`, which is not below 0.
inline product_cap cap_of(float inverse_cap, float scale) {
  const float rate = std::max(scale * inverse_cap, 1e-30f);
  const float square = rate * rate;
  return {.rate = rate,
          .inverse_rate = 1.0f / rate,
          .near = tanh_short / rate,
          .first = tanh_first * square,
          .second = tanh_second * square * square};
}

/// What kernels of rows with some features, or functors, read.
template <class Kernel, class Hooks>
void set_features(launch_args& launched, const attention_kernel_args& args) {
  using mods = score_mods<Kernel, Hooks>;
  constexpr bool caps_products = kernel_traits<Kernel, Hooks>::caps_products;
  launched.plain =
      !Hooks::has_logits && !mods::has_bias(args) && (caps_products || !mods::has_cap(args));
  if (mods::has_cap(args)) {
    launched.inverse_cap = 1.0f / args.soft_cap;
    launched.cap = cap_of(launched.inverse_cap, std::fabs(args.softmax_scale));
  }
  launched.wide = reads_are_wide(args, Kernel::config.type);
  launched.dropout = dropout_keys::of(args.dropout_seed);
  launched.last_dropped = static_cast<std::uint32_t>(args.dropout_threshold - 1);
  if (launched.plain || kernel_traits<Kernel, Hooks>::adds_distances) return;
  launched.log2_scale = prim::log2_e;
  launched.negative_scale = false;
}

template <class Kernel, class Hooks>
launch_args launch_args_of(const attention_kernel_args& args, const schedule& cut) {
  constexpr attention_config config = resolved(Kernel::config);
  launch_args launched;
  launched.call = args;
  // Farther than any key, and far from where 64-bit positions overflow: nvcc 13.0 turns the guarded
  // difference of mask_interval into an unguarded one.
  launched.call.window_left = std::min(args.window_left, 2 * longest_length);
  launched.call.window_right = std::min(args.window_right, 2 * longest_length);
  launched.tiles = static_cast<int>(cut.work_tiles);
  launched.tokens_of_tile = cut.tokens_of_tile;
  // Rows of a warpgroup stay together, so that no bit of them changes.
  if (schedule_sm90::sizes_of(args).keys_right < args.kv_len) {
    launched.lacking_tokens = -(rows_of_warpgroup / std::gcd(rows_of_warpgroup, cut.heads_of_tile));
  }
  launched.row_blocks = cut.row_blocks;
  const auto head_blocks = static_cast<std::uint32_t>(args.q_heads / cut.heads_of_tile);
  const auto all = static_cast<std::uint32_t>(args.batch) * head_blocks;
  const auto section = static_cast<std::uint32_t>(cut.section);
  launched.heads_of_tile = divisor::of(static_cast<std::uint32_t>(cut.heads_of_tile));
  launched.group = divisor::of(static_cast<std::uint32_t>(args.q_heads / args.kv_heads));
  launched.head_blocks = divisor::of(head_blocks);
  launched.section = divisor::of(section);
  launched.section_tiles =
      divisor::of(std::max(1u, section * static_cast<std::uint32_t>(cut.row_blocks)));
  launched.last_section = divisor::of(all % section == 0 ? section : all % section);
  if constexpr (are_paged(config.keys)) {
    launched.page = divisor::of(static_cast<std::uint32_t>(args.pages.page_size));
  }
  launched.negative_scale = args.softmax_scale < 0.0f;
  // A scale of 0 would make NaN of hidden scores, 0 * -inf.
  launched.log2_scale = std::max(std::fabs(args.softmax_scale) * prim::log2_e, 1e-30f);
  if constexpr (kernel_traits<Kernel, Hooks>::modifies || kernel_traits<Kernel, Hooks>::drops) {
    set_features<Kernel, Hooks>(launched, args);
  }
  launched.inverse_scale = 1.0f / launched.log2_scale;
  // Without normalisation outputs are relative to the true maximum.
  const float growth = args.normalize ? growth_of(config) : 0.0f;
  launched.rescale_above = growth + headroom_of(config);
  launched.follows_maximum = !args.normalize || args.row_max.data != nullptr;
  // Scales of heads are not known here: theirs is in powers of 2.
  if constexpr (!kernel_traits<Kernel, Hooks>::codes_of_heads) {
    launched.rescale_above *= launched.inverse_scale;
  }
  launched.aligned_out =
      rows_are_aligned(args.out, args.out_strides, args.batch, args.q_len, args.q_heads, 2);
  launched.clears_values = args.cu_seqlens_q != nullptr || args.seqlens_k != nullptr ||
                           args.kv_end != nullptr || args.most_keys < args.kv_len;
  launched.knows_lengths = args.cu_seqlens_q == nullptr && args.seqlens_q == nullptr &&
                           args.seqlens_k == nullptr && args.kv_start == nullptr &&
                           args.kv_end == nullptr;
  return launched;
}

/// Where the blocks of a launch count the tiles they take: words of the module that are 0 between
/// launches, one for each workspace, for ever; when all are given away a word of the workspace,
/// which is cleared in the stream.
template <class Kernel>
cudaError_t set_counter(launch_args& launched, std::byte* workspace, cudaStream_t stream) {
  launched.counter_place = kernel_counters<Kernel>::table.place_of(workspace, 1);
  if (launched.counter_place >= 0) return cudaSuccess;
  launched.counter_word = reinterpret_cast<unsigned*>(workspace);
  return cudaMemsetAsync(workspace, 0, schedule_sm90::counter_bytes, stream);
}

}  // namespace tessera::kernels::attention::sm90
